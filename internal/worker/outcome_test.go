package worker

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/testenv"
)

func TestDone(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	before := time.Now()
	ids := r.enqueue(20, 10, "a")
	w := r.worker(config(destination("a", sink.URL())))
	r.waitForStates("a", map[event.State]int{event.StateDone: 20})
	for _, id := range ids {
		d, attempts := r.show(id)
		same(t, "attempts", []string{"done"}, results(attempts))
		same(t, "worker", "worker", attempts[0].Worker)
		same(t, "status", http.StatusNoContent, d.LastStatus)
		same(t, "effects", 1, sink.Processed()[id.String()])
	}
	same(t, "requests", 20, len(sink.Requests()))
	same(t, "deliveries counted", 20, w.metric("ackrail_deliveries_total", "outcome", "done", "reason", "", "destination", "a", "endpoint", "github", "namespace", "payments"))
	same(t, "all deliveries counted", 20, w.metric("ackrail_deliveries_total"))
	same(t, "in flight", 0, w.metric("ackrail_deliveries_in_flight"))
	same(t, "claimed", 20, w.series("ackrail_claim_deliveries")[0].GetHistogram().GetSampleSum())
	same(t, "fenced", map[string]float64{}, w.fenced())

	latency := w.series("ackrail_delivery_latency_seconds")[0].GetHistogram()
	if n, sum := latency.GetSampleCount(), latency.GetSampleSum(); n != 20 || sum <= 0 || sum > 20*time.Since(before).Seconds() {
		t.Errorf("%d latencies of together %v s", n, sum)
	}
	exchange := w.series("ackrail_delivery_exchange_seconds")[0].GetHistogram()
	if exchange.GetSampleCount() != 20 || exchange.GetSampleSum() > latency.GetSampleSum() {
		t.Errorf("%d exchanges took %v s, from acceptance to success %v s", exchange.GetSampleCount(), exchange.GetSampleSum(), latency.GetSampleSum())
	}
	same(t, "attempts counted", 20, w.series("ackrail_delivery_attempts")[0].GetHistogram().GetSampleSum())
}

// A destination that takes its time is not blamed on the queue, and a replay
// is not blamed on the pipeline: it does not count as latency.
func TestLatencyOfFirstRunsOnly(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	const slow = 300 * time.Millisecond
	sink.Handle(testenv.After(slow, testenv.Status(http.StatusOK)))
	r.enqueue(1, 10, "a")
	r.execute("UPDATE delivery SET run = 2")
	r.enqueue(1, 10, "a")
	w := r.worker(config(destination("a", sink.URL())))
	r.waitForStates("a", map[event.State]int{event.StateDone: 2})
	latency := w.series("ackrail_delivery_latency_seconds")[0].GetHistogram()
	if latency.GetSampleCount() != 1 || latency.GetSampleSum() < slow.Seconds() {
		t.Errorf("%d latencies of together %v s, want 1 of at least %s", latency.GetSampleCount(), latency.GetSampleSum(), slow)
	}
	same(t, "exchanges", 2, w.metric("ackrail_delivery_exchange_seconds"))
}

func TestFailedIsRetriedAsPolicyAndDestinationSay(t *testing.T) {
	t.Parallel()
	inAMinuteAndAHalf := func(h http.Header) {
		now := time.Now().UTC().Truncate(time.Second)
		h.Set("Date", now.Format(http.TimeFormat))
		h.Set("Retry-After", now.Add(90*time.Second).Format(http.TimeFormat))
	}
	for _, tc := range []struct {
		name     string
		status   int
		header   func(http.Header)
		min, max time.Duration // of the delay
	}{
		{"policy", 500, func(http.Header) {}, 60 * time.Second, 120 * time.Second},
		{"seconds", 503, func(h http.Header) { h.Set("Retry-After", "300") }, 300 * time.Second, 300 * time.Second},
		{"less than the policy", 429, func(h http.Header) { h.Set("Retry-After", "1") }, 60 * time.Second, 120 * time.Second},
		{"more than the policy", 503, func(h http.Header) { h.Set("Retry-After", "86400") }, time.Hour, time.Hour},
		{"date", 503, inAMinuteAndAHalf, 90 * time.Second, 120 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, sink := newRig(t), testenv.NewSink(t)
			sink.Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				tc.header(w.Header())
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte("not now"))
			}))
			id := r.enqueue(1, 10, "a")[0]
			w := r.worker(config(destination("a", sink.URL())))
			r.waitForStates("a", map[event.State]int{event.StateFailed: 1})
			delay := time.Duration(value[float64](r, `SELECT extract(epoch FROM d.next_at - o.ended_at)::float8
				FROM delivery d JOIN outcome o USING (event_id)`) * float64(time.Second)).Round(time.Millisecond)
			if delay < tc.min || delay > tc.max {
				t.Errorf("due again after %s, want between %s and %s", delay, tc.min, tc.max)
			}
			_, attempts := r.show(id)
			same(t, "attempts", []string{"failed"}, results(attempts))
			same(t, "status", tc.status, attempts[0].Status)
			same(t, "excerpt", "not now", attempts[0].Excerpt)
			same(t, "counted", 1, w.metric("ackrail_deliveries_total", "outcome", "failed", "reason", "HTTPStatus"))

			sink.Handle(testenv.Status(http.StatusOK))
			r.due()
			r.waitForStates("a", map[event.State]int{event.StateDone: 1})
			_, attempts = r.show(id)
			same(t, "attempts", []string{"failed", "done"}, results(attempts))
		})
	}
}

func TestPermanentStatusIsDeadAtOnce(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	sink.Handle(testenv.Status(http.StatusGone))
	id := r.enqueue(1, 10, "a")[0]
	w := r.worker(config(destination("a", sink.URL())))
	r.waitForStates("a", map[event.State]int{event.StateDead: 1})
	d, attempts := r.show(id)
	same(t, "reason", event.ReasonPermanentStatus, d.Reason)
	same(t, "last status", http.StatusGone, d.LastStatus)
	same(t, "class", event.ErrorHTTPStatus, d.ErrorClass)
	same(t, "last error", "answered with status 410 Gone", d.LastError)
	same(t, "attempts", []string{"dead"}, results(attempts))
	same(t, "requests", 1, len(sink.Requests()))
	same(t, "counted", 1, w.metric("ackrail_deliveries_total", "outcome", "dead", "reason", "PermanentStatus"))
}

// Every worker makes one attempt and stops; together they make as many as are
// allowed.
func TestAttemptsAreBoundedAcrossWorkers(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	sink.Handle(testenv.Status(http.StatusInternalServerError))
	id := r.enqueue(1, 10, "a")[0]
	for attempt := 1; attempt < 3; attempt++ {
		w := r.worker(config(destination("a", sink.URL())))
		w.waitForMetric(1, "ackrail_deliveries_total", "outcome", "failed")
		w.stopAndWait()
		r.waitForStates("a", map[event.State]int{event.StateFailed: 1})
		r.due()
	}
	w := r.worker(config(destination("a", sink.URL())))
	r.waitForStates("a", map[event.State]int{event.StateDead: 1})
	d, attempts := r.show(id)
	same(t, "reason", event.ReasonAttemptsExhausted, d.Reason)
	same(t, "last status", http.StatusInternalServerError, d.LastStatus)
	same(t, "class", event.ErrorHTTPStatus, d.ErrorClass)
	same(t, "attempts", []string{"failed", "failed", "dead"}, results(attempts))
	same(t, "counted", 1, w.metric("ackrail_deliveries_total", "outcome", "dead", "reason", "AttemptsExhausted"))
	same(t, "attempts of the delivery", 3, w.series("ackrail_delivery_attempts")[0].GetHistogram().GetSampleSum())
	var numbers []string
	for _, request := range sink.Requests() {
		numbers = append(numbers, request.Header.Get("Ackrail-Attempt"))
	}
	same(t, "attempts at the sink", []string{"1", "2", "3"}, numbers)
}

// vanish claims what is due to destination a as a worker does that is killed
// then.
func (r *rig) vanish(c *pipeline.Config) {
	r.t.Helper()
	lanes := newLanes(c)
	claims, err := r.store.Claim(r.t.Context(), "vanished", lanes.wants(lookAll, time.Now()))
	if err != nil || len(claims) == 0 {
		r.t.Fatalf("claimed %d deliveries, %v", len(claims), err)
	}
	r.lapse()
}

func TestOutcomeOfTheLastAttemptIsUnknown(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	id := r.enqueue(1, 10, "a")[0]
	c := config(destination("a", sink.URL(), maxAttempts(2)))
	r.vanish(c)
	r.vanish(c)
	w := r.worker(c)
	r.waitForStates("a", map[event.State]int{event.StateDead: 1})
	d, attempts := r.show(id)
	same(t, "reason", event.ReasonOutcomeUnknown, d.Reason)
	same(t, "attempts that count", 2, d.Attempts)
	same(t, "attempts", []string{"unknown", "unknown"}, results(attempts))
	same(t, "requests", []testenv.Request{}, append([]testenv.Request{}, sink.Requests()...))
	same(t, "counted", 1, w.metric("ackrail_deliveries_total", "outcome", "dead", "reason", "OutcomeUnknown"))
	same(t, "exchanges", 0, w.metric("ackrail_delivery_exchange_seconds"))
}

// A limit that is lowered after an attempt has failed leaves none, and nothing
// is unknown about it.
func TestLimitLoweredAfterAFailure(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	sink.Handle(testenv.Status(500))
	id := r.enqueue(1, 10, "a")[0]
	first := r.worker(config(destination("a", sink.URL(), maxAttempts(5))))
	r.waitForStates("a", map[event.State]int{event.StateFailed: 1})
	first.stopAndWait()
	r.due()
	r.worker(config(destination("a", sink.URL(), maxAttempts(1))))
	r.waitForStates("a", map[event.State]int{event.StateDead: 1})
	d, attempts := r.show(id)
	same(t, "reason", event.ReasonAttemptsExhausted, d.Reason)
	same(t, "attempts", []string{"failed"}, results(attempts))
}

// A worker that vanished used an attempt up, no more.
func TestAttemptsGoOnAfterAWorkerVanished(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	id := r.enqueue(1, 10, "a")[0]
	c := config(destination("a", sink.URL(), maxAttempts(2)))
	r.vanish(c)
	r.worker(c)
	r.waitForStates("a", map[event.State]int{event.StateDone: 1})
	d, attempts := r.show(id)
	same(t, "attempts that count", 2, d.Attempts)
	same(t, "attempts", []string{"unknown", "done"}, results(attempts))
	same(t, "attempt at the sink", "2", sink.Requests()[0].Header.Get("Ackrail-Attempt"))
}

func TestPayloadMissing(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	ids := r.enqueue(2, 10, "a")
	r.execute("DELETE FROM event WHERE id = $1", ids[0])
	w := r.worker(config(destination("a", sink.URL())))
	r.waitForStates("a", map[event.State]int{event.StateDead: 1, event.StateDone: 1})
	d, _ := r.show(ids[0])
	same(t, "reason", event.ReasonPayloadMissing, d.Reason)
	same(t, "effects", map[string]int{ids[1].String(): 1}, sink.Processed())
	same(t, "requests", 1, len(sink.Requests()))
	same(t, "counted", 1, w.metric("ackrail_deliveries_total", "outcome", "dead", "reason", "PayloadMissing"))
	same(t, "exchanges", 1, w.metric("ackrail_delivery_exchange_seconds"))
}

// What the sink gets is what was accepted, by more than one worker at once.
func TestSeveralWorkersShareTheWork(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	const events = 300
	r.enqueue(events, 1000, "a")
	var workers []*running
	for i := range 3 {
		workers = append(workers, r.worker(config(destination("a", sink.URL())), name("worker-"+strconv.Itoa(i))))
	}
	r.waitForStates("a", map[event.State]int{event.StateDone: events})
	same(t, "requests", events, len(sink.Requests()))
	same(t, "effects", events, len(sink.Processed()))
	var counted float64
	for _, w := range workers {
		counted += w.metric("ackrail_deliveries_total", "outcome", "done")
		same(t, "fenced", map[string]float64{}, w.fenced())
	}
	same(t, "counted", events, counted)
	same(t, "ledger", events, value[int](r, "SELECT count(*) FROM attempt"))
}

// A refused outcome must not hold up those that share its batch.
func TestOneRefusedOutcomeDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	sink.Handle(testenv.Status(http.StatusGone))
	ids := r.enqueue(8, 10, "a")
	// A dead letter of the same run is there already, so the database refuses
	// another one, however often it is asked.
	r.execute(`INSERT INTO dead_letter (event_id, destination_id, run, attempt, attempts, size, event_expires_at, reason, error_class, last_error, died_at, expires_at)
		SELECT event_id, destination_id, run, 1, 1, size, event_expires_at, 'PermanentStatus', '', '', now(), now() + interval '1 day' FROM delivery WHERE event_id = $1`, ids[3])
	w := r.worker(config(destination("a", sink.URL())))
	r.waitForStates("a", map[event.State]int{event.StateClaimed: 1, event.StateDead: 8})
	w.waitForLog(1, "Outcome refused by the database, it will be delivered again")

	sink.Handle(testenv.Status(http.StatusOK))
	r.enqueue(3, 10, "a")
	r.waitForStates("a", map[event.State]int{event.StateClaimed: 1, event.StateDead: 8, event.StateDone: 3})
	same(t, "fenced", map[string]float64{}, w.fenced())

	r.execute("DELETE FROM dead_letter WHERE event_id = $1", ids[3])
	r.lapse()
	r.waitForStates("a", map[event.State]int{event.StateDead: 7, event.StateDone: 4})
}
