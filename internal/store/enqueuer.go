package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// DefaultFlushers is how many flushers an Enqueuer has by default.
const DefaultFlushers = 4

const (
	// joinAt is how many events must wait for a flusher to join others that
	// are at work, and joinAfter how long they need to wait at most.
	joinAt    = 32
	joinAfter = 10 * time.Millisecond
)

// ErrBusy is returned when more events wait for the database than may.
var ErrBusy = errors.New("too many events wait for the database")

// EnqueuerOptions bound an Enqueuer. Zero values take the defaults.
type EnqueuerOptions struct {
	// Flushers is how many batches may be under way at once, 4 by default;
	// each uses a connection.
	Flushers int
	// MaxBatch and MaxBatchBytes bound one batch: 500 events, 8 MiB.
	MaxBatch      int
	MaxBatchBytes int
	// MaxWaiting and MaxWaitingBytes bound what waits: 10,000 events,
	// 64 MiB. Beyond them Enqueue returns ErrBusy.
	MaxWaiting      int
	MaxWaitingBytes int
	// FlushTimeout bounds one batch, 5 s by default. A batch that takes
	// longer is given up with an unknown outcome, and its connection is
	// closed.
	FlushTimeout time.Duration
	// OnBatch, if set, is told the size of each batch and how long it took.
	OnBatch func(events int, took time.Duration, err error)
	// OnCommit, if set, is called after a batch with at least one new event
	// was committed. It must not block.
	OnCommit func()
}

func (o *EnqueuerOptions) setDefaults() {
	defaultTo(&o.Flushers, DefaultFlushers)
	defaultTo(&o.MaxBatch, 500)
	defaultTo(&o.MaxBatchBytes, 8<<20)
	defaultTo(&o.MaxWaiting, 10_000)
	defaultTo(&o.MaxWaitingBytes, 64<<20)
	defaultTo(&o.FlushTimeout, 5*time.Second)
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Enqueuer commits events with natural batching: a free flusher takes
// everything that waits at once. Nobody waits for a batch to fill, so a lone
// event costs one commit, and under load one commit carries many events.
type Enqueuer struct {
	store *Store
	opts  EnqueuerOptions

	mu      sync.Mutex
	arrived *sync.Cond
	waiting []*waiter
	bytes   int
	closed  bool
	// busy counts the batches under way.
	busy int
	// overdue: what waits has waited for so long that another flusher should
	// take it, however little it is.
	overdue bool
	alarm   *time.Timer

	flushers sync.WaitGroup
}

// waiter is a call of Enqueue.
type waiter struct {
	prepared
	outcome result
	// done is closed when outcome is there.
	done chan struct{}
	// abandoned: its caller has gone; it need not be stored any more.
	abandoned bool
}

// NewEnqueuer starts the flushers. Close stops them.
func NewEnqueuer(s *Store, o EnqueuerOptions) *Enqueuer {
	o.setDefaults()
	q := &Enqueuer{store: s, opts: o}
	q.arrived = sync.NewCond(&q.mu)
	for range o.Flushers {
		q.flushers.Go(q.flushAll)
	}
	return q
}

// Close commits what waits, refuses what comes later with ErrBusy, and
// returns when the flushers have ended.
func (q *Enqueuer) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.arrived.Broadcast()
	q.flushers.Wait()
}

// Enqueue commits one event and returns after its commit. The errors are
// ErrBusy (nothing was done), ErrUnavailable, *RejectedError (this event can
// never be stored) or the context's: except after ErrBusy and a rejection,
// whether the event was stored is unknown.
func (q *Enqueuer) Enqueue(ctx context.Context, s Submission) (Receipt, error) {
	w := &waiter{done: make(chan struct{})}
	var err error
	if w.prepared, err = prepare(&s, &w.outcome); err != nil {
		return Receipt{}, err
	}
	if err := q.admit(w); err != nil {
		return Receipt{}, err
	}
	select {
	case <-w.done:
		return w.outcome.receipt, w.outcome.err
	case <-ctx.Done():
		q.mu.Lock()
		w.abandoned = true
		q.mu.Unlock()
		return Receipt{}, fmt.Errorf("waiting for the commit: %w: %w", ErrUnavailable, ctx.Err())
	}
}

func (q *Enqueuer) admit(w *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := len(w.Event.Body)
	if q.closed || len(q.waiting) >= q.opts.MaxWaiting || (q.bytes+size > q.opts.MaxWaitingBytes && len(q.waiting) > 0) {
		return ErrBusy
	}
	q.waiting = append(q.waiting, w)
	q.bytes += size
	if len(q.waiting) == 1 && q.busy > 0 {
		q.setAlarm()
	}
	q.arrived.Signal()
	return nil
}

// setAlarm has another flusher join after a while, if something waits then.
func (q *Enqueuer) setAlarm() { q.alarm = time.AfterFunc(joinAfter, q.setOverdue) }

func (q *Enqueuer) setOverdue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.overdue = len(q.waiting) > 0
	q.arrived.Broadcast()
}

// flushAll is a flusher: it commits batches until the enqueuer is closed and
// nothing waits.
func (q *Enqueuer) flushAll() {
	for {
		batch := q.take()
		if batch == nil {
			return
		}
		q.flush(batch)
	}
}

// take waits for work and removes a batch from the queue; nil means the end.
func (q *Enqueuer) take() []*waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for !q.worthwhile() {
			if q.closed && len(q.waiting) == 0 {
				return nil
			}
			q.arrived.Wait()
		}
		if batch := q.cut(); len(batch) > 0 {
			q.busy++
			return batch
		}
	}
}

// worthwhile reports whether a free flusher should take what waits. The first
// one always does. Beside batches under way it is better to wait for enough
// to share the fixed costs of a statement, unless what is under way is slow.
func (q *Enqueuer) worthwhile() bool {
	n := len(q.waiting)
	return n > 0 && (q.busy == 0 || n >= joinAt || q.overdue || q.closed)
}

// cut removes up to one batch from the front of the queue, without those
// whose callers have gone.
func (q *Enqueuer) cut() []*waiter {
	var batch []*waiter
	bytes, n := 0, 0
	for _, w := range q.waiting {
		size := len(w.Event.Body)
		if len(batch) == q.opts.MaxBatch || (len(batch) > 0 && bytes+size > q.opts.MaxBatchBytes) {
			break
		}
		n++
		q.bytes -= size
		if !w.abandoned {
			bytes += size
			batch = append(batch, w)
		}
	}
	if q.alarm != nil {
		q.alarm.Stop()
	}
	q.overdue = false
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	if rest > 0 {
		q.setAlarm()
		q.arrived.Signal()
	}
	return batch
}

func (q *Enqueuer) flush(batch []*waiter) {
	// Not a caller's context: the batch belongs to many.
	ctx, cancel := context.WithTimeout(context.Background(), q.opts.FlushTimeout)
	defer cancel()
	submissions := make([]prepared, len(batch))
	for i, w := range batch {
		submissions[i] = w.prepared
	}
	start := time.Now()
	q.store.enqueue(ctx, submissions)
	took := time.Since(start)
	q.mu.Lock()
	q.busy--
	q.mu.Unlock()
	fresh := false
	var failed error
	for _, w := range batch {
		fresh = fresh || (w.outcome.err == nil && !w.outcome.receipt.Duplicate)
		if w.outcome.err != nil {
			failed = w.outcome.err
		}
		close(w.done)
	}
	if q.opts.OnBatch != nil {
		q.opts.OnBatch(len(batch), took, failed)
	}
	if fresh && q.opts.OnCommit != nil {
		q.opts.OnCommit()
	}
}
