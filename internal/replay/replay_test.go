package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	patience = 20 * time.Second
	// several is more than the runs that one transaction starts.
	several = 450
)

var destination = event.DestinationRef{Endpoint: event.EndpointRef{Namespace: "payments", Name: "github"}, Name: "handler"}

func openStore(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.Open(url, store.Options{Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newDead returns the URL of a migrated schema with n dead letters.
func newDead(t *testing.T, n int) string {
	t.Helper()
	url := testenv.Schema(t)
	if err := store.Migrate(t.Context(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, url)
	enqueue(t, s, n)
	if got := end(t, s, event.VerdictDead); got != n {
		t.Fatalf("%d dead letters, want %d", got, n)
	}
	return url
}

// enqueue commits n events and returns their ids.
func enqueue(t *testing.T, s *store.Store, n int) []event.ID {
	t.Helper()
	q := store.NewEnqueuer(s, store.EnqueuerOptions{})
	defer q.Close()
	ids, errs := make([]event.ID, n), make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		var err error
		if ids[i], err = event.NewID(); err != nil {
			t.Fatal(err)
		}
		sub := store.Submission{
			Event:        &event.Event{ID: ids[i], Endpoint: destination.Endpoint, Key: ids[i].String(), Type: "push", Body: []byte("{}")},
			Destinations: []string{destination.Name}, KeepEvent: time.Hour, KeepKey: time.Hour,
		}
		calls.Go(func() { _, errs[i] = q.Enqueue(context.Background(), sub) })
	}
	calls.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ids
}

// claim takes what is due, at most as much as given.
func claim(t *testing.T, s *store.Store, most int) []*store.Claim {
	t.Helper()
	claims, err := s.Claim(t.Context(), "worker", []store.Want{{
		Destination: destination, Most: most, MostBytes: 1 << 20, Lease: time.Minute, MaxAttempts: 3, KeepLedger: time.Hour,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return claims
}

// complete ends claims with one verdict.
func complete(t *testing.T, s *store.Store, v event.Verdict, claims []*store.Claim) {
	t.Helper()
	var outcomes []store.Outcome
	for _, c := range claims {
		o := store.Outcome{Claim: c, Verdict: v, Status: 200, KeepLedger: time.Hour, KeepEnded: time.Hour}
		if v == event.VerdictDead {
			o.Reason = event.ReasonPermanentStatus
		}
		outcomes = append(outcomes, o)
	}
	took, err := s.Complete(t.Context(), outcomes)
	if err != nil {
		t.Fatal(err)
	}
	for i, ok := range took {
		if !ok {
			t.Fatalf("%s: fenced", claims[i].Token.Delivery)
		}
	}
}

// end ends everything that is due with one verdict and returns how much that
// was.
func end(t *testing.T, s *store.Store, v event.Verdict) (n int) {
	t.Helper()
	for {
		claims := claim(t, s, 200)
		if len(claims) == 0 {
			return n
		}
		complete(t, s, v, claims)
		n += len(claims)
	}
}

func afterFix() replay.Request {
	return replay.Request{
		ID: uuid.New(), Namespace: "payments", Name: "after-fix", Endpoint: destination.Endpoint,
		Selector: replay.Selector{States: []event.State{event.StateDead}}, Spec: "{}",
	}
}

// wantStatus compares everything but the times, the sample and where runs are open.
func wantStatus(t *testing.T, want, got replay.Status, completed bool) {
	t.Helper()
	if got.PlannedAt.IsZero() || completed != (got.CompletedAt != nil) {
		t.Errorf("planned at %s, completed at %v", got.PlannedAt, got.CompletedAt)
	}
	want.PlannedAt, want.CompletedAt, want.Sample, want.OpenAt = got.PlannedAt, got.CompletedAt, got.Sample, got.OpenAt
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// runs returns how many runs of each number there are.
func runs(t *testing.T, s *store.Store) map[int]int {
	t.Helper()
	records, err := s.ListDeliveries(t.Context(), store.Filter{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	n := map[int]int{}
	for _, r := range records {
		n[r.Key.Run]++
	}
	return n
}

func TestStart(t *testing.T) {
	s := openStore(t, newDead(t, several))
	r := afterFix()
	status, err := replay.Start(t.Context(), s, r, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, replay.Status{Matched: several, Queued: several, Open: several}, status, false)
	end(t, s, event.VerdictDone)
	again, err := replay.Start(t.Context(), s, r, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, replay.Status{Matched: several, Queued: several, Succeeded: several}, again, true)
	if diff := cmp.Diff(map[int]int{1: several, 2: several}, runs(t, s)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// Workers on other machines hear of the new runs.
func TestStartWakesWorkers(t *testing.T) {
	s := openStore(t, newDead(t, 1))
	var wakes atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	listening.Go(func() { _ = s.Listen(ctx, func() { wakes.Add(1) }) })
	defer listening.Wait()
	defer cancel()
	woken := func(n int64) func() error {
		return func() error {
			if got := wakes.Load(); got < n {
				return fmt.Errorf("woken %d times, want %d", got, n)
			}
			return nil
		}
	}
	testenv.Eventually(t, patience, woken(1))
	if _, err := replay.Start(t.Context(), s, afterFix(), 0); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, patience, woken(2))
}

func TestStartRefuses(t *testing.T) {
	s := openStore(t, newDead(t, 1))
	unknown := afterFix()
	unknown.Endpoint.Name = "gitlab"
	if status, err := replay.Start(t.Context(), s, unknown, 0); !errors.Is(err, replay.ErrUnknownEndpoint) || !status.Same(&replay.Status{}) {
		t.Errorf("unknown endpoint: %+v, %v", status, err)
	}
	r := afterFix()
	if _, err := replay.Start(t.Context(), s, r, 0); err != nil {
		t.Fatal(err)
	}
	r.Spec = "changed"
	if _, err := replay.Start(t.Context(), s, r, 0); !errors.Is(err, replay.ErrChanged) {
		t.Errorf("another spec: %v, want %v", err, replay.ErrChanged)
	}
}

// A replay that is cut off in the middle goes on when it is started again, by
// whomever, and takes no delivery twice (I8).
func TestInterruptedReplayGoesOn(t *testing.T) {
	url := newDead(t, several)
	proxy := testenv.NewProxy(t, url)
	sent := 0
	proxy.Hook(func(c testenv.Chunk) testenv.Action {
		// It is described first, and then executed for each batch.
		if c.Direction == testenv.ToServer && bytes.Contains(c.Data, []byte("UPDATE replay_item")) {
			if sent++; sent == 3 {
				return testenv.Cut
			}
		}
		return testenv.Forward
	})
	r := afterFix()
	if _, err := replay.Start(t.Context(), openStore(t, proxy.URL()), r, 0); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("cut off: %v, want %v", err, store.ErrUnavailable)
	}
	s := openStore(t, url)
	status, err := s.ReplayStatus(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if status.Queued == 0 || status.Queued == several || status.Matched != several {
		t.Fatalf("%d of %d were queued before the cut", status.Queued, status.Matched)
	}
	early := end(t, s, event.VerdictDone) // the workers do not wait for the rest

	statuses, errs := make([]replay.Status, 3), make([]error, 3)
	var runners sync.WaitGroup
	for i := range statuses {
		other := openStore(t, url)
		runners.Go(func() { statuses[i], errs[i] = replay.Start(context.Background(), other, r, 0) })
	}
	runners.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if late := end(t, s, event.VerdictDone); early+late != several {
		t.Errorf("delivered %d and then %d, want %d", early, late, several)
	}
	if diff := cmp.Diff(map[int]int{1: several, 2: several}, runs(t, s)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestWait(t *testing.T) {
	s := openStore(t, newDead(t, 3))
	r := afterFix()
	if _, err := replay.Start(t.Context(), s, r, 0); err != nil {
		t.Fatal(err)
	}
	seen := make(chan replay.Status, 100)
	type answer struct {
		status replay.Status
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		status, err := replay.Wait(context.Background(), s, r.ID, time.Millisecond, func(s replay.Status) { seen <- s })
		answers <- answer{status, err}
	}()
	select {
	case status := <-seen:
		wantStatus(t, replay.Status{Matched: 3, Queued: 3, Open: 3}, status, false)
	case <-time.After(patience):
		t.Fatal("no progress is told")
	}
	end(t, s, event.VerdictDone)
	var got answer
	select {
	case got = <-answers:
	case <-time.After(patience):
		t.Fatal("it is still waiting")
	}
	if got.err != nil {
		t.Fatal(got.err)
	}
	final := replay.Status{Matched: 3, Queued: 3, Succeeded: 3}
	wantStatus(t, final, got.status, true)
	// Progress is told of each status once, of the last one too.
	var told []replay.Status
	for len(seen) > 0 {
		told = append(told, <-seen)
	}
	for i := range told[1:] {
		if told[i].Same(&told[i+1]) {
			t.Errorf("told twice of %+v", told[i])
		}
	}
	wantStatus(t, final, told[len(told)-1], true)
}

func TestWaitEnds(t *testing.T) {
	s := openStore(t, newDead(t, 1))
	r := afterFix()
	if _, err := replay.Start(t.Context(), s, r, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	status, err := replay.Wait(ctx, s, r.ID, time.Hour, func(replay.Status) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	wantStatus(t, replay.Status{Matched: 1, Queued: 1, Open: 1}, status, false)

	told := 0
	if _, err := replay.Wait(t.Context(), s, uuid.New(), time.Hour, func(replay.Status) { told++ }); !errors.Is(err, replay.ErrNotPlanned) || told > 0 {
		t.Errorf("unknown replay: %v after %d times", err, told)
	}
}
