package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/testenv"
)

// Everything works through a pooler in transaction mode, which gives each
// transaction another session: nothing may be left in one.
func TestThroughPgBouncer(t *testing.T) {
	const senders, workers, each = 6, 3, 25
	direct := testenv.Schema(t)
	url := testenv.PgBouncer(t, direct)
	errs := make([]error, 3)
	parallel(len(errs), func(i int) { errs[i] = Migrate(t.Context(), url, t.Logf) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, url)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.EnsurePartitions(t.Context(), keeps); err != nil {
		t.Fatal(err)
	}
	q := NewEnqueuer(s, EnqueuerOptions{MaxBatch: 10})
	defer q.Close()
	subs := make([][]Submission, senders)
	for i := range subs {
		for n := range each {
			subs[i] = append(subs[i], submission(t, fmt.Sprint(i, "/", n), to("a", "b")))
		}
	}
	stores := make([]*Store, workers)
	for i := range stores {
		stores[i] = openStore(t, url)
	}

	var ended atomic.Int64
	errs = make([]error, senders+workers+1)
	parallel(len(errs), func(i int) {
		switch {
		case i < senders:
			for _, sub := range subs[i] {
				_, err := q.Enqueue(context.Background(), sub)
				errs[i] = errors.Join(errs[i], err)
			}
		case i < senders+workers:
			errs[i] = endAll(stores[i-senders], &ended, senders*each*2)
		default:
			errs[i] = keepHouse(s, &ended, senders*each*2)
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	same(t, "counts", []Counts{{Dead: senders * each}, {}}, counts(t, s, "a", "b"))

	r := plan(t, s, newReplay(t, replay.Selector{States: selectDead}))
	queued := make([]int, workers)
	parallel(workers, func(i int) {
		for {
			n, k, err := stores[i].RunReplay(context.Background(), r.ID, nil, 10)
			queued[i] += n
			if errs[i] = err; err != nil || n+k == 0 {
				return
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	same(t, "queued", senders*each, queued[0]+queued[1]+queued[2])
	finish(t, s, event.VerdictDone, claim(t, s, want("a"))...)
	wantStatus(t, s, r, progress{Matched: senders * each, Queued: senders * each, Succeeded: senders * each, Completed: true})
	if _, err := s.ShowEvent(t.Context(), subs[0][0].Event.ID); err != nil {
		t.Error(err)
	}
	same(t, "listed", 10, len(list(t, s, Filter{Limit: 10})))

	// Another process hears of work only on a connection of its own.
	l := listen(t, openStore(t, direct))
	if err := s.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.waitFor(2)
	for what, count := range map[string]string{
		"prepared statements": "SELECT count(*)::int FROM pg_prepared_statements",
		"advisory locks":      "SELECT count(*)::int FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
		"settings":            "SELECT count(*)::int FROM pg_settings WHERE source = 'session' AND name IN ('synchronous_commit', 'lock_timeout')",
	} {
		same(t, what+" left in a session", 0, value[int](t, s, count))
	}
}

// endAll settles what is due to "b" and lets die what is due to "a", until n
// deliveries have ended.
func endAll(s *Store, ended *atomic.Int64, n int64) error {
	for ended.Load() < n {
		claims, err := s.Claim(context.Background(), "worker", []Want{want("a", most(7)), want("b", most(7))})
		if err != nil {
			return err
		}
		for _, c := range claims {
			holds, err := s.Renew(context.Background(), []*Claim{c}, []time.Duration{time.Minute})
			if err != nil || !holds[0] {
				return fmt.Errorf("renewing: %v, %w", holds, err)
			}
		}
		var outcomes []Outcome
		for _, c := range claims {
			v := event.VerdictDone
			if c.Token.Delivery.Destination.Name == "a" {
				v = event.VerdictDead
			}
			outcomes = append(outcomes, outcome(c, v))
		}
		took, err := s.Complete(context.Background(), outcomes)
		if err != nil {
			return err
		}
		for _, ok := range took {
			if ok {
				ended.Add(1)
			}
		}
	}
	return nil
}

// keepHouse does all chores again and again until n deliveries have ended.
func keepHouse(s *Store, ended *atomic.Int64, n int64) error {
	for ended.Load() < n {
		if _, err := s.pool.Exec(context.Background(), "UPDATE chore SET due_at = '-infinity'"); err != nil {
			return err
		}
		if _, err := s.Maintain(context.Background(), keeps); err != nil {
			return err
		}
		if _, err := s.Counts(context.Background(), []event.DestinationRef{dest("a"), dest("b")}); err != nil {
			return err
		}
	}
	return nil
}
