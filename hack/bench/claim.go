package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

const (
	// front is how many deliveries, with their events, are due first.
	front = 20_000
	// claimSize and claimsATurn are how many deliveries a claim takes, and
	// how many claims a turn makes.
	claimSize, claimsATurn = 100, 50
)

// queue is one destination in a database of its own.
type queue struct {
	e     *env
	store *store.Store
	url   string
	ep    pipeline.Endpoint
	// since is from where the next claim looks, as a worker's lane has it.
	since time.Time
}

// newQueue makes a queue in which the front is due, for an hour.
func (e *env) newQueue(ctx context.Context) (*queue, error) {
	s, url, err := e.open(ctx, 2)
	if err != nil {
		return nil, err
	}
	q := &queue{e: e, store: s, url: url, ep: endpoint(nowhere)}
	return q, fill(ctx, s, url, ref(&q.ep), front, e.body, -time.Hour)
}

// bulk adds deliveries whose events are not there, since nobody will look at
// them. Their counters get one difference, and indexes are made afterwards:
// millions of rows take minutes otherwise.
func (q *queue) bulk(ctx context.Context, to event.DestinationRef, n int, due time.Duration) (err error) {
	progress("  filling a queue with %d deliveries", n)
	if err := q.store.Register(ctx, []event.DestinationRef{to}); err != nil {
		return err
	}
	destination, err := query[int](ctx, q.url, "SELECT d.id FROM destination d JOIN endpoint e ON e.id = d.endpoint_id WHERE e.namespace = $1 AND e.name = $2 AND d.name = $3",
		to.Endpoint.Namespace, to.Endpoint.Name, to.Name)
	if err != nil {
		return err
	}
	drop, create, err := indexes(ctx, q.url)
	if err != nil {
		return err
	}
	statements := append(drop,
		"ALTER TABLE delivery DISABLE TRIGGER USER",
		fmt.Sprintf(`INSERT INTO delivery (event_id, destination_id, run, size, next_at, event_expires_at, state)
			SELECT (lpad(to_hex(%d + n / 10), 12, '0') || '7000' || '8' || lpad(to_hex(n), 15, '0'))::uuid, %d, 1, 100,
			       now() + interval '%d s' - (%d - n) * interval '1 microsecond', now() + interval '7 days', 'pending'
			FROM generate_series(1, %d) AS n`, time.Now().UnixMilli(), destination, int(due.Seconds()), n, n),
		fmt.Sprintf("INSERT INTO tally_delta VALUES (%d, 'pending', %d)", destination, n),
		"ALTER TABLE delivery ENABLE TRIGGER USER")
	return execute(ctx, q.url, append(append(statements, create...), "VACUUM (ANALYZE) delivery")...)
}

// indexes returns the statements that drop the indexes of deliveries, and
// those that make them again.
func indexes(ctx context.Context, url string) (drop, create []string, err error) {
	const each = ` FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype = 'p' WHERE i.indrelid = 'delivery'::regclass`
	drop, err = query[[]string](ctx, url, `SELECT array_agg(coalesce('ALTER TABLE delivery DROP CONSTRAINT ' || c.conname, 'DROP INDEX ' || i.indexrelid::regclass))`+each)
	if err != nil {
		return nil, nil, err
	}
	create, err = query[[]string](ctx, url, `SELECT array_agg(coalesce('ALTER TABLE delivery ADD CONSTRAINT ' || c.conname || ' ' || pg_get_constraintdef(c.oid),
		pg_get_indexdef(i.indexrelid)))`+each)
	return drop, create, err
}

// claims returns a turn that makes claims, as many as a turn has, and tells
// how many milliseconds the middle one took. What was claimed is completed,
// and as much is due afterwards as before.
func (q *queue) claims() turn {
	return func(ctx context.Context) (float64, error) {
		if err := fill(ctx, q.store, q.url, ref(&q.ep), claimSize*claimsATurn, q.e.body, -time.Hour); err != nil {
			return 0, err
		}
		q.since = time.Time{} // a sweep comes first
		all := make([]time.Duration, 0, claimsATurn)
		for range claimsATurn {
			took, err := q.claim(ctx)
			if err != nil {
				return 0, err
			}
			all = append(all, took)
		}
		slices.Sort(all)
		return milliseconds(quantile(all, 0.5)), nil
	}
}

// claim makes one claim, tells how long it took, and completes it.
func (q *queue) claim(ctx context.Context) (time.Duration, error) {
	d := &q.ep.Destinations[0]
	start := time.Now()
	claims, err := q.store.Claim(ctx, "bench", []store.Want{{
		Destination: ref(&q.ep), Most: claimSize, MostBytes: 16 << 20, Lease: q.ep.Lease(), MaxAttempts: d.Retry.MaxAttempts,
		KeepLedger: q.ep.Retention.Ledger(), Since: q.since,
	}})
	took := time.Since(start)
	if err == nil && len(claims) < claimSize {
		err = fmt.Errorf("claimed %d deliveries, %d are due", len(claims), claimSize)
	}
	if err != nil {
		return 0, err
	}
	q.since = claims[0].Seen.Add(-5 * time.Second)
	outcomes := make([]store.Outcome, len(claims))
	for i, c := range claims {
		outcomes[i] = store.Outcome{
			Claim: c, Verdict: event.VerdictDone, Status: 200, KeepLedger: q.ep.Retention.Ledger(), KeepEnded: q.ep.Retention.Events(),
		}
	}
	_, err = q.store.Complete(ctx, outcomes)
	return took, err
}

// measureClaimOnBacklog compares claims from much that is due, and beside much
// that will be, with claims from little.
func measureClaimOnBacklog(ctx context.Context, e *env) ([]figure, error) {
	n := e.scaled(10_000_000, 50)
	little, err := e.newQueue(ctx)
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, b := range []struct {
		name string
		due  time.Duration
	}{{"due", 0}, {"in the future", 24 * time.Hour}} {
		q, err := e.newQueue(ctx)
		if err != nil {
			return nil, err
		}
		if err := q.bulk(ctx, ref(&q.ep), n, b.due); err != nil {
			return nil, err
		}
		f := newFigure(fmt.Sprintf("claim p50 with %d %s ÷ with %d", n, b.name, front), "ms", atMost(1.5, 1.1))
		if err := e.interleave(ctx, &f, q.claims(), little.claims()); err != nil {
			return nil, err
		}
		f.Note = fmt.Sprintf("claims of %d", claimSize)
		figures = append(figures, f)
	}
	return figures, nil
}

// measureClaimBesidePaused compares claims beside a destination that nobody
// claims for, though much is due to it for longer, with claims without it.
func measureClaimBesidePaused(ctx context.Context, e *env) ([]figure, error) {
	n := e.scaled(1_000_000, 20)
	alone, err := e.newQueue(ctx)
	if err != nil {
		return nil, err
	}
	beside, err := e.newQueue(ctx)
	if err != nil {
		return nil, err
	}
	if err := beside.bulk(ctx, event.DestinationRef{Endpoint: beside.ep.Ref(), Name: "paused"}, n, -2*time.Hour); err != nil {
		return nil, err
	}
	f := newFigure(fmt.Sprintf("claim p50 with a paused destination's %d due in front ÷ without", n), "ms", atMost(2, 1.2))
	return []figure{f}, e.interleave(ctx, &f, beside.claims(), alone.claims())
}

// measureClaimUnderOldSnapshot compares the last claims of a minute with its
// first, while a transaction keeps the server from removing dead rows.
func measureClaimUnderOldSnapshot(ctx context.Context, e *env) (_ []figure, err error) {
	hold := 60 * time.Second
	if e.short {
		hold = 12 * time.Second
	}
	const pause = 50 * time.Millisecond
	q, err := e.newQueue(ctx)
	if err != nil {
		return nil, err
	}
	n := int(hold/pause) * claimSize
	if err := fill(ctx, q.store, q.url, ref(&q.ep), n, 100, -time.Hour); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, q.url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM endpoint"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	var first, last []time.Duration
	window := hold / 6
	begin, swept := time.Now(), time.Now()
	for at := time.Duration(0); at < hold; at = time.Since(begin) {
		if time.Since(swept) > 10*time.Second { // as a worker's lane does
			q.since, swept = time.Time{}, time.Now()
		}
		took, err := q.claim(ctx)
		if err != nil {
			return nil, err
		}
		switch {
		case at < window:
			first = append(first, took)
		case at >= hold-window:
			last = append(last, took)
		}
		time.Sleep(max(0, pause-(time.Since(begin)-at)))
	}
	slices.Sort(first)
	slices.Sort(last)
	f := newFigure(fmt.Sprintf("claim p50, last %s ÷ first %s of %s with a snapshot held", window, window, hold), "ms", atMost(1.5, 1.1))
	f.add(milliseconds(quantile(last, 0.5)), milliseconds(quantile(first, 0.5)))
	f.Note = fmt.Sprintf("claims of %d, at most 20 a second; p95 %.1f and %.1f ms", claimSize,
		milliseconds(quantile(last, 0.95)), milliseconds(quantile(first, 0.95)))
	return []figure{f}, nil
}
