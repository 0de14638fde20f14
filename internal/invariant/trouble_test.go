package invariant_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// What faults do to a system that is right is no violation: claims handed back, exchanges cut off, outcomes and whole
// attempts that nobody saw, connections that break, replays that overlap, a destination that came later.
func TestTroubleIsNoViolation(t *testing.T) {
	t.Parallel()
	r := newRig(t, pieces{})
	for i := range 5 {
		r.send(github, fmt.Sprintf("plain-%d", i), plain, secret)
	}
	r.send(github, "refused", refused, secret)
	r.send(github, "abandoned", abandoned, secret)
	r.send(github, "vanishing", vanishing, secret)

	r.stopInClaim()
	r.cutOff()
	r.vanish()
	r.overlap()
	later := r.addDestination()

	v := r.check(later)
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	t.Log(v)
	if v.Released < 16 {
		t.Errorf("%d attempts were released, want all that the first claim took, 16", v.Released)
	}
	// Two attempts to each of two destinations.
	if v.Unknown < 4 {
		t.Errorf("%d attempts have an unknown outcome, want at least 4", v.Unknown)
	}
	// Each of them got it twice, since nobody knew of the first time.
	if v.Duplicates < 2 || v.Unexplained > 0 {
		t.Errorf("%d duplicates, %d unexplained: want at least 2, all of them explained", v.Duplicates, v.Unexplained)
	}
}

// stopInClaim has a worker told to stop while it claims: it hands everything back.
func (r *rig) stopInClaim() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	f := &faulty{Store: r.store, r: r}
	f.claim = func(ctx context.Context, worker string, wants []store.Want) ([]*store.Claim, error) {
		claims, err := r.store.Claim(ctx, worker, wants)
		cancel()
		return claims, err
	}
	r.workers = f
	r.history.Did("a worker was told to stop in its first claim")
	r.begin(ctx, "worker-stopped", patience)()
}

// cutOff has a worker stop whose exchange goes on for longer than it waits.
func (r *rig) cutOff() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	f := &faulty{Store: r.store, r: r, complete: r.forget(func(*store.Outcome) bool { return true })}
	r.workers = f
	wait := r.begin(ctx, "worker-cut", 50*time.Millisecond)
	r.sink.awaitAbandoned()
	vanishing := r.vanishing().String()
	testenv.Eventually(r.t, patience, func() error {
		if n := r.sink.Processed()[vanishing]; n < 2 {
			return fmt.Errorf("%d of 2 destinations got what vanishes", n)
		}
		return nil
	})
	r.history.Did("a worker had to stop")
	cancel()
	wait()
}

// forget is a Complete that drops the outcomes of what vanishes, as a worker does that dies before it writes them.
func (r *rig) forget(which func(*store.Outcome) bool) func(context.Context, []store.Outcome) ([]bool, error) {
	id := r.vanishing()
	return func(ctx context.Context, outcomes []store.Outcome) ([]bool, error) {
		took := make([]bool, len(outcomes))
		for i := range outcomes {
			if o := &outcomes[i]; o.Claim.Token.Delivery.Event == id && which(o) {
				took[i] = true
				continue
			}
			one, err := r.workers.(*faulty).Store.Complete(ctx, outcomes[i:i+1])
			if err != nil {
				return nil, err
			}
			took[i] = one[0]
		}
		return took, nil
	}
}

// vanishing is the event that vanishes.
func (r *rig) vanishing() (id event.ID) {
	r.t.Helper()
	err := r.pool.QueryRow(r.t.Context(), "SELECT id FROM event WHERE idempotency_key = 'vanishing'").Scan((*[16]byte)(&id))
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// vanish has every worker die that tries an event, and the first that finds no attempt left too.
func (r *rig) vanish() {
	r.t.Helper()
	var exhausted atomic.Int32
	f := &faulty{Store: r.store, r: r}
	f.complete = r.forget(func(o *store.Outcome) bool { return o.Reason != event.ReasonOutcomeUnknown || exhausted.Add(1) <= 2 })
	r.workers = f
	stop := r.work()
	defer stop()
	r.history.Did("leases of what vanishes ended, again and again")
	r.lapse()
}

// lapse ends all leases of what vanishes, or waits for a destination that came later, until nothing is open.
func (r *rig) lapse() {
	r.t.Helper()
	testenv.Eventually(r.t, patience, func() error {
		var open int
		_, err := r.pool.Exec(r.t.Context(), `UPDATE delivery SET next_at = now() WHERE state = 'claimed' AND (
			event_id = (SELECT id FROM event WHERE idempotency_key = 'vanishing')
			OR destination_id = (SELECT id FROM destination WHERE name = 'later'))`)
		if err == nil {
			err = r.pool.QueryRow(r.t.Context(), "SELECT count(*) FROM delivery").Scan(&open)
		}
		if err == nil && open > 0 {
			err = fmt.Errorf("%d deliveries are open", open)
		}
		return err
	})
}

// overlap has two replays take the same dead letters.
func (r *rig) overlap() {
	r.t.Helper()
	r.workers = r.store
	r.sink.fix()
	stop := r.work()
	defer stop()
	s := replay.Selector{States: []event.State{event.StateDead}}
	first, second := uuid.New(), uuid.New()
	for id, name := range map[uuid.UUID]string{first: "first", second: "second"} {
		err := r.store.PlanReplay(r.t.Context(), replay.Request{
			ID: id, Namespace: github.Namespace, Name: name, Endpoint: github, Selector: s, Spec: name,
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.replay(first, "first", s)
	r.replay(second, "second", s)
	r.drained()
}

// addDestination adds a destination and replays to it what came before, while connections break.
func (r *rig) addDestination() event.DestinationRef {
	r.t.Helper()
	later := event.DestinationRef{Endpoint: github, Name: "later"}
	d := r.config.Endpoints[0].Destinations[0]
	d.Name, d.HTTP = later.Name, pipeline.HTTP{URL: r.sink.url(github, later.Name), TimeoutSeconds: d.HTTP.TimeoutSeconds}
	r.config.Endpoints[0].Destinations = append(r.config.Endpoints[0].Destinations, d)
	if err := r.store.Register(r.t.Context(), []event.DestinationRef{later}); err != nil {
		r.t.Fatal(err)
	}
	proxy := testenv.NewProxy(r.t, r.url)
	through, err := store.Open(proxy.URL(), store.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer through.Close()
	r.workers = through
	stop := r.work()
	defer stop()
	r.replay(uuid.New(), "missing", replay.Selector{States: []event.State{replay.StateMissing}, Destinations: []string{later.Name}})
	for range 3 {
		r.history.Did("all connections to the database were cut")
		proxy.Cut()
		r.none("SELECT count(*) FROM delivery WHERE state <> 'claimed' AND next_at <= now()")
	}
	r.lapse()
	return later
}
