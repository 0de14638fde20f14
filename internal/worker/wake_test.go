package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/testenv"
)

// listening waits until a worker that does not poll has looked when it
// started and when it began to listen: from then on it looks when told so.
func (w *running) listening() (claims float64) {
	w.t.Helper()
	w.waitForMetric(2, "ackrail_claim_deliveries")
	return w.metric("ackrail_claim_deliveries")
}

func TestNotificationWakes(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	w := r.worker(config(destination("a", sink.URL())), poll(never))
	for i := range 3 {
		claims := w.listening()
		r.enqueue(1, 10, "a")
		same(t, "claims before the notification", claims, w.metric("ackrail_claim_deliveries"))
		start := time.Now()
		r.wake()
		r.waitForStates("a", map[event.State]int{event.StateDone: i + 1})
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("delivered %s after the notification", took)
		}
	}
}

func TestPollFindsWhatNoNotificationToldOf(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	w := r.worker(config(destination("a", sink.URL())), poll(200*time.Millisecond))
	w.waitForMetric(3, "ackrail_claim_deliveries")
	r.enqueue(1, 10, "a")
	r.waitForStates("a", map[event.State]int{event.StateDone: 1})
}

// More is due than one claim takes: nobody has to poll for the rest.
func TestFreeSlotsAreUsedAtOnce(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	const events = 60
	r.enqueue(events, 10, "a", "b")
	r.worker(config(destination("a", sink.URL(), concurrency(1)), destination("b", sink.URL(), concurrency(3))), poll(never))
	r.waitForStates("a", map[event.State]int{event.StateDone: events})
	r.waitForStates("b", map[event.State]int{event.StateDone: events})
}

// A delivery whose transaction commits late is older than what was seen
// already. A look that begins there misses it, a sweep finds it, and all that
// is as old.
func TestSweepFindsWhatCommittedLate(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	w := r.prepare(config(destination("a", sink.URL(), concurrency(2))), poll(never))
	w.lanes.sweepInterval = never
	w.start(t)
	w.listening()
	r.enqueue(1, 10, "a")
	r.wake()
	r.waitForStates("a", map[event.State]int{event.StateDone: 1})

	const late = 9 // more than a claim takes
	claims := w.listening()
	r.enqueue(late, 10, "a")
	r.execute("UPDATE delivery SET next_at = now() - interval '1 minute'")
	r.wake()
	w.waitForMetric(claims+1, "ackrail_claim_deliveries")
	r.waitForStates("a", map[event.State]int{event.StateDone: 1, event.StatePending: late})

	w.lanes.mu.Lock()
	w.lanes.sweepInterval = 0
	w.lanes.mu.Unlock()
	r.wake()
	w.waitForMetric(claims+2, "ackrail_claim_deliveries")
	w.lanes.mu.Lock()
	w.lanes.sweepInterval = never // the rest of them must not need another sweep
	w.lanes.mu.Unlock()
	r.waitForStates("a", map[event.State]int{event.StateDone: 1 + late})
}

// An idle worker costs the database little, however many destinations there
// are.
func TestIdleWorkerIsQuiet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all, _ := many(50, "http://unused")
	statements := newWire(t, r.url)
	w := r.worker(config(all...), r.by(statements.url()), poll(0))
	const housekeeping = "Deliveries by destination and state" // the last statement of it
	testenv.Eventually(t, patience, func() error {
		if claims := w.metric("ackrail_claim_deliveries"); claims < 3 || statements.count(housekeeping) == 0 {
			return fmt.Errorf("%v claims", claims)
		}
		return nil
	})
	start, before, claims := time.Now(), statements.count(""), w.metric("ackrail_claim_deliveries")
	w.waitForMetric(claims+5, "ackrail_claim_deliveries")
	n, took := statements.count("")-before, time.Since(start)
	t.Logf("%d statements in %s", n, took.Round(time.Millisecond))
	if rate := float64(n) / took.Seconds(); rate > 2.5 {
		t.Errorf("%.1f statements a second", rate)
	}
}
