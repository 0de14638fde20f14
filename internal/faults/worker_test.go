package faults

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"syscall"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

var _ = Describe("the worker", func() {
	row("worker killed before it sent",
		"the reply to a claim was held back and the worker killed; another one delivered when the lease was over",
		func(w *world) {
			id := w.oneEvent()
			held := make(chan struct{})
			w.toWorker.Hook(func(c testenv.Chunk) testenv.Action {
				// The claim is committed, but the worker never learns of it.
				if c.Direction == testenv.ToClient && bytes.Contains(c.Data, []byte(`{"key":`)) {
					close(held)
					w.toWorker.Hook(nil)
					return testenv.Hold
				}
				return testenv.Forward
			})
			first := w.worker()
			w.await(held, "the reply to a claim")
			if n := w.killWorker(first); n != 1 {
				w.t.Errorf("it held %d deliveries, want 1", n)
			}
			w.worker()
			w.takenOver(id)
			w.effects(id, 1)
		})

	row("worker killed after it sent",
		"the worker was cut off from the database before it could record a success, and killed; another one delivered the event once more under the same id when the lease was over",
		func(w *world) {
			id := w.oneEvent()
			w.answer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				// From here on the worker cannot tell the database anything.
				w.toWorker.Freeze(testenv.ToServer)
				rw.WriteHeader(http.StatusNoContent)
			}))
			first := w.worker()
			w.until(func() error { return atLeast(len(w.sink.Processed()), 1, "events at the destination") })
			w.answer(testenv.Status(http.StatusNoContent))
			if n := w.killWorker(first); n != 1 {
				w.t.Errorf("it held %d deliveries, want 1", n)
			}
			w.toWorker.Thaw()
			w.worker()
			w.takenOver(id)
			w.effects(id, 2)
		}, short)

	row("worker killed under load",
		"SIGKILL to the worker under the load of 32 senders, eight times: four while it waited for answers, four with its outcomes held back; another one each time",
		func(w *world) {
			_, worker := w.run(setting{})
			l := w.load(32)
			for i := range 8 {
				l.more(50)
				release := w.obstruct(i%2 == 0)
				w.holding(8)
				w.killWorker(worker)
				release()
				worker = w.worker()
			}
			l.more(50)
		})

	row("worker stopped past its lease",
		"SIGSTOP to the worker with eight requests under way; another one delivered when the leases were over; SIGCONT, and what the first one then wrote was refused",
		func(w *world) {
			const events = 8
			w.begin(setting{endpoint: func(e *pipeline.Endpoint) {
				e.Destinations[0].HTTP.TimeoutSeconds, e.LeaseSeconds = 3, 8
			}})
			blocked, release := testenv.Block(testenv.Status(http.StatusNoContent))
			w.answer(blocked)
			w.ingress()
			s := rig.NewSender(w.t, events)
			var ids []string
			for range events {
				ids = append(ids, w.accept(s, uuid.NewString()))
			}
			first := w.worker()
			w.until(func() error { return atLeast(len(w.sink.Requests()), events, "requests at the destination") })
			first.Signal(syscall.SIGSTOP)
			w.did("worker stopped with %d requests under way", events)
			w.answer(testenv.Status(http.StatusNoContent))
			w.worker()
			for _, id := range ids {
				w.takenOver(id)
			}
			release()
			first.Signal(syscall.SIGCONT)
			w.did("worker continued")
			// Whichever comes first of an outcome and a heartbeat is refused.
			w.result.LateWrites += events
			w.until(func() error { return w.fenced(first, events) })
		}, short)

	row("second SIGTERM to the worker",
		"SIGTERM twice with a request under way: it ended at once, and another one delivered when the lease was over",
		func(w *world) {
			w.begin(setting{endpoint: func(e *pipeline.Endpoint) {
				e.Destinations[0].HTTP.TimeoutSeconds, e.LeaseSeconds = 10, 15
			}})
			blocked, release := testenv.Block(testenv.Status(http.StatusNoContent))
			DeferCleanup(release)
			w.answer(blocked)
			w.ingress()
			id := w.accept(rig.NewSender(w.t, 1), uuid.NewString())
			first := w.worker()
			w.until(func() error { return atLeast(len(w.sink.Requests()), 1, "requests at the destination") })
			first.Signal(syscall.SIGTERM)
			first.Unready()
			first.Signal(syscall.SIGTERM)
			w.did("SIGTERM twice to the worker")
			w.await(first.Ended(), "the end of the worker")
			w.answer(testenv.Status(http.StatusNoContent))
			w.worker()
			w.takenOver(id)
			w.effects(id, 1)
		})
})

// oneEvent has one event accepted. No worker runs.
func (w *world) oneEvent() (id string) {
	w.t.Helper()
	w.begin(setting{})
	w.ingress()
	return w.accept(rig.NewSender(w.t, 1), uuid.NewString())
}

// takenOver waits until an event is delivered, which one worker has begun and
// another must have finished.
func (w *world) takenOver(id string) {
	w.t.Helper()
	w.until(func() error {
		if got := rig.States(w.Event(id)); !slices.Equal(got, []event.State{event.StateDone}) {
			return fmt.Errorf("%s is in state %v", id, got)
		}
		return nil
	})
	record := w.Event(id)
	if got := rig.Results(record); !slices.Equal(got, []string{"unknown", "done"}) {
		w.t.Errorf("the attempts of %s ended %v, want one with unknown outcome and one done", id, got)
	} else if a := record.Attempts; a[0].Worker == a[1].Worker {
		w.t.Errorf("both attempts of %s are of worker %s", id, a[0].Worker)
	}
}

// effects checks how often the destination took an event. Once is one effect;
// more often it is one effect still, for who compares ids.
func (w *world) effects(id string, want int) {
	w.t.Helper()
	if got := w.sink.Processed()[id]; got != want {
		w.t.Errorf("the destination took %s %d times, want %d", id, got, want)
	}
}

// obstruct keeps deliveries in the worker's hands until release is called:
// because the destination does not answer, or because their outcomes do not
// arrive in the database.
func (w *world) obstruct(destination bool) (release func()) {
	if !destination {
		return w.holdOutcomes()
	}
	blocked, unblock := testenv.Block(testenv.Status(http.StatusNoContent))
	w.answer(blocked)
	return func() {
		w.answer(testenv.Status(http.StatusNoContent))
		unblock()
	}
}

// holdOutcomes keeps the statements with which the worker records outcomes
// from arriving, until release is called.
func (w *world) holdOutcomes() (release func()) {
	w.toWorker.Hook(func(c testenv.Chunk) testenv.Action {
		if c.Direction == testenv.ToServer && bytes.Contains(c.Data, []byte("settled_now AS")) {
			return testenv.Hold
		}
		return testenv.Forward
	})
	return func() {
		w.toWorker.Hook(nil)
		w.toWorker.Release()
	}
}

// fenced reports an error until a worker has had a number of writes refused.
func (w *world) fenced(p *rig.Pod, want int) error {
	sum := 0
	for _, write := range []string{"done", "failed", "dead", "released", "renewed"} {
		n, err := p.Metric(fmt.Sprintf("ackrail_fenced_total{write=%q}", write))
		if err != nil {
			return err
		}
		sum += int(n)
	}
	return atLeast(sum, want, "refused writes")
}

func atLeast(got, want int, what string) error {
	if got < want {
		return fmt.Errorf("%d %s, want %d", got, what, want)
	}
	return nil
}
