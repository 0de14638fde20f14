package backoff_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/backoff"
)

func lowest(uint64) uint64    { return 0 }
func highest(n uint64) uint64 { return n - 1 }

const forever = time.Duration(math.MaxInt64)

func TestDelayIsDrawnBetweenMinAndTheGrowingCeiling(t *testing.T) {
	tests := map[string]struct {
		schedule backoff.Schedule
		failed   int
		lo, hi   time.Duration
	}{
		"first failure":        {backoff.Schedule{Min: 5 * time.Second, Max: time.Hour}, 1, 5 * time.Second, 10 * time.Second},
		"second failure":       {backoff.Schedule{Min: 5 * time.Second, Max: time.Hour}, 2, 5 * time.Second, 20 * time.Second},
		"ninth failure":        {backoff.Schedule{Min: 5 * time.Second, Max: time.Hour}, 9, 5 * time.Second, 2560 * time.Second},
		"capped":               {backoff.Schedule{Min: 5 * time.Second, Max: time.Hour}, 10, 5 * time.Second, time.Hour},
		"shift of 63":          {backoff.Schedule{Min: 5 * time.Second, Max: time.Hour}, 63, 5 * time.Second, time.Hour},
		"shift of 64":          {backoff.Schedule{Min: 5 * time.Second, Max: time.Hour}, 64, 5 * time.Second, time.Hour},
		"as many as there are": {backoff.Schedule{Min: 5 * time.Second, Max: time.Hour}, math.MaxInt, 5 * time.Second, time.Hour},
		"no failure":           {backoff.Schedule{Min: 5 * time.Second, Max: time.Hour}, 0, 5 * time.Second, 10 * time.Second},
		"less than none":       {backoff.Schedule{Min: 5 * time.Second, Max: time.Hour}, math.MinInt, 5 * time.Second, 10 * time.Second},
		"fixed":                {backoff.Schedule{Min: time.Minute, Max: time.Minute}, 3, time.Minute, time.Minute},
		"max below min":        {backoff.Schedule{Min: time.Minute, Max: time.Second}, 3, time.Minute, time.Minute},
		"zero":                 {backoff.Schedule{}, 3, 0, 0},
		"min zero":             {backoff.Schedule{Max: time.Hour}, 3, 0, 8 * time.Millisecond},
		"negative":             {backoff.Schedule{Min: -time.Hour, Max: -time.Minute}, 3, 0, 0},
		"huge, exact power":    {backoff.Schedule{Min: 1 << 61, Max: forever}, 1, 1 << 61, 1 << 62},
		"huge, would overflow": {backoff.Schedule{Min: 1 << 61, Max: forever}, 2, 1 << 61, forever},
		"the whole range":      {backoff.Schedule{Min: 0, Max: forever}, 100, 0, forever},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.schedule.Delay(tc.failed, lowest); got != tc.lo {
				t.Errorf("least delay = %v, want %v", got, tc.lo)
			}
			if got := tc.schedule.Delay(tc.failed, highest); got != tc.hi {
				t.Errorf("greatest delay = %v, want %v", got, tc.hi)
			}
		})
	}
}

// With a fixed seed: each tenth of the range must get about a tenth of the draws.
func TestDelayIsUniform(t *testing.T) {
	const draws, parts = 20_000, 10
	schedule := backoff.Schedule{Min: 10 * time.Second, Max: time.Hour}
	random := rand.New(rand.NewPCG(1, 2))
	lo, hi := 10*time.Second, 80*time.Second
	var counts [parts]int
	for range draws {
		counts[int64(schedule.Delay(3, random.Uint64N)-lo)*parts/int64(hi-lo+1)]++
	}
	for i, n := range counts {
		if n < draws/parts*9/10 || n > draws/parts*11/10 {
			t.Errorf("part %d of %d got %d of %d draws: %v", i, parts, n, draws, counts)
		}
	}
}

func TestNext(t *testing.T) {
	schedule := backoff.Schedule{Min: 5 * time.Second, Max: time.Hour}
	for name, tc := range map[string]struct {
		retryAfter, want time.Duration
	}{
		"nothing asked for":           {0, 10 * time.Second},
		"asked for less":              {time.Second, 10 * time.Second},
		"asked for more":              {time.Minute, time.Minute},
		"asked for more than allowed": {24 * time.Hour, time.Hour},
		"negative":                    {-time.Hour, 10 * time.Second},
	} {
		if got := schedule.Next(1, tc.retryAfter, highest); got != tc.want {
			t.Errorf("%s: Next = %v, want %v", name, got, tc.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	tests := map[string]struct {
		value string
		want  time.Duration
		ok    bool
	}{
		"seconds":                {"120", 2 * time.Minute, true},
		"zero":                   {"0", 0, true},
		"leading zeros":          {"0000000000000000000000000000060", time.Minute, true},
		"the limit":              {"3600", time.Hour, true},
		"above the limit":        {"3601", time.Hour, true},
		"beyond a duration":      {"9223372037", time.Hour, true},
		"beyond 64 bits":         {"18446744073709551617", time.Hour, true},
		"very long":              {strings.Repeat("9", 4096), time.Hour, true},
		"spaces around":          {" 60\t", time.Minute, true},
		"IMF date":               {"Wed, 04 Mar 2026 05:07:07 GMT", time.Minute, true},
		"RFC 850 date":           {"Wednesday, 04-Mar-26 05:07:07 GMT", time.Minute, true},
		"asctime date":           {"Wed Mar  4 05:07:07 2026", time.Minute, true},
		"date above the limit":   {"Fri, 04 Mar 2033 05:06:07 GMT", time.Hour, true},
		"date far in the future": {"Fri, 31 Dec 9999 23:59:59 GMT", time.Hour, true},
		"date now":               {"Wed, 04 Mar 2026 05:06:07 GMT", 0, true},
		"date in the past":       {"Tue, 04 Mar 1986 05:06:07 GMT", 0, true},
		"year 1":                 {"Mon, 01 Jan 0001 00:00:00 GMT", 0, true},
		"empty":                  {"", 0, false},
		"spaces":                 {"  ", 0, false},
		"negative":               {"-1", 0, false},
		"sign":                   {"+1", 0, false},
		"fraction":               {"1.5", 0, false},
		"unit":                   {"5s", 0, false},
		"hex":                    {"0x10", 0, false},
		"list":                   {"1, 2", 0, false},
		"other digits":           {"١٢", 0, false},
		"RFC 3339 date":          {"2026-03-04T05:07:07Z", 0, false},
		"impossible date":        {"Wed, 31 Feb 2026 05:07:07 GMT", 0, false},
		"NUL":                    {"\x00", 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := backoff.RetryAfter(tc.value, now, time.Hour)
			if got != tc.want || ok != tc.ok {
				t.Errorf("RetryAfter(%.40q) = %v, %t; want %v, %t", tc.value, got, ok, tc.want, tc.ok)
			}
		})
	}
	if got, ok := backoff.RetryAfter("60", now, -time.Hour); got != 0 || !ok {
		t.Errorf("RetryAfter with a negative limit = %v, %t; want 0, true", got, ok)
	}
	if got, ok := backoff.RetryAfter("9223372036", now, forever); got != 9223372036*time.Second || !ok {
		t.Errorf("RetryAfter of the most seconds that fit = %v, %t", got, ok)
	}
	if got, ok := backoff.RetryAfter("9223372037", now, forever); got != forever || !ok {
		t.Errorf("RetryAfter of the fewest seconds that do not fit = %v, %t", got, ok)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"", "0", "120", "-1", "99999999999999999999", "Wed, 04 Mar 2026 05:07:07 GMT", "Wed Mar  4 05:07:07 2026"} {
		f.Add(value, int64(1772600767), int64(time.Hour))
	}
	f.Fuzz(func(t *testing.T, value string, now, limit int64) {
		got, ok := backoff.RetryAfter(value, time.Unix(now, 0), time.Duration(limit))
		if got < 0 || got > max(time.Duration(limit), 0) {
			t.Errorf("RetryAfter(%q) = %v, outside [0, %v]", value, got, time.Duration(limit))
		}
		if !ok && got != 0 {
			t.Errorf("RetryAfter(%q) = %v beside false", value, got)
		}
		digits := value != "" && strings.Trim(value, "0123456789") == ""
		if digits && !ok {
			t.Errorf("RetryAfter(%q) refused a number of seconds", value)
		}
	})
}

func FuzzScheduleBounds(f *testing.F) {
	f.Add(1, int64(5*time.Second), int64(time.Hour), int64(0), uint64(1))
	f.Add(64, int64(0), int64(math.MaxInt64), int64(math.MaxInt64), uint64(math.MaxUint64))
	f.Add(-1, int64(math.MinInt64), int64(math.MinInt64), int64(math.MinInt64), uint64(0))
	f.Fuzz(func(t *testing.T, failed int, lo, hi, retryAfter int64, draw uint64) {
		schedule := backoff.Schedule{Min: time.Duration(lo), Max: time.Duration(hi)}
		uint64N := func(n uint64) uint64 {
			if n == 0 {
				t.Fatal("a draw from nothing: Uint64N panics")
			}
			return draw % n
		}
		least := max(time.Duration(lo), 0)
		most := max(time.Duration(hi), least)
		delay := schedule.Delay(failed, uint64N)
		if delay < least || delay > most {
			t.Errorf("Delay = %v, outside [%v, %v]", delay, least, most)
		}
		next := schedule.Next(failed, time.Duration(retryAfter), uint64N)
		if next < delay || next > most {
			t.Errorf("Next = %v, outside [%v, %v]", next, delay, most)
		}
		if earlier, later := schedule.Delay(failed, highest), schedule.Delay(failed/2+failed%2+1, highest); failed > 2 && later > earlier {
			t.Errorf("the ceiling shrinks with more failures: %v, then %v", later, earlier)
		}
	})
}
