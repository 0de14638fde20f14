package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ackrail/ackrail/internal/backoff"
	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

// start carries a claim out on a goroutine of its own, or hands it back if it
// came when the worker was told to stop already.
func (w *Worker) start(working, sending context.Context, c *store.Claim, claimed time.Time) {
	n := w.lanes.byRef[c.Token.Delivery.Destination]
	ctx, cancel := context.WithCancel(sending)
	if working.Err() != nil {
		cancel()
	}
	h := &held{claim: c, lane: n, cancel: cancel, claimed: claimed, confirmed: claimed}
	w.held.add(h)
	w.exchanges.Go(func() {
		defer cancel()
		w.finish(h, w.exchange(ctx, h))
	})
}

// exchange sends a delivery, unless there is a reason not to, and says how
// that ended.
func (w *Worker) exchange(ctx context.Context, h *held) store.Outcome {
	switch {
	case h.claim.Exhausted && h.claim.OutcomeKnown:
		return dead(h, event.ReasonAttemptsExhausted, deliver.Outcome{
			Error: "no attempt is left: maxAttempts is lower than it was at the last one",
		})
	case h.claim.Exhausted:
		return dead(h, event.ReasonOutcomeUnknown, deliver.Outcome{
			Error: "the last allowed attempt was made by a worker that vanished before it could say how it ended",
		})
	case h.claim.Damage != nil:
		return dead(h, event.ReasonPayloadMissing, deliver.Outcome{
			Error: fmt.Sprintf("the database cannot read the event: %.400v", h.claim.Damage),
		})
	case h.claim.PayloadMissing:
		return dead(h, event.ReasonPayloadMissing, deliver.Outcome{Error: "the event is no longer in the database"})
	case ctx.Err() != nil, w.held.leaseLeft(h, time.Now()) < h.lane.destination.HTTP.Timeout():
		// Stopping, or so much of the lease has passed (a slow claim, a
		// stopped process) that somebody else might send it as well.
		return released(h)
	}
	h.lane.metrics.inFlight.Inc()
	defer h.lane.metrics.inFlight.Dec()
	return judge(h, h.lane.sender.Send(ctx, request(h.claim)), rand.Uint64N)
}

// finish hands an outcome over to be recorded, unless the delivery was found
// to have another owner, and gives the slot back.
func (w *Worker) finish(h *held, o store.Outcome) {
	size := int64(len(h.claim.Event.Body))
	h.claim.Event.Body = nil // or it would stay, uncounted, until the outcome is recorded
	if w.held.remove(h) {
		h.lane.metrics.observe(h, &o)
		w.recorder.record(o)
	}
	if w.lanes.release(h.lane, size, h.claim.Replay != nil) {
		w.wake(lookMore)
	}
}

func request(c *store.Claim) *deliver.Request {
	return &deliver.Request{Event: &c.Event, Run: c.Token.Delivery.Run, Attempt: c.Attempts, Replay: c.Replay}
}

// judge says what the outcome of an exchange means for the delivery.
func judge(h *held, o deliver.Outcome, random func(uint64) uint64) store.Outcome {
	retry := &h.lane.destination.Retry
	switch {
	case o.Verdict == event.VerdictDone, o.Verdict == event.VerdictReleased:
		return outcome(h, o.Verdict, o)
	case o.Verdict == event.VerdictDead:
		return dead(h, event.ReasonPermanentStatus, o)
	case h.claim.Attempts >= retry.MaxAttempts:
		return dead(h, event.ReasonAttemptsExhausted, o)
	}
	failed := outcome(h, event.VerdictFailed, o)
	if o.Class != event.ErrorCanceled {
		failed.Delay = schedule(retry).Next(h.claim.Attempts, o.RetryAfter, random)
	}
	return failed
}

func schedule(r *pipeline.Retry) backoff.Schedule {
	return backoff.Schedule{Min: r.MinBackoff(), Max: r.MaxBackoff()}
}

func dead(h *held, reason event.Reason, o deliver.Outcome) store.Outcome {
	d := outcome(h, event.VerdictDead, o)
	d.Reason = reason
	return d
}

func released(h *held) store.Outcome {
	return outcome(h, event.VerdictReleased, deliver.Outcome{})
}

func outcome(h *held, v event.Verdict, o deliver.Outcome) store.Outcome {
	retention := &h.lane.endpoint.Retention
	keepEnded := retention.Events()
	if v == event.VerdictDead {
		keepEnded = retention.DeadLetters()
	}
	return store.Outcome{
		Claim:      h.claim,
		Verdict:    v,
		Status:     o.Status,
		Latency:    o.Latency,
		ErrorClass: o.Class,
		Error:      o.Error,
		Excerpt:    o.Excerpt,
		KeepLedger: retention.Ledger(),
		KeepEnded:  keepEnded,
	}
}
