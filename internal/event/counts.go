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
