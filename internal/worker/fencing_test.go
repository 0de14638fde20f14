package worker

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/testenv"
)

// takenOver is a delivery that two workers are sending at once: the first
// one's lease has lapsed, the second one owns the delivery.
type takenOver struct {
	*rig
	sink          *testenv.Sink
	id            event.ID
	a, b          *running
	first, second *visit
}

func newTakenOver(t *testing.T) *takenOver {
	t.Helper()
	x := &takenOver{rig: newRig(t), sink: testenv.NewSink(t)}
	stage := newStage(t, x.sink)
	x.id = x.enqueue(1, 10, "a")[0]
	// One slot, so that the first worker cannot take over its own delivery.
	c := config(destination("a", x.sink.URL(), concurrency(1)))
	x.a = x.worker(c, name("first"), drain(patience))
	x.first = stage.next()
	x.lapse()
	x.b = x.worker(c, name("second"), drain(patience))
	x.second = stage.next()
	return x
}

// ends has the second worker succeed, and checks that its effect is the only
// one, and what the first worker counted.
func (x *takenOver) ends(fenced map[string]float64) {
	t := x.t
	t.Helper()
	x.second.answer(http.StatusOK)
	x.waitForStates("a", map[event.State]int{event.StateDone: 1})
	d, attempts := x.show(x.id)
	same(t, "attempts that count", 2, d.Attempts)
	same(t, "attempts", []string{"unknown", "done"}, results(attempts))
	same(t, "workers", []string{"first", "second"}, []string{attempts[0].Worker, attempts[1].Worker})
	x.a.stopAndWait()
	x.b.stopAndWait()
	same(t, "effects", 1, len(x.sink.Processed()))
	same(t, "same webhook-id", x.first.header.Get("webhook-id"), x.second.header.Get("webhook-id"))
	same(t, "fenced by the first worker", fenced, x.a.fenced())
	same(t, "fenced by the second worker", map[string]float64{}, x.b.fenced())
	same(t, "in flight", 0, x.a.metric("ackrail_deliveries_in_flight")+x.b.metric("ackrail_deliveries_in_flight"))
}

func TestLateOutcomeIsRefused(t *testing.T) {
	t.Parallel()
	for verdict, status := range map[event.Verdict]int{
		event.VerdictDone:   http.StatusOK,
		event.VerdictFailed: http.StatusServiceUnavailable,
		event.VerdictDead:   http.StatusGone,
	} {
		t.Run(string(verdict), func(t *testing.T) {
			t.Parallel()
			x := newTakenOver(t)
			before := x.contents()
			x.first.answer(status)
			x.a.waitForMetric(1, "ackrail_fenced_total", "write", string(verdict))
			same(t, "the database after the late outcome", before, x.contents())
			x.ends(map[string]float64{string(verdict): 1})
		})
	}
}

func TestLateHeartbeatIsRefusedAndEndsTheExchange(t *testing.T) {
	t.Parallel()
	x := newTakenOver(t)
	before := x.contents()
	x.a.renew(t.Context(), x.a.held.due(time.Now().Add(time.Minute)))
	receive(t, "the end of the first worker's request", x.first.gone)
	x.a.exchanges.Wait()
	same(t, "the database after the late heartbeat", before, x.contents())
	same(t, "attempts that ended", 0, x.a.metric("ackrail_deliveries_total"))
	x.ends(map[string]float64{"renewed": 1})
}

// The first worker was about to hand its delivery back.
func TestLateReleaseIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	arrived, answer := make(chan struct{}, 2), make(chan event.Verdict)
	var send sendFunc = func(_ context.Context, _ *deliver.Request) deliver.Outcome {
		arrived <- struct{}{}
		return deliver.Outcome{Verdict: <-answer}
	}
	r.enqueue(1, 10, "a")
	c := config(destination("a", "http://unused", concurrency(1)))
	a := r.worker(c, name("first"), sending(send))
	receive(t, "the first attempt", arrived)
	r.lapse()
	b := r.worker(c, name("second"), sending(func(ctx context.Context, _ *deliver.Request) deliver.Outcome {
		arrived <- struct{}{}
		<-ctx.Done()
		return deliver.Outcome{Verdict: event.VerdictFailed, Class: event.ErrorCanceled}
	}))
	receive(t, "the second attempt", arrived)
	before := r.contents()
	answer <- event.VerdictReleased
	a.waitForMetric(1, "ackrail_fenced_total", "write", "released")
	same(t, "the database after the late release", before, r.contents())
	same(t, "fenced", map[string]float64{"released": 1}, a.fenced())
	a.stopAndWait() // or it would make the third attempt
	b.stopAndWait()
	r.waitForStates("a", map[event.State]int{event.StateFailed: 1})
	same(t, "fenced by the second worker", map[string]float64{}, b.fenced())
}

// An outcome that is held up in the network for longer than the lease.
func TestOutcomeThatArrivesTooLate(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	stage := newStage(t, sink)
	proxy := testenv.NewProxy(t, r.url)
	id := r.enqueue(1, 10, "a")[0]
	c := config(destination("a", sink.URL()))
	a := r.worker(c, name("first"), r.by(proxy.URL()), poll(never))
	first := stage.next()
	a.listening()                                        // and so it does not look again
	held := proxy.OnRequest(string(id[:]), testenv.Hold) // the outcome's token
	first.answer(http.StatusOK)
	receive(t, "the outcome on its way", held)
	r.lapse()
	r.worker(c, name("second"))
	stage.next().answer(http.StatusOK)
	r.waitForStates("a", map[event.State]int{event.StateDone: 1})
	before := r.contents()
	proxy.Release()
	a.waitForMetric(1, "ackrail_fenced_total", "write", "done")
	same(t, "the database after the late outcome", before, r.contents())
	_, attempts := r.show(id)
	same(t, "attempts", []string{"unknown", "done"}, results(attempts))
	same(t, "effects", map[string]int{id.String(): 2}, sink.Processed())
}

// Two workers, and an exchange that is longer than the lease: the heartbeat
// keeps the delivery.
func TestHeartbeatKeepsTheDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	arrived, answer := make(chan string, 10), make(chan struct{})
	var send sendFunc = func(_ context.Context, r *deliver.Request) deliver.Outcome {
		arrived <- fmt.Sprintf("attempt %d", r.Attempt)
		<-answer
		return deliver.Outcome{Verdict: event.VerdictDone, Status: http.StatusOK}
	}
	id := r.enqueue(1, 10, "a")[0]
	c := config(destination("a", "http://unused"))
	c.Endpoints[0].LeaseSeconds = 2
	c.Endpoints[0].Destinations[0].HTTP.TimeoutSeconds = 1
	workers := []*running{r.worker(c, sending(send)), r.worker(c, sending(send))}
	receive(t, "the attempt", arrived)
	testenv.Eventually(t, patience, func() error {
		if age := value[float64](r, "SELECT extract(epoch FROM now() - started_at)::float8 FROM attempt ORDER BY attempt LIMIT 1"); age < 5 {
			return fmt.Errorf("the attempt is %v s old", age)
		}
		return nil
	})
	close(answer)
	r.waitForStates("a", map[event.State]int{event.StateDone: 1})
	_, attempts := r.show(id)
	same(t, "attempts", []string{"done"}, results(attempts))
	for _, w := range workers {
		same(t, "fenced", map[string]float64{}, w.fenced())
	}
}

// A claim whose answer took so long that the lease might end during the
// exchange is handed back instead of sent.
func TestStaleClaimIsHandedBack(t *testing.T) {
	t.Parallel()
	r, sink := newRig(t), testenv.NewSink(t)
	id := r.enqueue(1, 10, "a")[0]
	w := r.prepare(config(destination("a", sink.URL())))
	lease, timeout := w.lanes.all[0].endpoint.Lease(), w.lanes.all[0].destination.HTTP.Timeout()
	claims, err := r.store.Claim(t.Context(), "worker", w.lanes.wants(lookAll, time.Now()))
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d deliveries, %v", len(claims), err)
	}
	for age, want := range map[time.Duration]event.Verdict{
		lease - timeout + time.Millisecond: event.VerdictReleased,
		lease - timeout - time.Minute:      event.VerdictDone,
	} {
		claimed := time.Now().Add(-age)
		h := &held{claim: claims[0], lane: w.lanes.all[0], claimed: claimed, confirmed: claimed}
		if o := w.exchange(t.Context(), h); o.Verdict != want {
			t.Errorf("claimed %s ago: %s, want %s", age, o.Verdict, want)
		}
	}
	same(t, "effects", map[string]int{id.String(): 1}, sink.Processed())
}

// A renewal begins the lease anew; one that fails changes nothing.
func TestRenewal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.enqueue(1, 10, "a")
	w := r.prepare(config(destination("a", "http://unused")))
	claims, err := r.store.Claim(t.Context(), "worker", w.lanes.wants(lookAll, time.Now()))
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d deliveries, %v", len(claims), err)
	}
	r.execute("UPDATE delivery SET next_at = now() + interval '10 seconds'")
	h := &held{claim: claims[0], lane: w.lanes.all[0], confirmed: time.Now().Add(-50 * time.Second)}
	w.held.add(h)

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	w.renew(canceled, w.held.due(time.Now()))
	same(t, "due after a failure", []*held{h}, w.held.due(time.Now()), cmp.Comparer(func(a, b *held) bool { return a == b }))
	same(t, "the lease lasts", false, value[bool](r, "SELECT next_at > now() + interval '10 seconds' FROM delivery"))

	before := time.Now()
	w.renew(t.Context(), w.held.due(before))
	same(t, "due after a renewal", 0, len(w.held.due(before)))
	if left := w.held.leaseLeft(h, before); left < time.Minute || left > time.Minute+patience {
		t.Errorf("the lease lasts %s", left)
	}
	same(t, "the lease lasts", true, value[bool](r, "SELECT next_at > now() + interval '30 seconds' FROM delivery"))
	same(t, "fenced", map[string]float64{}, w.fenced())
}
