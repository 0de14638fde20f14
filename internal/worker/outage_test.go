package worker

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

func TestDatabaseIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	server := testenv.Server(t, nil)
	r, sink := newRigAt(t, server.URL()), testenv.NewSink(t)
	sink.Handle(testenv.After(10*time.Millisecond, testenv.Status(http.StatusOK)))
	const events = 300
	ids := r.enqueue(events, 100, "a")
	c := config(destination("a", sink.URL()))
	c.Endpoints[0].LeaseSeconds = 4 // what is claimed in the moment of the crash waits so long
	c.Endpoints[0].Destinations[0].HTTP.TimeoutSeconds = 1
	w := r.worker(c)
	for round := range 2 {
		w.waitForMetric(float64(60*(round+1)), "ackrail_deliveries_total", "outcome", "done")
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, patience, func() error {
			if w.logs.count("Claiming failed")+w.logs.count("Recording outcomes failed") < 3*(round+1) {
				return errors.New("the worker has not noticed")
			}
			return nil
		})
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.waitForStates("a", map[event.State]int{event.StateDone: events})
	effects := sink.Processed()
	for _, id := range ids {
		if effects[id.String()] == 0 {
			t.Errorf("event %s had no effect", id)
		}
	}
	same(t, "effects", events, len(effects))
	t.Logf("%d requests for %d events", len(sink.Requests()), events)
}

// What cannot be recorded must not be sent again and again, while new
// deliveries join it.
func TestNothingIsClaimedWhileOutcomesCannotBeRecorded(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	const events = 40
	r.enqueue(events, 10, "a")
	r.execute("ALTER TABLE settled RENAME TO lost") // which claims do not need
	w := r.worker(config(destination("a", sink.URL(), concurrency(1))))
	w.waitForLog(2, "Recording outcomes failed")
	sent := len(sink.Requests())
	if sent == events {
		t.Fatal("everything was sent before the first outcome was refused")
	}
	w.waitForLog(5, "Recording outcomes failed")
	// One claim may have been under way when the first outcome was refused.
	if got := len(sink.Requests()); got > sent+1 {
		t.Errorf("%d requests, %d before", got, sent)
	}

	r.execute("ALTER TABLE lost RENAME TO settled")
	r.waitForStates("a", map[event.State]int{event.StateDone: events})
	same(t, "requests", events, len(sink.Requests()))
	same(t, "fenced", map[string]float64{}, w.fenced())
}

// Outcomes wait for the database with pauses that grow, and are all recorded
// when it is back.
func TestRecorderDoesNotSpin(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	stage := newStage(t, sink)
	proxy := testenv.NewProxy(t, r.url)
	r.enqueue(2, 10, "a")
	w := r.worker(config(destination("a", sink.URL())), r.by(proxy.URL()), poll(never))
	first, second := stage.next(), stage.next()
	proxy.Refuse()
	proxy.Cut()
	start := time.Now()
	first.answer(http.StatusOK)
	second.answer(http.StatusOK)
	const tries = 6
	w.waitForLog(tries, "Recording outcomes failed")
	// Five pauses: 50, 100, 200, 400 and 800 ms, a quarter off at most. Two
	// outcomes may be two batches; they are written one after the other.
	if took, least := time.Since(start), 1550*time.Millisecond*3/4; took < least {
		t.Errorf("%d tries within %s, want at least %s", tries, took, least)
	}
	proxy.Accept()
	r.waitForStates("a", map[event.State]int{event.StateDone: 2})
	same(t, "requests", 2, len(sink.Requests()))
	same(t, "fenced", map[string]float64{}, w.fenced())
}

// An outcome that was recorded although its answer was lost is not mistaken
// for one that was fenced off.
func TestOutcomeWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	stage := newStage(t, sink)
	proxy := testenv.NewProxy(t, r.url)
	id := r.enqueue(1, 10, "a")[0]
	w := r.worker(config(destination("a", sink.URL())), r.by(proxy.URL()), poll(never))
	visit := stage.next()
	lost := proxy.OnReply(string(id[:]), testenv.Cut) // the outcome's token
	visit.answer(http.StatusOK)
	receive(t, "the answer", lost)
	w.waitForLog(1, "Outcome was recorded before the connection broke, or the delivery has another owner")
	r.waitForStates("a", map[event.State]int{event.StateDone: 1})
	same(t, "fenced", map[string]float64{}, w.fenced())
}

// bogus is an outcome of a delivery that does not exist.
func bogus() store.Outcome {
	c := &store.Claim{}
	c.Token.Delivery.Event, c.Token.Delivery.Run, c.Token.Attempt = uuid.New(), 1, 1
	return store.Outcome{Claim: c, Verdict: event.VerdictDone}
}

func TestRecorderBacklog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.prepare(config(destination("a", "http://unused")))
	relieved := make(chan struct{}, 10)
	w.recorder.relieved = func() { relieved <- struct{}{} }
	for range recordBacklog - 1 {
		w.recorder.record(bogus())
	}
	same(t, "behind before the last one", false, w.recorder.behind())
	w.recorder.record(bogus())
	w.recorder.record(bogus())
	same(t, "behind", true, w.recorder.behind())
	again, err := w.claim(t.Context(), t.Context(), lookAll)
	if again || err != nil {
		t.Errorf("claimed: %v, %v", again, err)
	}
	same(t, "claims", 0, w.metric("ackrail_claim_deliveries"))
	same(t, "relieved too early", 0, len(relieved))

	w.recorder.close()
	w.recorder.run(t.Context())
	same(t, "behind at the end", false, w.recorder.behind())
	same(t, "relieved", 1, len(relieved))
	same(t, "fenced", map[string]float64{"done": recordBacklog + 1}, w.fenced())
}

// listener returns the session that a worker listens with.
func (r *rig) listener() (pid int, err error) {
	err = r.pool.QueryRow(r.t.Context(), `SELECT pid FROM pg_stat_activity
		WHERE application_name = left($1, 63) AND query LIKE 'LISTEN %' AND state = 'idle'`, "worker of "+r.t.Name()).Scan(&pid)
	return pid, err
}

func TestListenerComesBack(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	w := r.worker(config(destination("a", sink.URL())), poll(never))
	const atStart, whenListening = 1, 1
	w.waitForMetric(atStart+whenListening, "ackrail_claim_deliveries")
	first, err := r.listener()
	if err != nil {
		t.Fatal(err)
	}
	r.execute("SELECT pg_terminate_backend($1)", first)
	w.waitForMetric(atStart+2*whenListening, "ackrail_claim_deliveries")
	second, err := r.listener()
	if err != nil || second == first {
		t.Fatalf("listener %d, %v, was %d", second, err, first)
	}
	r.enqueue(1, 10, "a")
	same(t, "claims", atStart+2*whenListening, w.metric("ackrail_claim_deliveries"))
	r.wake()
	r.waitForStates("a", map[event.State]int{event.StateDone: 1})
}

// Behind a pooler in transaction mode a worker hears no notifications, and
// everything else works.
func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	bouncer := testenv.PgBouncer(t, r.url)
	w := r.worker(config(destination("a", sink.URL())), r.by(bouncer), poll(100*time.Millisecond))
	w.waitForMetric(3, "ackrail_claim_deliveries")
	r.enqueue(50, 1000, "a")
	r.waitForStates("a", map[event.State]int{event.StateDone: 50})
	sink.Handle(testenv.Status(http.StatusInternalServerError))
	r.enqueue(5, 1000, "a")
	r.waitForStates("a", map[event.State]int{event.StateDone: 50, event.StateFailed: 5})
	sink.Handle(testenv.Status(http.StatusOK))
	r.due()
	r.waitForStates("a", map[event.State]int{event.StateDone: 55})
	same(t, "requests", 60, len(sink.Requests()))
	if n := w.logs.count("Maintaining the database failed"); n > 0 {
		t.Errorf("housekeeping failed %d times", n)
	}
}

// A worker that starts before the database is there waits for it.
func TestDatabaseIsLate(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	proxy := testenv.NewProxy(t, r.url)
	proxy.Refuse()
	r.enqueue(3, 10, "a")
	w := r.worker(config(destination("a", sink.URL())), r.by(proxy.URL()), poll(never))
	w.waitForLog(2, "Claiming failed")
	proxy.Accept()
	testenv.Eventually(t, patience, func() error {
		if n := len(sink.Requests()); n != 3 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	r.waitForStates("a", map[event.State]int{event.StateDone: 3})
}
