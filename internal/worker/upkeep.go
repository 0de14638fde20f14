package worker

import (
	"context"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

// renewLeases extends the leases of what is held, each when a third of it has
// passed, and cuts off what another worker has taken over.
func (w *Worker) renewLeases(ctx context.Context) {
	tick := time.NewTicker(w.renewInterval())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.renew(ctx, w.held.due(time.Now()))
		}
	}
}

// renewInterval is a tenth of the shortest lease, so that a renewal is late
// by no more than that.
func (w *Worker) renewInterval() time.Duration {
	shortest := time.Minute
	for _, n := range w.lanes.all {
		shortest = min(shortest, n.endpoint.Lease())
	}
	return shortest / 10
}

func (w *Worker) renew(ctx context.Context, due []*held) {
	for len(due) > 0 {
		n := min(len(due), recordBatch)
		w.renewBatch(ctx, due[:n])
		due = due[n:]
	}
}

func (w *Worker) renewBatch(ctx context.Context, due []*held) {
	claims := make([]*store.Claim, len(due))
	leases := make([]time.Duration, len(due))
	for i, h := range due {
		claims[i], leases[i] = h.claim, h.lane.endpoint.Lease()
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	start := time.Now()
	holds, err := w.opts.Store.Renew(ctx, claims, leases)
	if err != nil {
		w.log.Warn("Renewing leases failed", "deliveries", len(due), "error", err)
		return
	}
	for i, h := range due {
		if holds[i] {
			w.held.confirm(h, start)
			continue
		}
		// Not an outcome of its own that was recorded in the meantime?
		if w.held.remove(h) {
			w.metrics.fenced.WithLabelValues("renewed").Inc()
			w.log.Warn("Lease lost, the delivery has another owner", "delivery", h.claim.Token.Delivery.String(), "attempt", h.claim.Token.Attempt)
			h.cancel()
		}
	}
}

// upkeep does the database's share of housekeeping that falls to this worker
// and refreshes the gauges of the queue.
func (w *Worker) upkeep(ctx context.Context) {
	for ctx.Err() == nil {
		w.upkeepOnce(ctx)
		pause(ctx, jitter(upkeepInterval))
	}
}

func (w *Worker) upkeepOnce(running context.Context) {
	ctx, cancel := context.WithTimeout(running, time.Minute)
	defer cancel()
	did, err := w.opts.Store.Maintain(ctx, w.keeps)
	if err != nil && running.Err() == nil {
		w.log.Warn("Maintaining the database failed", "error", err)
	}
	if len(did.Created)+len(did.Dropped) > 0 {
		w.log.Info("Partitions changed", "created", did.Created, "dropped", did.Dropped, "eventsHeld", did.Held)
	}
	if did.DeadLetters > 0 {
		w.log.Warn("Dead letters expired", "count", did.DeadLetters)
	}
	if err := w.count(ctx); err != nil {
		w.log.Debug("Counting deliveries failed", "error", err)
	}
}

// count refreshes the gauges of what is in the database.
func (w *Worker) count(ctx context.Context) error {
	counts, err := w.opts.Store.Counts(ctx, w.lanes.refs())
	if err != nil {
		return err
	}
	for i, n := range w.lanes.all {
		n.metrics.queue(&counts[i])
	}
	graves, err := w.opts.Store.DeadCounts(ctx, w.endpoints, w.notices)
	if err != nil {
		return err
	}
	byRef := map[event.DestinationRef]*event.DeadCounts{}
	for i := range graves {
		byRef[graves[i].Destination] = &graves[i]
	}
	for _, n := range w.lanes.all {
		dead := byRef[n.ref]
		if dead == nil {
			dead = &event.DeadCounts{}
		}
		n.metrics.graves(dead)
	}
	return nil
}

// notices returns a configuration's endpoints, and for each how long before
// they are purged its dead letters count as expiring.
func notices(c *pipeline.Config) (refs []event.EndpointRef, soon []time.Duration) {
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		refs, soon = append(refs, e.Ref()), append(soon, event.PurgeNotice(e.Retention.DeadLetters()))
	}
	return refs, soon
}

// Keeps returns the distinct retentions of a configuration's endpoints, for
// which the database needs partitions.
func Keeps(c *pipeline.Config) []store.Keep {
	seen := map[store.Keep]bool{}
	var keeps []store.Keep
	for i := range c.Endpoints {
		r := &c.Endpoints[i].Retention
		k := store.Keep{Events: r.Events(), Ledger: r.Ledger()}
		if !seen[k] {
			seen[k] = true
			keeps = append(keeps, k)
		}
	}
	return keeps
}
