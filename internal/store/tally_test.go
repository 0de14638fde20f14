package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

// brute counts what Counts sums up, the slow way.
func brute(t testing.TB, s *Store, destinations ...string) []Counts {
	t.Helper()
	counts := make([]Counts, len(destinations))
	for i, name := range destinations {
		count := func(state string) int64 {
			return value[int64](t, s, `SELECT count(*) FROM delivery_state
				WHERE destination = $1 AND state = $2 AND replayed_by IS NULL`, name, state)
		}
		counts[i] = Counts{Pending: count("pending"), Claimed: count("claimed"), Failed: count("failed"), Dead: count("dead")}
	}
	return counts
}

func TestCounts(t *testing.T) {
	s := newStore(t)
	same(t, "nothing is known", []Counts{{}, {}}, counts(t, s, "a", "b"))
	enqueueNew(t, s, 8, "a", "b")
	claims := claim(t, s, want("a", most(6)))
	finish(t, s, event.VerdictDone, claims[0])
	finish(t, s, event.VerdictDead, claims[1])
	finish(t, s, event.VerdictFailed, claims[2:4]...)
	expected := []Counts{{Pending: 8}, {Pending: 2, Claimed: 2, Failed: 2, Dead: 1}, {}, {Pending: 8}}
	same(t, "counts", expected, withoutAge(counts(t, s, "b", "a", "unknown", "b")))
	maintain(t, s)
	same(t, "differences after folding", 0, value[int](t, s, "SELECT count(*)::int FROM tally_delta"))
	same(t, "counts after folding", expected, withoutAge(counts(t, s, "b", "a", "unknown", "b")))
}

func TestOldestDue(t *testing.T) {
	s := newStore(t)
	ids := enqueueNew(t, s, 3, "a")
	for _, tc := range []struct {
		name     string
		seconds  []float64
		min, max time.Duration
	}{
		{"nothing is due", []float64{60, 70, 80}, 0, 0},
		{"the longest counts", []float64{-5, -120, 60}, 2 * time.Minute, 3 * time.Minute},
	} {
		due(t, s, ids, tc.seconds...)
		if got := counts(t, s, "a")[0].OldestDue; got < tc.min || got > tc.max {
			t.Errorf("%s: %s", tc.name, got)
		}
	}
	claim(t, s, want("a"))
	lapse(t, s) // a second ago
	if got := counts(t, s, "a")[0].OldestDue; got < time.Second || got > time.Minute {
		t.Errorf("leases ended a second ago, oldest due %s", got)
	}
}

// actor does random things to one schema.
type actor struct {
	s      *Store
	random *rand.Rand
	held   []*Claim
}

var lanes = []string{"a", "b", "c"}

func (a *actor) act(ctx context.Context) error {
	actions := []func(context.Context) error{a.enqueue, a.claim, a.claim, a.complete, a.complete, a.replay, a.expire, a.rollBack, a.fold}
	return actions[a.random.IntN(len(actions))](ctx)
}

func (a *actor) enqueue(context.Context) error {
	var batch []Submission
	for range 1 + a.random.IntN(8) {
		id, err := event.NewID()
		if err != nil {
			return err
		}
		e := &event.Event{ID: id, Endpoint: endpoint, Key: digits(a.random.IntN(400)), Body: []byte("x")}
		batch = append(batch, Submission{Event: e, Destinations: lanes[:1+a.random.IntN(3)], KeepEvent: time.Hour, KeepKey: time.Hour})
	}
	var errs []error
	for _, r := range a.s.enqueueBatch(context.Background(), batch) {
		errs = append(errs, r.err)
	}
	return errors.Join(errs...)
}

func (a *actor) claim(ctx context.Context) error {
	lease := time.Duration(a.random.IntN(20)) * time.Millisecond
	n := 1 + a.random.IntN(10)
	if a.random.IntN(5) == 0 {
		n = 500 // else there would never be room for replays
	}
	claims, err := a.s.Claim(ctx, "actor", []Want{want(lanes[a.random.IntN(3)], most(n), func(w *Want) { w.Lease = lease })})
	a.held = append(a.held, claims...)
	return err
}

func (a *actor) complete(ctx context.Context) error {
	var outcomes []Outcome
	for _, c := range a.held {
		o := outcome(c, verdicts[a.random.IntN(len(verdicts))])
		o.Delay = time.Duration(a.random.IntN(10)) * time.Millisecond
		if o.Verdict == event.VerdictDead && a.random.IntN(2) == 0 {
			o.Reason = event.ReasonOutcomeUnknown
		}
		if a.random.IntN(5) == 0 {
			o.Excerpt = "\x00"
		}
		outcomes = append(outcomes, o)
	}
	a.held = nil
	_, err := a.s.Complete(ctx, outcomes)
	return err
}

func (a *actor) replay(ctx context.Context) error {
	r := replay.Request{ID: uuid.New(), Endpoint: endpoint, Selector: replay.Selector{States: []event.State{event.StateDead, event.StateDone}}, Limit: 5}
	if err := a.s.PlanReplay(ctx, r); err != nil && !errors.Is(err, replay.ErrUnknownEndpoint) {
		return err
	}
	_, _, err := a.s.RunReplay(ctx, r.ID, nil, 1+a.random.IntN(5))
	return err
}

// expire ends the time of some dead letters and purges them.
func (a *actor) expire(ctx context.Context) error {
	if a.random.IntN(3) > 0 {
		return nil
	}
	if _, err := a.s.pool.Exec(ctx, "UPDATE dead_letter SET expires_at = now() WHERE random() < 0.3"); err != nil {
		return err
	}
	return a.s.purge(ctx, &Maintained{})
}

var errRollBack = errors.New("roll back")

// rollBack changes much, and takes it back.
func (a *actor) rollBack(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, a.s.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			"INSERT INTO delivery SELECT gen_random_uuid(), id, 1, 0, 0, 0, now(), now(), 'pending' FROM destination",
			"DELETE FROM delivery WHERE ctid = ANY (ARRAY(SELECT ctid FROM delivery ORDER BY event_id LIMIT 3 FOR UPDATE SKIP LOCKED))",
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return errRollBack
	})
	if errors.Is(err, errRollBack) {
		return nil
	}
	return err
}

func (a *actor) fold(ctx context.Context) error {
	_, err := a.s.pool.Exec(ctx, sqlFoldTally)
	return err
}

// The sums are always what counting would say, whatever happened in which
// order at the same time as what.
func TestCountsEqualCounting(t *testing.T) {
	const actors, rounds, steps = 4, 3, 40
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			url := migrated(t)
			s := openStore(t, url)
			all := make([]*actor, actors)
			for i := range all {
				all[i] = &actor{s: openStore(t, url), random: rand.New(rand.NewPCG(seed, uint64(i)))}
			}
			for round := range rounds {
				errs := make([]error, actors)
				parallel(actors, func(i int) {
					for range steps {
						if errs[i] = all[i].act(t.Context()); errs[i] != nil {
							return
						}
					}
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				expected := brute(t, s, lanes...)
				same(t, fmt.Sprintf("counts after round %d", round), expected, withoutAge(counts(t, s, lanes...)))
				same(t, fmt.Sprintf("dead by reason after round %d", round), bruteByReason(t, s), byReason(t, s))
				maintain(t, s)
				same(t, "counts after folding", brute(t, s, lanes...), withoutAge(counts(t, s, lanes...)))
				same(t, "dead by reason after folding", bruteByReason(t, s), byReason(t, s))
				t.Logf("%+v", expected)
			}
			if n := value[int](t, s, "SELECT count(*)::int FROM settled WHERE run > 1"); n == 0 {
				t.Error("no replayed run was settled: the actors do too little")
			}
		})
	}
}
