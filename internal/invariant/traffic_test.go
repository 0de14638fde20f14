package invariant_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/invariant"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/testenv"
	"github.com/ackrail/ackrail/internal/worker"
)

// What the handler answers is in the body of an event.
const (
	plain     = `{"wish": "done"}`
	refused   = `{"wish": "refused"}`   // 410, until the fix
	failing   = `{"wish": "failing"}`   // 503, until the fix
	flaky     = `{"wish": "flaky"}`     // 503 once
	abandoned = `{"wish": "abandoned"}` // no answer before another attempt was made
	vanishing = `{"wish": "vanishing"}` // for bugs and faults to know
)

// sink is the destinations.
type sink struct {
	*testenv.Sink
	t         *testing.T
	mu        sync.Mutex
	fixed     bool
	tried     map[string]int
	abandoned chan struct{} // closed when the first attempt is there
	late      chan struct{} // closed to have it answered
}

func newSink(r *rig) *sink {
	s := &sink{Sink: testenv.NewSink(r.t), t: r.t, tried: map[string]int{}, abandoned: make(chan struct{}), late: make(chan struct{})}
	mux := http.NewServeMux()
	for _, to := range []event.DestinationRef{
		{Endpoint: github, Name: "handler"}, {Endpoint: github, Name: "audit"}, {Endpoint: github, Name: "later"}, {Endpoint: held, Name: "handler"},
	} {
		answer := testenv.Status(http.StatusNoContent)
		if to.Name == "handler" {
			answer = http.HandlerFunc(s.handler)
		}
		mux.Handle("/"+to.String(), r.history.Destination(to, answer))
	}
	s.Handle(mux)
	return s
}

func (s *sink) url(endpoint event.EndpointRef, name string) string {
	return s.URL() + "/" + event.DestinationRef{Endpoint: endpoint, Name: name}.String()
}

func (s *sink) handler(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	s.tried[r.Header.Get("webhook-id")]++
	first, fixed := s.tried[r.Header.Get("webhook-id")] == 1, s.fixed
	s.mu.Unlock()
	wish := func(is string) bool { return strings.Contains(string(body), wishOf(is)) }
	switch {
	case wish(refused) && !fixed:
		w.WriteHeader(http.StatusGone)
	case wish(failing) && !fixed, wish(flaky) && first:
		w.WriteHeader(http.StatusServiceUnavailable)
	case wish(abandoned) && first:
		close(s.abandoned)
		select {
		case <-s.late:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// wishOf is what tells bodies apart, however they are written.
func wishOf(body string) string { return strings.Split(body, `"`)[3] }

func (s *sink) fix() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fixed = true
}

// traffic is everything that can happen to events while nothing is wrong: it is taken, taken again, refused, delivered,
// tried again, given up, abandoned by a worker, held and replayed.
func (r *rig) traffic() {
	r.t.Helper()
	for i := range 6 {
		r.send(github, fmt.Sprintf("plain-%d", i), plain, secret)
	}
	r.send(github, "refused", refused, secret)
	r.send(github, "failing", failing, secret)
	r.send(github, "flaky", flaky, secret)
	r.send(github, "abandoned", abandoned, secret)
	r.send(github, "plain-0", plain, secret)
	r.send(github, "plain-1", refused, secret)
	r.send(github, "forged", plain, forged)
	r.send(github, "plain-2", refused, forged)
	for i := range 3 {
		r.send(held, fmt.Sprintf("held-%d", i), plain, secret)
	}
	stop := r.work()
	r.abandon()
	r.drained()
	r.history.Did("the handler was mended")
	r.sink.fix()
	r.replayTwice("dead", replay.Selector{States: []event.State{event.StateDead}})
	r.replayTwice("done", replay.Selector{States: []event.State{event.StateDone}, Destinations: []string{"audit"}})
	stop()
	if _, err := r.workers.Maintain(r.t.Context(), worker.Keeps(r.config)); err != nil {
		r.t.Fatal(err)
	}
}

// abandon ends the lease of an attempt whose answer is still to come, as time does when a worker is frozen, and lets the
// answer come once another attempt is over.
func (r *rig) abandon() {
	r.t.Helper()
	const settled = `SELECT 1 - count(*) FROM delivery_state d JOIN event e ON e.id = d.event_id
		WHERE e.idempotency_key = 'abandoned' AND d.destination = 'handler' AND d.state = 'done'`
	r.sink.awaitAbandoned()
	r.history.Did("a worker lost its lease")
	r.execute(`UPDATE delivery SET next_at = now() WHERE state = 'claimed' AND destination_id = (
			SELECT d.id FROM destination d JOIN endpoint e ON e.id = d.endpoint_id WHERE e.name = 'github' AND d.name = 'handler')
		AND event_id = (SELECT id FROM event WHERE idempotency_key = 'abandoned')`)
	r.none(settled)
	close(r.sink.late)
}

// awaitAbandoned waits for the attempt that gets no answer.
func (s *sink) awaitAbandoned() {
	s.t.Helper()
	select {
	case <-s.abandoned:
	case <-time.After(patience):
		s.t.Fatal("no attempt at what is to be abandoned")
	}
}

// replayTwice runs a replay to its end, and once more as a manager that has forgotten that it did.
func (r *rig) replayTwice(name string, s replay.Selector) {
	r.t.Helper()
	id := uuid.New()
	for range 2 {
		r.replay(id, name, s)
		r.drained()
	}
}

func TestNothingIsViolated(t *testing.T) {
	t.Parallel()
	r := newRig(t, pieces{})
	r.traffic()
	v := r.check()
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	t.Log(v)
	compared := []string{invariant.I1, invariant.I2, invariant.I3, invariant.I4, invariant.I5, invariant.I7, invariant.I8, invariant.I9,
		invariant.I10, invariant.I11, invariant.I12}
	for _, i := range compared {
		if v.Checked[i] == 0 {
			t.Errorf("nothing was compared with %s", i)
		}
	}
	if v.Unknown != 1 || v.Duplicates != 1 || v.Unexplained != 0 {
		t.Errorf("%d attempts with unknown outcome, %d duplicates, %d unexplained: want 1, 1, 0", v.Unknown, v.Duplicates, v.Unexplained)
	}
	if slices.Contains(v.Broken(), invariant.I6) {
		t.Error("there are no ordered destinations")
	}
}
