package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/ackrail/ackrail/internal/store"
)

const (
	// recordBatch bounds the outcomes of one statement; larger ones were
	// measured to be slower by the row.
	recordBatch = 500
	// recordBacklog is how many outcomes may wait before claiming does.
	recordBacklog = 4 * recordBatch
)

// recorder writes outcomes with natural batching: while one statement is
// under way the next one's outcomes gather.
type recorder struct {
	store   Store
	log     *slog.Logger
	metrics *metrics
	// relieved is called when the recorder was found to be behind and is so
	// no more.
	relieved func()

	mu      sync.Mutex
	arrived *sync.Cond
	waiting []store.Outcome
	closed  bool
	// failing: the last statement failed.
	failing bool
	// awaited: somebody found the recorder behind.
	awaited bool
}

func newRecorder(s Store, log *slog.Logger, m *metrics, relieved func()) *recorder {
	r := &recorder{store: s, log: log, metrics: m, relieved: relieved}
	r.arrived = sync.NewCond(&r.mu)
	return r
}

// record queues an outcome. What waits is bounded by recordBacklog and the
// slots of all lanes, since nothing is claimed meanwhile.
func (r *recorder) record(o store.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, o)
	r.arrived.Signal()
}

// behind reports whether more must not be claimed until relieved is called:
// what cannot be recorded would only be sent again and again.
func (r *recorder) behind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaited = r.failing || len(r.waiting) >= recordBacklog
	return r.awaited
}

// close lets run write what waits and return.
func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.arrived.Broadcast()
}

// run writes outcomes until close. When the context ends, it gives up what is
// not written.
func (r *recorder) run(ctx context.Context) {
	for {
		batch := r.take()
		if batch == nil {
			return
		}
		r.write(ctx, batch, false)
		r.setFailing(false)
	}
}

func (r *recorder) take() []store.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) == 0 {
		if r.closed {
			return nil
		}
		r.arrived.Wait()
	}
	n := min(len(r.waiting), recordBatch)
	batch := append([]store.Outcome(nil), r.waiting[:n]...)
	rest := copy(r.waiting, r.waiting[n:])
	clear(r.waiting[rest:])
	r.waiting = r.waiting[:rest]
	return batch
}

func (r *recorder) setFailing(failing bool) {
	r.mu.Lock()
	r.failing = failing
	relieved := r.awaited && !failing && len(r.waiting) < recordBacklog
	if relieved {
		r.awaited = false
	}
	r.mu.Unlock()
	if relieved {
		r.relieved()
	}
}

// write records a batch, trying again while the database is away. uncertain:
// some of it may have taken effect before; what is then found ended is not
// counted as fenced.
func (r *recorder) write(ctx context.Context, batch []store.Outcome, uncertain bool) {
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		took, err := r.complete(ctx, batch)
		switch {
		case err == nil:
			r.countFenced(batch, took, uncertain)
			return
		case !errors.Is(err, store.ErrUnavailable):
			r.isolate(ctx, batch, err)
			return
		}
		r.log.Warn("Recording outcomes failed", "outcomes", len(batch), "error", err)
		if ctx.Err() != nil {
			r.log.Error("Outcomes were not recorded and will be delivered again", "outcomes", len(batch))
			return
		}
		uncertain = true
		r.setFailing(true)
		pause(ctx, jitter(wait))
	}
}

func (r *recorder) complete(ctx context.Context, batch []store.Outcome) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return r.store.Complete(ctx, batch)
}

// isolate keeps an outcome that the database refuses, whatever else it is
// asked to record, from holding up the others.
func (r *recorder) isolate(ctx context.Context, batch []store.Outcome, err error) {
	if len(batch) == 1 {
		r.log.Error("Outcome refused by the database, it will be delivered again",
			"delivery", batch[0].Claim.Token.Delivery.String(), "verdict", string(batch[0].Verdict), "error", err)
		return
	}
	half := len(batch) / 2
	r.write(ctx, batch[:half], true)
	r.write(ctx, batch[half:], true)
}

func (r *recorder) countFenced(batch []store.Outcome, took []bool, uncertain bool) {
	for i, ok := range took {
		if ok {
			continue
		}
		o := &batch[i]
		if uncertain {
			r.log.Info("Outcome was recorded before the connection broke, or the delivery has another owner", "delivery", o.Claim.Token.Delivery.String())
			continue
		}
		r.metrics.fenced.WithLabelValues(string(o.Verdict)).Inc()
		r.log.Warn("Outcome refused, the delivery has another owner", "delivery", o.Claim.Token.Delivery.String(),
			"attempt", o.Claim.Token.Attempt, "verdict", string(o.Verdict))
	}
}
