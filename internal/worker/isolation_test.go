package worker

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/testenv"
)

// One destination hangs with all its slots, one refuses connections, one
// fails: the others take their deliveries meanwhile.
func TestDestinationsDoNotHoldUpEachOther(t *testing.T) {
	t.Parallel()
	r, sink, hanging, failing := newRig(t), testenv.NewSink(t), testenv.NewSink(t), testenv.NewSink(t)
	stage := newStage(t, hanging)
	failing.Handle(testenv.Status(http.StatusInternalServerError))
	port, err := postgres.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	const events = 40
	r.enqueue(events, 100, "hanging", "refusing", "failing", "one", "two")
	w := r.worker(config(
		destination("hanging", hanging.URL(), concurrency(2)),
		destination("refusing", fmt.Sprintf("http://127.0.0.1:%d", port)),
		destination("failing", failing.URL()),
		destination("one", sink.URL()),
		destination("two", sink.URL(), concurrency(1)),
	))
	first, second := stage.next(), stage.next()
	for _, name := range []string{"one", "two"} {
		r.waitForStates(name, map[event.State]int{event.StateDone: events})
	}
	for _, name := range []string{"refusing", "failing"} {
		r.waitForStates(name, map[event.State]int{event.StateFailed: events})
	}
	r.waitForStates("hanging", map[event.State]int{event.StateClaimed: 2, event.StatePending: events - 2})
	same(t, "in flight", 2, w.metric("ackrail_deliveries_in_flight", "destination", "hanging"))
	same(t, "refused", events, w.metric("ackrail_deliveries_total", "destination", "refusing", "reason", "ConnectionRefused"))

	hanging.Handle(testenv.Status(http.StatusOK))
	first.answer(http.StatusOK)
	second.answer(http.StatusOK)
	r.waitForStates("hanging", map[event.State]int{event.StateDone: events})
	if got := w.metric("ackrail_deliveries_in_flight"); got != 0 {
		t.Errorf("%v are in flight", got)
	}
}

// many returns destinations d0, d1, … and their names.
func many(n int, url string, change ...func(*pipeline.Destination)) (all []pipeline.Destination, names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("d%d", i))
		all = append(all, destination(names[i], url, change...))
	}
	return all, names
}

// One statement claims for all destinations.
func TestManyDestinationsShareOneClaim(t *testing.T) {
	t.Parallel()
	const destinations, events = 200, 2
	r, sink := newRig(t), testenv.NewSink(t)
	all, names := many(destinations, sink.URL())
	r.enqueue(events, 100, names...)
	statements := newWire(t, r.url)
	w := r.worker(config(all...), r.by(statements.url()), poll(never))
	testenv.Eventually(t, patience, func() error {
		if got := len(sink.Requests()); got != destinations*events {
			return fmt.Errorf("%d requests", got)
		}
		return nil
	})
	w.waitForMetric(destinations*events, "ackrail_deliveries_total", "outcome", "done")
	w.stopAndWait()
	claims := w.series("ackrail_claim_deliveries")[0].GetHistogram()
	same(t, "claimed", destinations*events, claims.GetSampleSum())
	// The first look takes two for each destination, which may be all that
	// there is or not, so a second one follows; and one when the listener is
	// there.
	if n := claims.GetSampleCount(); n > 3 {
		t.Errorf("%d claims", n)
	}
	same(t, "claim statements", int(claims.GetSampleCount()), statements.count("Claims what is due"))
	same(t, "open deliveries", 0, value[int](r, "SELECT count(*) FROM delivery"))
}

// Large bodies are held within bounds, which do not starve any destination.
func TestBodiesInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	const destinations, events, size = 4, 12, 100 << 10
	r, sink := newRig(t), testenv.NewSink(t)
	stage, release := testenv.Block(testenv.Status(http.StatusOK))
	sink.Handle(stage)
	all, names := many(destinations, sink.URL(), concurrency(64))
	r.enqueue(events, size, names...)
	w := r.prepare(config(all...))
	l := w.lanes
	l.laneBytes, l.totalBytes = 3*size, 8*size
	w.start(t)
	testenv.Eventually(t, patience, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		// Each destination may exceed a bound by the last one that it took.
		if l.bytes > l.totalBytes+destinations*size {
			t.Fatalf("%d bytes are held", l.bytes)
		}
		for _, n := range l.all {
			if n.bytes > l.laneBytes+size {
				t.Fatalf("%s holds %d bytes", n.ref.Name, n.bytes)
			}
			if l.hasRoom(n) {
				return fmt.Errorf("%s holds %d deliveries and has room", n.ref.Name, n.inFlight)
			}
		}
		return nil
	})
	release()
	for _, name := range names {
		r.waitForStates(name, map[event.State]int{event.StateDone: events})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	same(t, "bytes held at the end", 0, l.bytes)
}

// A destination that could not be asked while others held all the memory is
// asked as soon as there is some, whether or not anybody polls.
func TestMemoryThatBecomesFreeIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	const size = 100 << 10
	r, sink := newRig(t), testenv.NewSink(t)
	stage := newStage(t, sink)
	r.enqueue(1, size, "large")
	r.enqueue(1, size, "small")
	w := r.prepare(config(destination("large", sink.URL()), destination("small", sink.URL())), poll(never))
	w.lanes.totalBytes = 2 * size
	w.start(t)
	first, second := stage.next(), stage.next()
	if first.uri == "/small" {
		first, second = second, first
	}
	// The memory is used up when there is another one for a destination that
	// has a free slot, and everybody is told of it.
	r.enqueue(1, size, "small")
	r.wake()
	testenv.Eventually(t, patience, func() error {
		w.lanes.mu.Lock()
		defer w.lanes.mu.Unlock()
		if n := w.lanes.all[1]; !n.more || n.inFlight != 1 {
			return fmt.Errorf("%d in flight, more: %v", n.inFlight, n.more)
		}
		return nil
	})
	first.answer(http.StatusOK)
	stage.next().answer(http.StatusOK)
	second.answer(http.StatusOK)
	r.waitForStates("small", map[event.State]int{event.StateDone: 2})
	r.waitForStates("large", map[event.State]int{event.StateDone: 1})
}

// An outcome that waits to be recorded does not keep the event's body, which
// nobody counts any more.
func TestOutcomesKeepNoBodies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const size = 1000
	r.enqueue(1, size, "a")
	w := r.prepare(config(destination("a", "http://unused")))
	wants := w.lanes.wants(lookAll, time.Now())
	claims, err := r.store.Claim(t.Context(), "worker", wants)
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d deliveries, %v", len(claims), err)
	}
	w.lanes.admit(wants, claims, time.Now())
	same(t, "bytes held", size, w.lanes.bytes)
	h := &held{claim: claims[0], lane: w.lanes.all[0]}
	w.held.add(h)
	w.finish(h, released(h))
	same(t, "bytes held at the end", 0, w.lanes.bytes)
	same(t, "outcomes", 1, len(w.recorder.waiting))
	same(t, "bytes of the outcome", 0, len(w.recorder.waiting[0].Claim.Event.Body))
}
