package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

// Sender carries out exchanges with one destination. Send must return when
// its context ends, and its outcome's texts must be fit for the database:
// valid UTF-8, bounded, without secrets.
type Sender interface {
	Send(ctx context.Context, r *deliver.Request) deliver.Outcome
}

// Store is the database as a worker needs it. A *store.Store is one.
type Store interface {
	// Claim returns after the commit, which wrote the intents.
	Claim(ctx context.Context, worker string, wants []store.Want) ([]*store.Claim, error)
	// Complete and Renew say of each claim whether it still held.
	Complete(ctx context.Context, outcomes []store.Outcome) ([]bool, error)
	Renew(ctx context.Context, claims []*store.Claim, leases []time.Duration) ([]bool, error)
	// Listen calls wake for each notification until its connection breaks.
	Listen(ctx context.Context, wake func()) error
	Maintain(ctx context.Context, keeps []store.Keep) (store.Maintained, error)
	Counts(ctx context.Context, destinations []event.DestinationRef) ([]event.Counts, error)
	DeadCounts(ctx context.Context, endpoints []event.EndpointRef, soon []time.Duration) ([]event.DeadCounts, error)
}

// Options are what a worker needs beside its configuration.
type Options struct {
	// Name tells this worker from others in the ledger, such as its pod's.
	Name  string
	Store Store
	// Sender makes the sender of a destination.
	Sender func(pipeline.Destination) (Sender, error)
	Logger *slog.Logger
	// Registerer takes the worker's metrics.
	Registerer prometheus.Registerer
	// PollInterval is how often an idle worker looks at least for work that
	// no notification told it of, 1 s by default; each time is jittered, and
	// shorter. It bounds how long an expired lease goes unnoticed.
	PollInterval time.Duration
	// DrainTimeout bounds how long exchanges under way may go on after Run
	// was told to stop, 25 s by default.
	DrainTimeout time.Duration
}

const (
	// upkeepInterval is how often the database's housekeeping is offered
	// and the queue gauges are refreshed.
	upkeepInterval = 10 * time.Second
	// statementTimeout bounds one statement. It is far above what a
	// statement takes, and ends one whose connection is dead.
	statementTimeout = 10 * time.Second
	// flushTimeout bounds how long a stopping worker tries to record the
	// last outcomes.
	flushTimeout = 5 * time.Second
	// retryMin and retryMax bound the pause after the database failed.
	retryMin = 50 * time.Millisecond
	retryMax = time.Second
)

// Worker runs the deliveries of a pipeline.
type Worker struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	lanes   *lanes
	held    *heldSet
	keeps   []store.Keep
	// endpoints are all of the configuration, and notices for each how long
	// before they are purged dead letters count as expiring.
	endpoints []event.EndpointRef
	notices   []time.Duration

	// found wakes the claim loop: new work, or a free slot where more waits.
	found     chan look
	recorder  *recorder
	exchanges sync.WaitGroup
}

// New makes a worker for all endpoints of a configuration. Nothing runs until
// Run is called.
func New(c *pipeline.Config, o Options) (*Worker, error) {
	if o.Name == "" || o.Store == nil || o.Sender == nil || o.Logger == nil || o.Registerer == nil {
		return nil, errors.New("worker: Name, Store, Sender, Logger and Registerer are required")
	}
	if o.PollInterval == 0 {
		o.PollInterval = time.Second
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 25 * time.Second
	}
	w := &Worker{
		opts:    o,
		log:     o.Logger,
		metrics: newMetrics(o.Registerer),
		lanes:   newLanes(c),
		held:    newHeldSet(),
		keeps:   Keeps(c),
		found:   make(chan look, 1),
	}
	w.endpoints, w.notices = notices(c)
	for _, n := range w.lanes.all {
		sender, err := o.Sender(*n.destination)
		if err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", n.ref.Endpoint, err)
		}
		n.sender = sender
		n.metrics = w.metrics.lane(n.ref)
	}
	w.recorder = newRecorder(o.Store, w.log, w.metrics, func() { w.wake(lookAll) })
	return w, nil
}

// Run claims and delivers until the context ends. Then it claims no more,
// lets exchanges under way finish within DrainTimeout, cuts off the rest,
// hands back what was not sent, records every outcome that it can, and
// returns. A database that is away never ends it, and holds up its return for
// some seconds at most.
func (w *Worker) Run(ctx context.Context) {
	// The rest of the machinery outlives ctx, which only says to stop
	// claiming.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	sending, cut := context.WithCancel(working)
	defer cut()

	var loops sync.WaitGroup
	loops.Go(func() { w.renewLeases(working) })
	loops.Go(func() { w.listen(ctx) })
	loops.Go(func() { w.upkeep(ctx) })
	loops.Go(func() {
		<-ctx.Done()
		pause(working, w.opts.DrainTimeout)
		cut()
	})
	recorded := make(chan struct{})
	go func() {
		defer close(recorded)
		w.recorder.run(working)
	}()

	w.log.Info("Worker started", "name", w.opts.Name, "destinations", len(w.lanes.all))
	w.claimLoop(ctx, sending)
	w.log.Info("Worker draining", "timeout", w.opts.DrainTimeout.String())
	w.exchanges.Wait()
	w.recorder.close()
	overdue := time.AfterFunc(flushTimeout, stop)
	defer overdue.Stop()
	<-recorded
	stop()
	loops.Wait()
	w.log.Info("Worker stopped")
}

// wake asks the claim loop to look, and never blocks: a look that is pending
// is widened instead.
func (w *Worker) wake(how look) {
	for {
		select {
		case w.found <- how:
			return
		default:
		}
		select {
		case pending := <-w.found:
			how = max(how, pending)
		default:
		}
	}
}

// claimLoop claims as long as lanes have room and work, and otherwise waits
// to be woken or for the next poll.
func (w *Worker) claimLoop(ctx, sending context.Context) {
	poll := time.NewTimer(0)
	defer poll.Stop()
	backOff := retryMin
	for how := lookAll; ctx.Err() == nil; {
		if how == lookAll {
			poll.Reset(jitter(w.opts.PollInterval))
		}
		again, err := w.claim(ctx, sending, how)
		if err != nil {
			w.log.Warn("Claiming failed", "error", err)
			pause(ctx, jitter(backOff))
			backOff = min(2*backOff, retryMax)
			how = lookAll
			continue
		}
		backOff = retryMin
		how = w.nextLook(ctx, poll, again)
	}
}

// nextLook says how to look next: as widely as somebody asked for, at once
// where lanes have more, and otherwise when there is a reason.
func (w *Worker) nextLook(ctx context.Context, poll *time.Timer, again bool) look {
	if again {
		select {
		case how := <-w.found:
			return how
		case <-poll.C:
			return lookAll
		default:
			return lookMore
		}
	}
	select {
	case <-ctx.Done():
		return lookAll
	case how := <-w.found:
		return how
	case <-poll.C:
		return lookAll
	}
}

// claim takes what is due and starts it. It reports whether to claim again at
// once.
func (w *Worker) claim(ctx, sending context.Context, how look) (again bool, err error) {
	if w.recorder.behind() {
		return false, nil
	}
	start := time.Now()
	wants := w.lanes.wants(how, start)
	if len(wants) == 0 {
		return false, nil
	}
	// Not the context that says to stop: a claim that was given up half-way
	// would leave deliveries without an owner until their leases end.
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	claims, err := w.opts.Store.Claim(claiming, w.opts.Name, wants)
	if err != nil {
		return false, err
	}
	w.metrics.claims.Observe(float64(len(claims)))
	w.lanes.admit(wants, claims, start)
	for _, c := range claims {
		w.start(ctx, sending, c, start)
	}
	return w.lanes.anyMore(), nil
}

// listen passes notifications on, and comes back when its connection breaks.
func (w *Worker) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.opts.Store.Listen(ctx, func() { w.wake(lookAll) })
		if ctx.Err() != nil {
			return
		}
		w.log.Debug("Listening for work broke off", "error", err)
		pause(ctx, jitter(retryMax))
	}
}

// jitter returns a duration between 70 and 95 % of d, so that workers that
// started together do not look together, and what is done every d has begun
// and ended by then.
func jitter(d time.Duration) time.Duration {
	return d*7/10 + rand.N(d/4+1) //nolint:gosec // no secret depends on it
}

// pause waits, or returns early when the context ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
