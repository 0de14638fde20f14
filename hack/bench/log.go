package main

import (
	"context"
	"fmt"

	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/worker"
)

// measureLog tells how much write-ahead log an event costs in its whole life.
func measureLog(ctx context.Context, e *env) ([]figure, error) {
	n := e.scaled(20_000, 4)
	s, url, err := e.open(ctx, 5)
	if err != nil {
		return nil, err
	}
	ep := endpoint(nowhere)
	if err := s.EnsurePartitions(ctx, worker.Keeps(configuration(ep))); err != nil {
		return nil, err
	}
	f := newFigure("log from enqueue to the folded counters, per event", "bytes", atMost(2800, 2200))
	var images int64
	for round := range e.rounds {
		used, err := logUsed(ctx, url, &images, func() error {
			if err := enqueue(ctx, s, &ep, n, e.body); err != nil {
				return err
			}
			if _, err := drain(ctx, s, s, &ep, n); err != nil {
				return err
			}
			return upkeep(ctx, s, url, "tally", worker.Keeps(configuration(ep)))
		})
		if err != nil {
			return nil, err
		}
		progress("  round %d of %d: %.0f bytes", round+1, e.rounds, used/float64(n))
		f.Product = append(f.Product, used/float64(n))
	}
	f.Note = fmt.Sprintf("full_page_writes=%s, %d page images among %d events; vacuuming included as it comes",
		e.settings["full_page_writes"], images, n*e.rounds)
	return []figure{f}, nil
}

// logUsed returns how many bytes of log the server writes while something is
// done, and adds up the page images in it.
func logUsed(ctx context.Context, url string, images *int64, do func() error) (float64, error) {
	const position, pages = "SELECT (pg_current_wal_lsn() - '0/0')::float8", "SELECT wal_fpi FROM pg_stat_wal"
	before, err := query[float64](ctx, url, position)
	if err != nil {
		return 0, err
	}
	imagesBefore, err := query[int64](ctx, url, pages)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := query[float64](ctx, url, position)
	if err != nil {
		return 0, err
	}
	imagesAfter, err := query[int64](ctx, url, pages)
	*images += imagesAfter - imagesBefore
	return after - before, err
}

// upkeep does one of the database's chores now.
func upkeep(ctx context.Context, s *store.Store, url, chore string, keeps []store.Keep) error {
	if err := execute(ctx, url, "UPDATE chore SET due_at = CASE name WHEN '"+chore+"' THEN '-infinity' ELSE now() + interval '1 hour' END"); err != nil {
		return err
	}
	_, err := s.Maintain(ctx, keeps)
	return err
}
