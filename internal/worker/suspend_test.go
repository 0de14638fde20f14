package worker

import (
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// A suspended endpoint's deliveries stay as they are, beside one that is not
// suspended, and are made when the suspension is over.
func TestSuspendedEndpointsWait(t *testing.T) {
	t.Parallel()
	for _, suspend := range []pipeline.Suspend{pipeline.SuspendDeliveries, pipeline.SuspendAll} {
		t.Run(string(suspend), func(t *testing.T) {
			t.Parallel()
			r, sink := newRig(t), testenv.NewSink(t)
			c := config(destination("a", sink.URL()))
			r.enqueue(2, 10, "a")
			r.vanish(c) // both are claimed, with leases that are over
			r.enqueue(1, 10, "a")
			before := r.contents()

			c.Endpoints[0].Suspend = suspend
			other := c.Endpoints[0]
			other.Name, other.Suspend, other.Destinations = "gitlab", "", []pipeline.Destination{destination("b", sink.URL())}
			c.Endpoints = append(c.Endpoints, other)

			r.execute("UPDATE chore SET due_at = now()")
			w := r.worker(c)
			r.enqueueFor(other.Ref(), "b")
			r.waitForStates("b", map[event.State]int{event.StateDone: 1})
			w.waitForMetric(2, "ackrail_queue_deliveries", "destination", "a", "state", "claimed")
			w.waitForLog(1, "Partitions changed")
			w.stopAndWait()

			same(t, "requests", 1, len(sink.Requests()))
			same(t, "deliveries", before["delivery"], r.contents()["delivery"])
			c.Endpoints[0].Suspend = pipeline.SuspendNone
			r.worker(c)
			r.waitForStates("a", map[event.State]int{event.StateDone: 3})
		})
	}
}

// enqueueFor accepts an event of another endpoint than github.
func (r *rig) enqueueFor(endpoint event.EndpointRef, destinations ...string) {
	r.t.Helper()
	id, err := event.NewID()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.enqueuer.Enqueue(r.t.Context(), store.Submission{
		Event:        &event.Event{ID: id, Endpoint: endpoint, Key: id.String(), Body: []byte("x")},
		Destinations: destinations, KeepEvent: time.Hour, KeepKey: time.Hour,
	}); err != nil {
		r.t.Fatal(err)
	}
}
