package faults

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/invariant"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

// lease is that of the endpoint: the shortest that there is.
const lease = 6 * time.Second

// hookPath is the path of the rows' endpoint.
const hookPath = "/hooks/test/github"

// handler is where the events of the rows' endpoint go.
var handler = event.DestinationRef{Endpoint: event.EndpointRef{Namespace: "test", Name: "github"}, Name: "handler"}

// world is what one row has for itself.
type world struct {
	*rig.Rig
	*rig.Look

	t      testing.TB
	ctx    context.Context
	result *result
	// redelivered: a worker was killed while another could take over, so the
	// time until it did is of interest.
	redelivered bool
	// judged: the checker found nothing.
	judged bool

	// server is the database's, nil where the row brought another.
	server  *postgres.Server
	history invariant.History
	since   time.Time
	sink    *testenv.Sink
	// toIngress and toWorker lie between the processes and the database.
	toIngress, toWorker *testenv.Proxy
	// port is that of the ingress, whichever process it is.
	port  int
	pods  []*rig.Pod
	loads []*load
	// expect may be changed by a row before it ends.
	expect invariant.Expect
}

// setting is what a row may choose. Zero values are the usual.
type setting struct {
	// postgres are settings of the server.
	postgres map[string]string
	// url is of the database, where the row has started a server itself.
	url string
	// endpoint changes the endpoint.
	endpoint func(*pipeline.Endpoint)
}

// begin makes the database, the destination and the proxies. No process of the
// product runs yet.
func (w *world) begin(s setting) {
	w.t.Helper()
	url := s.url
	if url == "" {
		w.server = testenv.Server(w.t, s.postgres)
		url = w.server.URL()
	}
	w.sink = testenv.NewSink(w.t)
	w.answer(testenv.Status(http.StatusNoContent))
	endpoint := rig.GitHub(handler.Endpoint.Name, w.sink.URL(), func(e *pipeline.Endpoint) {
		// A delivery may have several workers killed under it.
		e.Destinations[0].Retry.MaxAttempts = 20
		if s.endpoint != nil {
			s.endpoint(e)
		}
	})
	w.Rig = rig.New(w.t, url, rig.Secrets(), endpoint)
	w.Look = w.Rig.Look()
	w.toIngress, w.toWorker = testenv.NewProxy(w.t, url), testenv.NewProxy(w.t, url)
	w.port = rig.FreePort(w.t)
	var err error
	if w.since, err = invariant.Clock(w.ctx, url); err != nil {
		w.t.Fatal(err)
	}
	w.expect = invariant.Expect{Config: w.Config, Drained: true, Since: w.since, Slack: time.Minute}
}

// run is begin with an ingress and a worker.
func (w *world) run(s setting) (in, worker *rig.Pod) {
	w.t.Helper()
	w.begin(s)
	return w.ingress(), w.worker()
}

// ingress starts an ingress on the row's port.
func (w *world) ingress(args ...string) *rig.Pod {
	w.t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", w.port)
	return w.pod(w.toIngress, "ingress", append([]string{"--listen", address, "--drain-delay", "0s"}, args...)...)
}

// worker starts a worker.
func (w *world) worker(args ...string) *rig.Pod {
	w.t.Helper()
	return w.pod(w.toWorker, "worker", args...)
}

func (w *world) pod(proxy *testenv.Proxy, role string, args ...string) *rig.Pod {
	w.t.Helper()
	p := w.Pod(proxy.URL(), role, args...)
	w.pods = append(w.pods, p)
	return p
}

// hook is where senders send to.
func (w *world) hook() string { return fmt.Sprintf("http://127.0.0.1:%d%s", w.port, hookPath) }

// answer makes h answer what the destination gets from now on. It can read the
// body.
func (w *world) answer(h http.Handler) { w.sink.Handle(w.history.Destination(handler, h)) }

// did notes what was done to the system, and counts it as a fault.
func (w *world) did(format string, args ...any) {
	w.history.Did(format, args...)
	w.result.Faults++
}

// until waits for a condition.
func (w *world) until(check func() error) {
	w.t.Helper()
	testenv.Eventually(w.t, patience, func() error {
		if err := w.ctx.Err(); err != nil {
			w.t.Fatalf("the row's time is over while waiting: %v", check())
		}
		return check()
	})
}

// await waits for something to happen once.
func (w *world) await(happened <-chan struct{}, what string) {
	w.t.Helper()
	select {
	case <-happened:
	case <-w.ctx.Done():
		w.t.Fatalf("the row's time is over while waiting for %s", what)
	case <-time.After(patience):
		w.t.Fatalf("not within %s: %s", patience, what)
	}
}

// settle ends all faults, waits until everything was delivered, and has the
// checker judge what happened.
func (w *world) settle() {
	w.t.Helper()
	w.heal()
	for _, l := range w.loads {
		l.end()
	}
	w.until(w.Drained)
	w.measure()
	verdict, err := invariant.Check(w.ctx, w.URL, &w.history, w.expect)
	if err != nil {
		w.t.Fatal(err)
	}
	w.result.take(verdict)
	if w.redelivered {
		w.result.Redelivery = max(0, verdict.LongestGap-lease)
	}
	w.bounds()
	if err := verdict.Err(); err != nil {
		w.t.Fatalf("%v\n%s", err, verdict)
	}
	w.t.Logf("%s", verdict)
	w.judged = true
}

// bounds checks the figures of the promises. Those of time are far above what
// they should be: a loaded machine must not fail a row.
func (w *world) bounds() {
	w.t.Helper()
	r := w.result
	if r.InFlight > 0 && r.Duplicates > r.InFlight {
		w.t.Errorf("%d duplicates, but only %d deliveries were in flight at a kill", r.Duplicates, r.InFlight)
	}
	for _, b := range []struct {
		what       string
		got, limit time.Duration
	}{
		{"a redelivery after the end of the lease", r.Redelivery, 30 * time.Second},
		{"the first 202 after the database's return", r.Return, 15 * time.Second},
		{"a 503", r.SlowestRefusal, 10 * time.Second},
	} {
		if b.got > b.limit {
			w.t.Errorf("%s took %s, want %s at most", b.what, b.got, b.limit)
		}
	}
}

// heal lets everything go on that a fault holds up, and replaces what is gone.
func (w *world) heal() {
	w.t.Helper()
	for _, p := range []*testenv.Proxy{w.toIngress, w.toWorker} {
		p.Hook(nil)
		p.Release()
		p.Thaw()
		p.Accept()
	}
	if w.server != nil {
		select {
		case <-w.server.Done():
			w.restart()
		default:
		}
	}
	ingress, worker := false, false
	for _, p := range w.pods {
		p.Signal(syscall.SIGCONT)
		if p.Running() {
			ingress = ingress || p.Role == "ingress"
			worker = worker || p.Role == "worker"
		}
	}
	if !ingress {
		w.ingress()
	}
	if !worker {
		w.worker()
	}
}

// restart brings the server back, or ends and starts it.
func (w *world) restart() {
	w.t.Helper()
	if err := w.server.Restart(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

// claimed counts the deliveries that somebody holds.
func (w *world) claimed() int {
	w.t.Helper()
	return w.Number("SELECT count(*) FROM delivery WHERE state = 'claimed'")
}

// holding waits until workers hold a number of deliveries.
func (w *world) holding(n int) {
	w.t.Helper()
	w.until(func() error {
		if got := w.claimed(); got < n {
			return fmt.Errorf("workers hold %d deliveries, want %d", got, n)
		}
		return nil
	})
}

// killWorker kills a worker, and counts what it had in its hands.
func (w *world) killWorker(p *rig.Pod) (held int) {
	w.t.Helper()
	p.Kill()
	held = w.heldBy(p)
	w.did("worker killed with %d deliveries in its hands", held)
	w.result.InFlight += held
	w.redelivered = true
	return held
}

// heldBy counts the deliveries that a worker holds, by the ledger, which names
// workers by their processes.
func (w *world) heldBy(p *rig.Pod) int {
	w.t.Helper()
	return w.Number(`SELECT count(*) FROM delivery d JOIN attempt a USING (event_id, destination_id, run, attempt)
		WHERE d.state = 'claimed' AND a.worker LIKE '%-' || $1::text`, fmt.Sprint(p.PID()))
}

// execute runs a statement in a session of its own, as the database's owner.
func (w *world) execute(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.Pool.Exec(w.ctx, sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}
