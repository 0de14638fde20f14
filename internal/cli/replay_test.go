package cli

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// newDeadLetters returns the URL of a database with n of them at
// payments/github.
func newDeadLetters(t *testing.T, n int) (string, *store.Store) {
	t.Helper()
	url := testenv.Schema(t)
	if err := store.Migrate(t.Context(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	q := store.NewEnqueuer(s, store.EnqueuerOptions{})
	defer q.Close()
	to := event.DestinationRef{Endpoint: event.EndpointRef{Namespace: "payments", Name: "github"}, Name: "handler"}
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		id, err := event.NewID()
		if err != nil {
			t.Fatal(err)
		}
		calls.Go(func() {
			_, errs[i] = q.Enqueue(context.Background(), store.Submission{
				Event:        &event.Event{ID: id, Endpoint: to.Endpoint, Key: id.String(), Body: []byte("{}")},
				Destinations: []string{to.Name}, KeepEvent: time.Hour, KeepKey: time.Hour,
			})
		})
	}
	calls.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(t.Context(), "worker", []store.Want{{
		Destination: to, Most: n, MostBytes: 1 << 20, Lease: time.Minute, MaxAttempts: 1, KeepLedger: time.Hour,
	}})
	if err != nil || len(claims) != n {
		t.Fatalf("%d claims, %v", len(claims), err)
	}
	var outcomes []store.Outcome
	for _, c := range claims {
		outcomes = append(outcomes, store.Outcome{
			Claim: c, Verdict: event.VerdictDead, Reason: event.ReasonPermanentStatus, KeepLedger: time.Hour, KeepEnded: time.Hour,
		})
	}
	if _, err := s.Complete(t.Context(), outcomes); err != nil {
		t.Fatal(err)
	}
	return url, s
}

func TestReplayMode(t *testing.T) {
	t.Parallel()
	const dead = 6
	url, s := newDeadLetters(t, dead)
	replayed := func(spec string, flags ...string) (string, rig.Finished) {
		t.Helper()
		f := rig.Run(t, strings.TrimSuffix(goodReplay, "\n")+"\n  "+spec+"\n", append([]string{"replay", "-f", "-", "--database-url", url}, flags...)...)
		var r v1alpha1.EventReplay
		if err := yaml.Unmarshal([]byte(f.Stdout), &r); err != nil {
			t.Fatalf("%v: %s", err, f.Stdout)
		}
		return summary(&r), f
	}
	open := func() int {
		t.Helper()
		records, err := s.ListDeliveries(t.Context(), store.Filter{States: []event.State{event.StatePending}, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return len(records)
	}

	const counted = "after-fix 6 0 0 0 0 Planned=True:DryRun Complete=True:DryRun"
	for _, flags := range [][]string{nil, {"--wait"}} {
		if got, f := replayed("mode: DryRun", flags...); got != counted || f.Code != 0 || f.Stderr != "" || open() != 0 {
			t.Errorf("dry run: %q, %+v, %d deliveries", got, f, open())
		}
	}
	const refusal = "Error: EventReplay payments/after-fix: spec.suspend: is true: set it to false to run the replay\n"
	if _, f := replayed("suspend: true"); f.Code != 1 || f.Stdout != "" || f.Stderr != refusal || open() != 0 {
		t.Errorf("suspended: %+v, %d deliveries", f, open())
	}
	// The dry run and the refusal are not in the way of the same name.
	began := time.Now()
	const started = "after-fix 6 6 0 0 0 Planned=True:Matched Complete=False:InProgress Progressing=True:InProgress"
	if got, f := replayed("maxPerSecond: 2"); got != started || f.Code != 0 || open() != dead {
		t.Errorf("at a rate: %q, %+v, %d deliveries", got, f, open())
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("6 runs, at most 2 in a second, took %s", took)
	}
}

// The manifests say which destinations there are; without the endpoint among
// them, that is not known, and nothing is skipped.
func TestReplayWithoutADestination(t *testing.T) {
	t.Parallel()
	url, _ := newDeadLetters(t, 4)
	elsewhere := strings.Replace(goodManifest, "- name: handler", "- name: other", 1)
	for _, tc := range []struct{ manifests, spec, want string }{
		{elsewhere + "---" + goodReplay, "mode: DryRun", "after-fix 4 0 0 0 4 Planned=True:DryRun Complete=True:DryRun"},
		{goodReplay, "mode: DryRun", "after-fix 4 0 0 0 0 Planned=True:DryRun Complete=True:DryRun"},
		{elsewhere + "---" + goodReplay, "limit: 3", "after-fix 3 0 0 0 3 Planned=True:Matched Complete=True:Succeeded"},
	} {
		f := rig.Run(t, strings.TrimSuffix(tc.manifests, "\n")+"\n  "+tc.spec+"\n", "replay", "-f", "-", "--database-url", url)
		var r v1alpha1.EventReplay
		if err := yaml.Unmarshal([]byte(f.Stdout), &r); err != nil {
			t.Fatalf("%v: %s", err, f.Stdout)
		}
		if got := summary(&r); got != tc.want || f.Code != 0 {
			t.Errorf("%s: %q, %+v, want %q", tc.spec, got, f, tc.want)
		}
	}
}
