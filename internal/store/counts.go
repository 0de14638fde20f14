package store

import (
	"context"
	"time"

	"github.com/ackrail/ackrail/internal/event"
)

// Counts are the deliveries of one destination by state.
type Counts = event.Counts

// Counts returns the counts of destinations, in their order. Its cost does
// not depend on how much is waiting. Destinations that the database has not
// seen yet count zero.
func (s *Store) Counts(ctx context.Context, destinations []event.DestinationRef) ([]Counts, error) {
	namespaces, endpoints, names := columns(destinations)
	rows, err := s.pool.Query(ctx, sqlCounts, namespaces, endpoints, names)
	if err != nil {
		return nil, classify("counting deliveries", err)
	}
	defer rows.Close()
	counts := make([]Counts, len(destinations))
	for rows.Next() {
		var n int
		var c Counts
		var oldest float64
		if err := rows.Scan(&n, &c.Pending, &c.Claimed, &c.Failed, &c.Dead, &oldest); err != nil {
			return nil, classify("counting deliveries", err)
		}
		c.OldestDue = time.Duration(oldest * float64(time.Second))
		counts[n-1] = c
	}
	return counts, classify("counting deliveries", rows.Err())
}
