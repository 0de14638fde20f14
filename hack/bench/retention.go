package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/worker"
)

// measureRetention compares how long it takes to be rid of a day's events,
// settled deliveries and ledger as the product does it with deleting them row
// by row; and the slowest answers meanwhile with those before.
func measureRetention(ctx context.Context, e *env) ([]figure, error) {
	n := e.scaled(500_000, 5)
	rounds := 1
	if e.rounds > 3 {
		rounds = 2
	}
	s, url, err := e.open(ctx, 5)
	if err != nil {
		return nil, err
	}
	c := configuration(endpoint(nowhere))
	keeps := worker.Keeps(c)
	if err := upkeep(ctx, s, url, "partitions", keeps); err != nil {
		return nil, err
	}
	p, err := e.ingress(ctx, url, c)
	if err != nil {
		return nil, err
	}
	took := newFigure(fmt.Sprintf("retention of %d events by partition ÷ DELETE and VACUUM", n), "s", atMost(0.1, 0.05))
	acks := newFigure("ack p99 at 200/s during it ÷ before", "ms", atMost(2, 1.2))
	for range rounds {
		progress("  filling a day and a table with %d events", n)
		if err := expire(ctx, url, n, e.body); err != nil {
			return nil, err
		}
		reference, err := deleted(ctx, url)
		if err != nil {
			return nil, err
		}
		before, err := e.load(ctx, p.address, e.light())
		if err != nil {
			return nil, err
		}
		product, during, err := e.retired(ctx, s, url, p, keeps)
		if err != nil {
			return nil, err
		}
		took.add(product, reference)
		acks.add(milliseconds(quantile(during.latencies, 0.99)), milliseconds(quantile(before.latencies, 0.99)))
	}
	acks.Note = fmt.Sprintf("during: %s from its start", e.duration)
	return []figure{took, acks}, nil
}

// expire fills the partitions of yesterday, and tables beside them that are
// the same.
func expire(ctx context.Context, url string, n, body int) error {
	if err := execute(ctx, url, `SELECT create_partition(parent, (now() AT TIME ZONE 'UTC')::date - 1) FROM unnest(ARRAY['event', 'settled', 'attempt']) AS parent`); err != nil {
		return err
	}
	tables := [][3]string{{"event", "settled", "attempt"}, {"plain_event", "plain_settled", "plain_attempt"}}
	for _, t := range tables[1] {
		if err := execute(ctx, url, fmt.Sprintf("DROP TABLE IF EXISTS %s", t), fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL)", t, t[len("plain_"):])); err != nil {
			return err
		}
	}
	for _, t := range tables {
		if err := execute(ctx, url, fmt.Sprintf(`WITH made AS MATERIALIZED (
				SELECT gen_random_uuid() AS id, date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '1 hour' AS expires_at
				FROM generate_series(1, %d)
			), a AS (
				INSERT INTO %s SELECT id, expires_at, now(), 1, 'push', id::text, 'application/json', '', '{}', '\x%x' FROM made
			), b AS (
				INSERT INTO %s SELECT id, 1, 1, 1, 1, 1024, 200, 1, now(), expires_at, NULL FROM made
			)
			INSERT INTO %s SELECT id, 1, 1, 1, now(), expires_at, 'bench' FROM made`, n, t[0], makeBody(body), t[1], t[2])); err != nil {
			return err
		}
	}
	return nil
}

// deleted deletes the tables' rows and returns how many seconds that took.
func deleted(ctx context.Context, url string) (float64, error) {
	start := time.Now()
	for _, t := range []string{"plain_event", "plain_settled", "plain_attempt"} {
		if err := execute(ctx, url, "DELETE FROM "+t+" WHERE expires_at < now()", "VACUUM "+t); err != nil {
			return 0, err
		}
	}
	return time.Since(start).Seconds(), nil
}

// retired has the product do its retention and returns how many seconds that
// took, and what answers took from its start on.
func (e *env) retired(ctx context.Context, s *store.Store, url string, p *process, keeps []store.Keep) (seconds float64, during *loaded, err error) {
	_, err = concurrently(2, func(i int) (err error) {
		if i == 0 {
			during, err = e.load(ctx, p.address, e.light())
			return err
		}
		start := time.Now()
		err = upkeep(ctx, s, url, "partitions", keeps)
		seconds = time.Since(start).Seconds()
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	left, err := query[int](ctx, url, "SELECT count(*) FROM event WHERE expires_at < now()")
	if err == nil && left > 0 {
		err = fmt.Errorf("%d events are left", left)
	}
	return seconds, during, err
}
