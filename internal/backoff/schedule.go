package backoff

import "time"

// Schedule bounds the delays. A negative Min counts as 0, and a Max below Min as Min; every delay lies between the two.
type Schedule struct {
	Min time.Duration
	Max time.Duration
}

// leastBase is what doubles where Min is zero: zero would double to zero, and the retries would spin.
const leastBase = time.Millisecond

// Delay draws the delay after the given number of failed attempts (1 and up; less counts as 1), uniformly from
// [Min, min(Max, Min·2^failed)]. uint64N returns a number in [0, n), as math/rand/v2's Uint64N does.
func (s Schedule) Delay(failed int, uint64N func(n uint64) uint64) time.Duration {
	lo, hi := s.bounds()
	failed = max(failed, 1)
	ceiling, base := hi, max(lo, leastBase)
	// Compared on the side that cannot overflow: a shift to the right by any number of bits is defined.
	if base <= hi>>failed {
		ceiling = base << failed
	}
	return lo + time.Duration(uint64N(uint64(ceiling-lo)+1))
}

// Next is the delay that a failed attempt is really followed by: the later of Delay and what the destination asked for
// (see [RetryAfter]; 0 when it asked for nothing), and still not above Max.
func (s Schedule) Next(failed int, retryAfter time.Duration, uint64N func(n uint64) uint64) time.Duration {
	_, hi := s.bounds()
	return min(max(s.Delay(failed, uint64N), retryAfter), hi)
}

func (s Schedule) bounds() (lo, hi time.Duration) {
	lo = max(s.Min, 0)
	return lo, max(s.Max, lo)
}
