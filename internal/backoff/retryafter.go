package backoff

import (
	"net/http"
	"strings"
	"time"
)

// RetryAfter reads the value of a Retry-After header (RFC 9110 §10.2.3), a number of seconds or an HTTP date, as
// a delay from now within [0, limit]. It reports false for anything else, and a date in the past is a delay of zero.
func RetryAfter(value string, now time.Time, limit time.Duration) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	delay, ok := seconds(value)
	if !ok {
		at, err := http.ParseTime(value)
		if err != nil {
			return 0, false
		}
		delay = at.Sub(now) // saturates
	}
	return max(min(delay, limit), 0), true
}

const maxDuration = time.Duration(1<<63 - 1)

// seconds reads 1*DIGIT of any length; what a Duration cannot hold becomes the greatest one.
func seconds(value string) (time.Duration, bool) {
	var delay time.Duration
	for i := range len(value) {
		if value[i] < '0' || value[i] > '9' {
			return 0, false
		}
		digit := time.Duration(value[i]-'0') * time.Second
		if delay > (maxDuration-digit)/10 {
			delay = maxDuration
			continue
		}
		delay = delay*10 + digit
	}
	return delay, value != ""
}
