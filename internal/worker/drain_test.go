package worker

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/testenv"
)

func TestDrainFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	stage := newStage(t, sink)
	r.enqueue(3, 10, "a")
	w := r.worker(config(destination("a", sink.URL(), concurrency(1))), drain(patience))
	visit := stage.next()
	w.stop()
	w.waitForLog(1, "Worker draining")
	r.wake()
	visit.answer(http.StatusOK)
	w.stopAndWait()
	r.waitForStates("a", map[event.State]int{event.StateDone: 1, event.StatePending: 2})
	same(t, "requests", 1, len(sink.Requests()))
	same(t, "attempts", 1, value[int](r, "SELECT count(*) FROM attempt"))
	same(t, "logged", 1, w.logs.count("Worker stopped"))
}

func TestDrainCutsOffWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	stage := newStage(t, sink)
	id := r.enqueue(1, 10, "a")[0]
	const timeout = 200 * time.Millisecond
	w := r.worker(config(destination("a", sink.URL())), drain(timeout))
	visit := stage.next()
	if took := w.stopAndWait(); took < timeout {
		t.Errorf("stopped after %s, want at least %s", took, timeout)
	}
	receive(t, "the end of the request", visit.gone)
	d, attempts := r.show(id)
	same(t, "state", event.StateFailed, d.State)
	same(t, "attempts that count", 1, d.Attempts)
	same(t, "attempts", []string{"failed"}, results(attempts))
	same(t, "class", event.ErrorCanceled, attempts[0].ErrorClass)
	if value[bool](r, "SELECT next_at > now() FROM delivery") {
		t.Error("it is not due at once")
	}
	same(t, "counted", 1, w.metric("ackrail_deliveries_total", "outcome", "failed", "reason", "Canceled"))
	same(t, "in flight", 0, w.metric("ackrail_deliveries_in_flight"))

	// Another worker makes the next attempt at once.
	r.worker(config(destination("a", sink.URL())))
	stage.next().answer(http.StatusOK)
	r.waitForStates("a", map[event.State]int{event.StateDone: 1})
}

// The request may have arrived, so the attempt counts: there is none left.
func TestDrainCutsOffTheLastAttempt(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	stage := newStage(t, sink)
	id := r.enqueue(1, 10, "a")[0]
	w := r.worker(config(destination("a", sink.URL(), maxAttempts(1))))
	stage.next()
	w.stopAndWait()
	d, _ := r.show(id)
	same(t, "state", event.StateDead, d.State)
	same(t, "reason", event.ReasonAttemptsExhausted, d.Reason)
	same(t, "class", event.ErrorCanceled, d.ErrorClass)
}

// A claim that was on its way when the worker was told to stop is handed
// back: not sent, and no attempt is used up.
func TestDrainHandsBackWhatIsNotSent(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	proxy := testenv.NewProxy(t, r.url)
	ids := r.enqueue(5, 10, "a")
	self := uuid.NewString()
	claimed := proxy.OnReply(self, testenv.Hold)
	w := r.worker(config(destination("a", sink.URL(), maxAttempts(1))), r.by(proxy.URL()), name(self), drain(patience))
	receive(t, "the claim", claimed)
	r.waitForStates("a", map[event.State]int{event.StateClaimed: 5})
	w.stop()
	proxy.Release()
	w.stopAndWait()
	r.waitForStates("a", map[event.State]int{event.StatePending: 5})
	for _, id := range ids {
		d, attempts := r.show(id)
		same(t, "attempts that count", 0, d.Attempts)
		same(t, "attempts", []string{"released"}, results(attempts))
	}
	same(t, "requests", 0, len(sink.Requests()))
	same(t, "counted", 5, w.metric("ackrail_deliveries_total", "outcome", "released"))
	same(t, "exchanges", 0, w.metric("ackrail_delivery_exchange_seconds"))

	r.worker(config(destination("a", sink.URL(), maxAttempts(1))))
	r.waitForStates("a", map[event.State]int{event.StateDone: 5})
}

// With a database that does not answer, a worker returns all the same, and
// what it could not record is delivered again.
func TestDrainWhileTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	stage := newStage(t, sink)
	proxy := testenv.NewProxy(t, r.url)
	id := r.enqueue(1, 10, "a")[0]
	c := config(destination("a", sink.URL()))
	w := r.worker(c, r.by(proxy.URL()))
	visit := stage.next()
	proxy.Freeze()
	visit.answer(http.StatusOK)
	w.waitForMetric(1, "ackrail_deliveries_total", "outcome", "done")
	if took, most := w.stopAndWait(), statementTimeout+flushTimeout+5*time.Second; took > most {
		t.Errorf("stopped after %s, want at most %s", took, most)
	}
	same(t, "logged", 1, w.logs.count("Outcomes were not recorded and will be delivered again"))
	proxy.Cut()
	proxy.Thaw()
	r.waitForStates("a", map[event.State]int{event.StateClaimed: 1})

	r.lapse()
	r.worker(c)
	stage.next().answer(http.StatusOK)
	r.waitForStates("a", map[event.State]int{event.StateDone: 1})
	_, attempts := r.show(id)
	same(t, "attempts", []string{"unknown", "done"}, results(attempts))
}

// A worker that has nothing to do stops without waiting for anything.
func TestIdleWorkerStopsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(config(destination("a", "http://unused")), poll(never), drain(never))
	w.waitForMetric(2, "ackrail_claim_deliveries")
	w.stopAndWait()
}
