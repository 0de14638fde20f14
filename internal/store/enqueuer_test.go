package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/testenv"
)

// batches records what an enqueuer tells of its batches.
type batches struct {
	mu      sync.Mutex
	sizes   []int
	failed  int
	commits int
}

func (b *batches) observe(o EnqueuerOptions) EnqueuerOptions {
	o.OnBatch = func(events int, took time.Duration, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sizes = append(b.sizes, events)
		if err != nil || took <= 0 {
			b.failed++
		}
	}
	o.OnCommit = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.commits++
	}
	return o
}

// blocked is an enqueuer with one flusher, which a lock holds up with a first
// event in its hands: what comes then waits in the queue.
type blocked struct {
	*Enqueuer
	t       *testing.T
	store   *Store
	unlock  func()
	batches batches
	calls   sync.WaitGroup

	mu      sync.Mutex
	results map[string]error
}

func newBlocked(t *testing.T, o EnqueuerOptions) *blocked {
	t.Helper()
	b := &blocked{t: t, store: newStore(t), results: map[string]error{}}
	o.Flushers = 1
	b.Enqueuer = NewEnqueuer(b.store, b.batches.observe(o))
	t.Cleanup(b.Close)
	b.unlock = block(t, b.store, "dedup")
	b.enqueue(t.Context(), "first", "")
	waitForLocks(t, b.store, "relation", 1)
	return b
}

// enqueue starts a call and returns.
func (b *blocked) enqueue(ctx context.Context, key, text string) {
	sub := submission(b.t, key, body(text))
	b.calls.Go(func() {
		_, err := b.Enqueue(ctx, sub)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.results[key] = err
	})
}

// waitFor waits until n calls wait in the queue.
func (b *blocked) waitFor(n int) {
	b.t.Helper()
	testenv.Eventually(b.t, patience, func() error {
		b.Enqueuer.mu.Lock()
		defer b.Enqueuer.mu.Unlock()
		if got := len(b.waiting); got != n {
			return fmt.Errorf("%d calls wait, want %d", got, n)
		}
		return nil
	})
}

// release lets the flusher go on and waits for all calls.
func (b *blocked) release() map[string]error {
	b.unlock()
	b.calls.Wait()
	return b.results
}

func (b *blocked) stored() []string {
	b.t.Helper()
	return column[string](b.t, b.store, "SELECT idempotency_key FROM event ORDER BY 1")
}

func TestQueueIsBoundedByEvents(t *testing.T) {
	b := newBlocked(t, EnqueuerOptions{MaxWaiting: 2})
	b.enqueue(t.Context(), "second", "")
	b.enqueue(t.Context(), "third", "")
	b.waitFor(2)
	if _, err := b.Enqueue(t.Context(), submission(t, "fourth")); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want %v", err, ErrBusy)
	}
	same(t, "results", map[string]error{"first": nil, "second": nil, "third": nil}, b.release())
	same(t, "stored", []string{"first", "second", "third"}, b.stored())
	if _, err := b.Enqueue(t.Context(), submission(t, "fourth")); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestQueueIsBoundedByBytes(t *testing.T) {
	b := newBlocked(t, EnqueuerOptions{MaxWaitingBytes: 10})
	b.enqueue(t.Context(), "alone", "larger than the whole queue")
	b.waitFor(1)
	if _, err := b.Enqueue(t.Context(), submission(t, "second", body("."))); !errors.Is(err, ErrBusy) {
		t.Errorf("behind one that is too large: %v, want %v", err, ErrBusy)
	}
	same(t, "results", map[string]error{"first": nil, "alone": nil}, b.release())

	b = newBlocked(t, EnqueuerOptions{MaxWaitingBytes: 10})
	b.enqueue(t.Context(), "eight", "12345678")
	b.waitFor(1)
	if _, err := b.Enqueue(t.Context(), submission(t, "three", body("123"))); !errors.Is(err, ErrBusy) {
		t.Errorf("beyond the bytes: %v, want %v", err, ErrBusy)
	}
	b.enqueue(t.Context(), "two", "12")
	b.waitFor(2)
	same(t, "results", map[string]error{"first": nil, "eight": nil, "two": nil}, b.release())
	if b.bytes != 0 {
		t.Errorf("%d bytes are left in an empty queue", b.bytes)
	}
}

func TestBatchesAreBounded(t *testing.T) {
	for _, tc := range []struct {
		name  string
		opts  EnqueuerOptions
		sizes []int
		want  []int
	}{
		{"events", EnqueuerOptions{MaxBatch: 2}, []int{1, 1, 1, 1, 1}, []int{1, 2, 2, 1}},
		{"bytes", EnqueuerOptions{MaxBatchBytes: 10}, []int{4, 4, 4, 4, 4}, []int{1, 2, 2, 1}},
		{"one too large", EnqueuerOptions{MaxBatchBytes: 10}, []int{20, 4, 4}, []int{1, 1, 2}},
		{"neither", EnqueuerOptions{}, []int{20, 4, 4}, []int{1, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBlocked(t, tc.opts)
			for i, size := range tc.sizes {
				b.enqueue(t.Context(), digits(i), fmt.Sprintf("%0*d", size, 0))
				b.waitFor(i + 1)
			}
			for key, err := range b.release() {
				if err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
			b.Close()
			same(t, "batches", tc.want, b.batches.sizes)
			same(t, "commits", len(tc.want), b.batches.commits)
		})
	}
}

// A caller that has gone away before its batch was cut got no answer: its
// event need not be stored, and is not.
func TestAbandonedCallsAreNotStored(t *testing.T) {
	b := newBlocked(t, EnqueuerOptions{MaxBatch: 2})
	ctx, abandon := context.WithCancel(t.Context())
	for i := range 4 {
		b.enqueue(ctx, fmt.Sprintf("gone %d", i), "")
		b.enqueue(t.Context(), fmt.Sprintf("patient %d", i), "")
	}
	b.waitFor(8)
	abandon()
	testenv.Eventually(t, patience, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.results) != 4 {
			return fmt.Errorf("%d calls have returned, want 4", len(b.results))
		}
		return nil
	})
	for key, err := range b.release() {
		gone := errors.Is(err, context.Canceled) && errors.Is(err, ErrUnavailable)
		if isPatient := key[0] != 'g'; isPatient != (err == nil) || isPatient == gone {
			t.Errorf("%s: %v", key, err)
		}
	}
	b.Close()
	same(t, "stored", []string{"first", "patient 0", "patient 1", "patient 2", "patient 3"}, b.stored())
	same(t, "batches", []int{1, 2, 2}, b.batches.sizes)
}

// What a full batch leaves behind is taken by another flusher as well when the
// batches under way are slow.
func TestFlushersJoinForWhatIsLeft(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 1, "a")
	unlock := block(t, s, "event")
	q := NewEnqueuer(s, EnqueuerOptions{Flushers: 3, MaxBatch: 1})
	var calls sync.WaitGroup
	for i := range 3 {
		calls.Go(func() {
			if _, err := q.Enqueue(t.Context(), submission(t, digits(i))); err != nil {
				t.Error(err)
			}
		})
	}
	testenv.Eventually(t, patience, func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.busy != 3 {
			return fmt.Errorf("%d flushers are at work, want 3", q.busy)
		}
		return nil
	})
	unlock()
	calls.Wait()
	q.Close()
}

func TestCloseDrains(t *testing.T) {
	b := newBlocked(t, EnqueuerOptions{MaxBatch: 2})
	expected := map[string]error{"first": nil}
	for i := range 5 {
		b.enqueue(t.Context(), digits(i), "")
		expected[digits(i)] = nil
	}
	b.waitFor(5)
	closed := make(chan struct{})
	go func() {
		b.Close()
		close(closed)
	}()
	testenv.Eventually(t, patience, func() error {
		// One that comes before the end is let in, and gives up.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := b.Enqueue(ctx, submission(t, "late")); !errors.Is(err, ErrBusy) {
			return fmt.Errorf("while it closes: %w, want %w", err, ErrBusy)
		}
		return nil
	})
	select {
	case <-closed:
		t.Error("closed with calls waiting")
	default:
	}
	same(t, "results", expected, b.release())
	<-closed
	same(t, "stored", []string{"0", "1", "2", "3", "4", "first"}, b.stored())
}

// A batch that takes too long has an unknown outcome, and holds nobody up
// who comes later.
func TestFlushTimeout(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 1, "a") // the names
	var b batches
	q := NewEnqueuer(s, b.observe(EnqueuerOptions{Flushers: 1, FlushTimeout: 500 * time.Millisecond}))
	defer q.Close()
	unlock := block(t, s, "dedup")
	if _, err := q.Enqueue(t.Context(), submission(t, "first")); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	unlock()
	testenv.Eventually(t, patience, func() error {
		_, err := q.Enqueue(t.Context(), submission(t, "second"))
		return err
	})
	q.Close()
	if b.failed == 0 || b.commits != 1 {
		t.Errorf("%d batches failed, %d commits", b.failed, b.commits)
	}
}

// Nobody waits for a batch to fill, and yet there are batches under load.
func TestNaturalBatching(t *testing.T) {
	const callers, each = 64, 10
	s := newStore(t)
	var b batches
	q := NewEnqueuer(s, b.observe(EnqueuerOptions{MaxBatch: 50}))
	subs := make([][]Submission, callers)
	for i := range subs {
		for n := range each {
			subs[i] = append(subs[i], submission(t, fmt.Sprint(i, "/", n)))
		}
	}
	errs := make([]error, callers)
	parallel(callers, func(i int) {
		for _, sub := range subs[i] {
			_, err := q.Enqueue(t.Context(), sub)
			errs[i] = errors.Join(errs[i], err)
		}
	})
	q.Close()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	total, largest := 0, 0
	for _, size := range b.sizes {
		total += size
		largest = max(largest, size)
	}
	t.Logf("%d batches, the largest of %d events", len(b.sizes), largest)
	if total != callers*each || largest <= 1 || largest > 50 {
		t.Errorf("%d events in batches of up to %d", total, largest)
	}
	same(t, "stored", callers*each, value[int](t, s, "SELECT count(*)::int FROM event"))
}

// Workers are woken for new events only.
func TestOnCommitIsForNewEvents(t *testing.T) {
	var b batches
	q := NewEnqueuer(newStore(t), b.observe(EnqueuerOptions{}))
	defer q.Close()
	for i, key := range []string{"k", "k", "\xff", "l"} {
		sub := submission(t, key)
		if i == 2 {
			sub.Event.Type = "\xff"
		}
		var rejected *RejectedError
		if _, err := q.Enqueue(t.Context(), sub); err != nil && !errors.As(err, &rejected) {
			t.Fatal(err)
		}
	}
	q.Close()
	same(t, "commits", 2, b.commits)
	same(t, "batches", []int{1, 1, 1, 1}, b.sizes)
	same(t, "failed batches", 1, b.failed)
}
