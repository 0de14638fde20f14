package event

import "time"

// Counts are the deliveries of one destination by state.
type Counts struct {
	Pending, Claimed, Failed int64
	// Dead counts dead letters that no replay has taken up.
	Dead int64
	// OldestDue is for how long the delivery that is due the longest has
	// been waiting; 0 if none is due. A delivery that waits for its next
	// attempt is not due.
	OldestDue time.Duration
}

// DeadCounts are the dead letters of one destination that no replay has taken
// up.
type DeadCounts struct {
	Destination DestinationRef
	// Reasons are the numbers by reason, all of them positive.
	Reasons map[Reason]int64
	// OldestDeath is when the first of them died, and OldestAge how long ago
	// that is, both by the database's clock.
	OldestDeath time.Time
	OldestAge   time.Duration
	// Expiring is how many are purged soon: the first at FirstPurge, the last
	// at LastPurge, by the database's clock.
	Expiring              int64
	FirstPurge, LastPurge time.Time
}

// Total is the sum over all reasons.
func (c *DeadCounts) Total() (n int64) {
	for _, more := range c.Reasons {
		n += more
	}
	return n
}

// PurgeNotice is how long before they are purged people are told of dead
// letters that are kept for some time: the last tenth of that, but at least
// an hour and at most a day.
func PurgeNotice(keep time.Duration) time.Duration {
	return min(max(keep/10, time.Hour), 24*time.Hour)
}
