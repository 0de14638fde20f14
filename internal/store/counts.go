package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

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

// DeadCounts returns what is dead of each endpoint that no replay has taken
// up, by destination, sorted; destinations without any are left out, those
// that an endpoint no longer has are not. Soon is, for each endpoint, within
// what time dead letters are purged that count as expiring. Its cost does not
// depend on how much is waiting, nor on how much is dead and stays.
func (s *Store) DeadCounts(ctx context.Context, endpoints []event.EndpointRef, soon []time.Duration) ([]event.DeadCounts, error) {
	const doing = "counting dead letters"
	var namespaces, names []string
	var seconds []int32
	for i, e := range endpoints {
		namespaces, names, seconds = append(namespaces, e.Namespace), append(names, e.Name), append(seconds, wholeSeconds(soon[i]))
	}
	rows, err := s.pool.Query(ctx, sqlDeadCounts, namespaces, names, seconds)
	if err != nil {
		return nil, classify(doing, err)
	}
	counts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (event.DeadCounts, error) {
		var c event.DeadCounts
		var died, first, last *time.Time
		var age float64
		to := &c.Destination
		err := row.Scan(&to.Endpoint.Namespace, &to.Endpoint.Name, &to.Name, &c.Reasons, &died, &age, &c.Expiring, &first, &last)
		if died != nil { // else it was taken up since it was counted
			c.OldestDeath, c.OldestAge = *died, time.Duration(age*float64(time.Second))
		}
		if first != nil {
			c.FirstPurge, c.LastPurge = *first, *last
		}
		return c, err
	})
	return counts, classify(doing, err)
}
