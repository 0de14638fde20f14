package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

// leaseAndMore is by when another worker must have taken over: the lease, a
// poll, and what a loaded machine may add.
const leaseAndMore = 30 * time.Second

func TestManyCopiesOfOneEventOverTwoIngresses(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	r := rig.New(t, testenv.Schema(t), rig.Secrets(), rig.GitHub("github", sink.URL()))
	ingresses := []*rig.Pod{r.Ingress(0, r.URL), r.Ingress(0, r.URL)}
	r.Worker(r.URL)

	const copies = 200
	s := rig.NewSender(t, copies)
	answers := make([]rig.Answer, copies)
	body := []byte(`{"zen":"Half measures are as bad as nothing at all."}`)
	var senders sync.WaitGroup
	for i := range copies {
		senders.Go(func() {
			a, err := s.Send(ingresses[i%2].URL+"/hooks/test/github", "one-and-the-same", body)
			if err != nil {
				t.Error(err)
			}
			answers[i] = a
		})
	}
	senders.Wait()

	statuses := map[int]int{}
	ids := map[string]bool{}
	for _, a := range answers {
		statuses[a.Status]++
		ids[a.EventID] = true
	}
	if statuses[http.StatusAccepted] != 1 || statuses[http.StatusOK] != copies-1 || len(ids) != 1 {
		t.Errorf("answers %v with %d event ids, want one 202, %d times 200, one id", statuses, len(ids), copies-1)
	}
	l := r.Look()
	testenv.Eventually(t, leaseAndMore, l.Drained)
	if n := l.Number("SELECT count(*) FROM event"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	if n := l.Number("SELECT count(*) FROM settled"); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
	if got := sink.Processed(); len(got) != 1 || len(sink.Requests()) != 1 {
		t.Errorf("the sink has %d requests and effects %v, want one", len(sink.Requests()), got)
	}
}

// takeover is a worker that dies with a delivery in its hands, and what the
// next one makes of it.
type takeover struct {
	*rig.Rig
	sink  *testenv.Sink
	proxy *testenv.Proxy // between the first worker and the database
	first *rig.Pod
	id    string
	body  []byte
	look  *rig.Look
}

// newTakeover has one event accepted; prepare may set faults before the first
// worker starts.
func newTakeover(t *testing.T, prepare func(*takeover)) *takeover {
	t.Helper()
	x := &takeover{sink: testenv.NewSink(t)}
	x.Rig = rig.New(t, testenv.Schema(t), rig.Secrets(), rig.GitHub("github", x.sink.URL()))
	x.look = x.Look()
	x.proxy = testenv.NewProxy(t, x.URL)
	in := x.Ingress(0, x.URL)
	x.body = []byte(`{"marker":"` + uuid.NewString() + `"}`)
	x.id = rig.NewSender(t, 1).Accepted(t, in.URL+"/hooks/test/github", uuid.NewString(), x.body)
	in.Stop()
	prepare(x)
	x.first = x.Worker(x.proxy.URL())
	return x
}

// recovered checks that the second worker finishes what the first one left,
// and that there was one effect.
func (x *takeover) recovered(wantResults ...string) {
	t := x.T
	t.Helper()
	testenv.Eventually(t, leaseAndMore, x.look.Drained)
	record := x.look.Event(x.id)
	if got := rig.Results(record); !slices.Equal(got, wantResults) {
		t.Errorf("attempts ended %v, want %v", got, wantResults)
	}
	if got := rig.States(record); !slices.Equal(got, []event.State{event.StateDone}) {
		t.Errorf("deliveries %v, want one that is done", got)
	}
	a := record.Attempts
	t.Logf("the second attempt began %s after the first one, the lease is 6s", a[1].StartedAt.Sub(a[0].StartedAt).Round(time.Millisecond))
	if a[0].Worker == a[1].Worker {
		t.Errorf("both attempts are of worker %s", a[0].Worker)
	}
	if got := x.sink.Processed(); len(got) != 1 || got[x.id] == 0 {
		t.Errorf("effects %v, want one of %s", got, x.id)
	}
	for _, request := range x.sink.Requests() {
		if request.ID() != x.id || !bytes.Equal(request.Body, x.body) {
			t.Errorf("the sink got id %s, body %s", request.ID(), request.Body)
		}
	}
}

func TestWorkerKilledBetweenClaimAndSend(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	x := newTakeover(t, func(x *takeover) {
		// The claim is committed, but the worker never learns of it.
		var once sync.Once
		x.proxy.Hook(func(c testenv.Chunk) testenv.Action {
			if c.Direction == testenv.ToClient && bytes.Contains(c.Data, x.body) {
				once.Do(func() { close(held) })
				return testenv.Hold
			}
			return testenv.Forward
		})
	})
	<-held
	x.first.Kill()
	if n := x.look.Number("SELECT count(*) FROM delivery WHERE state = 'claimed' AND attempt = 1"); n != 1 {
		t.Fatalf("%d deliveries are claimed, want 1", n)
	}
	if n := len(x.sink.Requests()); n != 0 {
		t.Fatalf("%d requests were sent, want none", n)
	}
	x.Worker(x.URL)
	x.recovered("unknown", "done")
	if n := len(x.sink.Requests()); n != 1 {
		t.Errorf("%d requests were sent, want 1", n)
	}
}

func TestWorkerKilledBetweenAnswerAndOutcome(t *testing.T) {
	t.Parallel()
	x := newTakeover(t, func(x *takeover) {
		var once sync.Once
		x.sink.Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			// From here on the worker cannot tell the database anything.
			once.Do(func() { x.proxy.Freeze(testenv.ToServer) })
			w.WriteHeader(http.StatusNoContent)
		}))
	})
	testenv.Eventually(t, leaseAndMore, func() error {
		if len(x.sink.Processed()) == 0 {
			return errNotYet
		}
		return nil
	})
	x.first.Kill()
	if n := x.look.Number("SELECT count(*) FROM delivery WHERE state = 'claimed' AND attempt = 1"); n != 1 {
		t.Fatalf("%d deliveries are claimed, want 1", n)
	}
	x.Worker(x.URL)
	x.recovered("unknown", "done")
	if got := x.sink.Processed()[x.id]; got != 2 {
		t.Errorf("the sink answered %d times with success, want 2: the event comes again with its id", got)
	}
}

func TestWorkerPausedPastItsLease(t *testing.T) {
	t.Parallel()
	var release func()
	arrived := make(chan struct{})
	x := newTakeover(t, func(x *takeover) {
		var blocked http.Handler
		blocked, release = testenv.Block(testenv.Status(http.StatusNoContent))
		var once sync.Once
		x.sink.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			first := false
			once.Do(func() { first = true })
			if !first {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			close(arrived)
			blocked.ServeHTTP(w, r)
		}))
	})
	<-arrived
	x.first.Signal(syscall.SIGSTOP)
	x.Worker(x.URL)
	x.recovered("unknown", "done")
	release()
	x.first.Signal(syscall.SIGCONT)
	// Whichever comes first of its outcome and its heartbeat is refused.
	testenv.Eventually(t, leaseAndMore, func() error {
		for _, write := range []string{"done", "failed", "renewed"} {
			n, err := x.first.Metric(fmt.Sprintf("ackrail_fenced_total{write=%q}", write))
			if err != nil {
				return err
			}
			if n > 0 {
				return nil
			}
		}
		return errNotYet
	})
	x.recovered("unknown", "done")
}

func TestAlwaysFailingDestination(t *testing.T) {
	t.Parallel()
	good, bad := testenv.NewSink(t), testenv.NewSink(t)
	bad.Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the disk is full", http.StatusInternalServerError)
	}))
	r := rig.New(t, testenv.Schema(t), rig.Secrets(),
		rig.GitHub("github", bad.URL(), func(e *pipeline.Endpoint) {
			e.Destinations = append(e.Destinations, rig.Destination("audit", good.URL()))
		}),
		rig.GitHub("other", good.URL()))
	in := r.Ingress(0, r.URL)
	r.Worker(r.URL)
	s := rig.NewSender(t, 1)
	id := s.Accepted(t, in.URL+"/hooks/test/github", uuid.NewString(), []byte(`{"n":1}`))
	l := r.Look()
	testenv.Eventually(t, leaseAndMore, l.Drained)

	shown := rig.Run(t, "", "events", "show", id, "--database-url", r.URL)
	for _, want := range []string{"AttemptsExhausted", "500", "HTTPStatus"} {
		if !strings.Contains(shown.Stdout, want) {
			t.Errorf("events show does not say %q:\n%s", want, shown.Stdout)
		}
	}
	record := l.Event(id)
	if got, want := rig.Results(record), []string{"done", "failed", "failed", "dead"}; !slices.Equal(got, want) {
		t.Errorf("attempts ended %v, want %v", got, want)
	}
	for _, a := range record.Attempts[1:] {
		if a.Status != http.StatusInternalServerError || a.ErrorClass != event.ErrorHTTPStatus || a.Excerpt != "the disk is full\n" {
			t.Errorf("attempt %d: status %d, class %s, excerpt %q", a.Attempt, a.Status, a.ErrorClass, a.Excerpt)
		}
	}
	// Later events go on to everybody else, and the dead one stays dead.
	for n := range 3 {
		s.Accepted(t, in.URL+"/hooks/test/other", uuid.NewString(), fmt.Appendf(nil, `{"n":%d}`, n))
	}
	testenv.Eventually(t, leaseAndMore, l.Drained)
	if n := len(bad.Requests()); n != 3 {
		t.Errorf("the failing destination had %d requests, want 3", n)
	}
	if n := len(good.Processed()); n != 4 {
		t.Errorf("the others had %d events, want 4", n)
	}
}

func TestReplayKilledHalfWay(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	sink.Handle(testenv.Status(http.StatusGone))
	r := rig.New(t, testenv.Schema(t), rig.Secrets(), rig.GitHub("github", sink.URL()))
	in := r.Ingress(0, r.URL)
	r.Worker(r.URL)
	const events = 1000
	s := rig.NewSender(t, 32)
	var senders sync.WaitGroup
	for n := range 32 {
		senders.Go(func() {
			for i := n; i < events; i += 32 {
				if _, err := s.Send(in.URL+"/hooks/test/github", fmt.Sprint(i), fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	l := r.Look()
	testenv.Eventually(t, leaseAndMore, l.Drained)
	if n := l.Number("SELECT count(*) FROM dead_letter WHERE reason = 'PermanentStatus' AND last_status = 410"); n != events {
		t.Fatalf("%d dead letters, want %d", n, events)
	}
	sink.Handle(testenv.Status(http.StatusNoContent)) // the fix

	manifest := filepath.Join(t.TempDir(), "replay.yaml")
	if err := os.WriteFile(manifest, []byte(`
apiVersion: ackrail.io/v1alpha1
kind: EventReplay
metadata: {name: after-fix, namespace: test}
spec:
  endpointRef: {name: github}
  selector: {match: All}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	// The database has queued some of it when the process dies without
	// knowing.
	proxy := testenv.NewProxy(t, r.URL)
	held := make(chan struct{})
	batches := 0
	proxy.Hook(func(c testenv.Chunk) testenv.Action {
		if c.Direction == testenv.ToServer && bytes.Contains(c.Data, []byte("picked AS MATERIALIZED")) {
			batches++
		}
		if c.Direction == testenv.ToClient && batches == 4 {
			batches++
			close(held)
			return testenv.Hold
		}
		return testenv.Forward
	})
	killed := rig.Start(t, "replay", "-f", manifest, "--database-url", proxy.URL())
	<-held
	killed.Kill()
	testenv.Eventually(t, leaseAndMore, func() error {
		n, err := l.TryNumber("SELECT count(*) FROM replay_item WHERE state = 'queued'")
		if err == nil && n == 0 {
			err = errNotYet
		}
		return err
	})
	if n := l.Number("SELECT count(*) FROM replay_item WHERE state = 'planned'"); n == 0 {
		t.Fatal("nothing is left to do: the process was not killed half-way")
	}
	for range 2 { // the rest, and then nothing
		done := rig.Run(t, "", "replay", "-f", manifest, "--wait", "--database-url", r.URL)
		if done.Code != 0 || !strings.Contains(done.Stdout, "succeeded: 1000") {
			t.Fatalf("replay exited with %d:\n%s%s", done.Code, done.Stdout, done.Stderr)
		}
	}
	runs := map[string]int{}
	for _, request := range sink.Requests() {
		if request.Header.Get("Ackrail-Run") == "2" {
			runs[request.ID()]++
		}
	}
	for id, n := range runs {
		if n != 1 {
			t.Errorf("event %s was replayed %d times", id, n)
		}
	}
	if len(runs) != events {
		t.Errorf("%d events were replayed, want %d", len(runs), events)
	}
	if n := l.Number("SELECT count(*) FROM settled WHERE run = 2"); n != events {
		t.Errorf("%d second runs are done, want %d", n, events)
	}
}
