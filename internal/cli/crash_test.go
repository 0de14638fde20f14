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
