package replay

import (
	"context"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"
)

// batchSize is how many runs one transaction starts at most. It bounds how
// long other replays wait for their turn.
const batchSize = 200

// Start plans a replay, unless it is planned already, queues everything that
// is planned, wakes the workers, and returns the status after that. It starts
// at most maxPerSecond runs per second, waiting in between; 0 is no bound. The
// errors are those of PlanReplay, of the database and of the context.
func Start(ctx context.Context, s Store, r Request, maxPerSecond int) (Status, error) {
	if err := s.PlanReplay(ctx, r); err != nil {
		return Status{}, err
	}
	status, err := s.ReplayStatus(ctx, r.ID)
	if err != nil {
		return Status{}, err
	}
	batch, limiter := int64(batchSize), rate.NewLimiter(rate.Inf, batchSize)
	if maxPerSecond > 0 {
		batch, limiter = min(batch, int64(maxPerSecond)), newLimiter(maxPerSecond)
	}
	for status.Planned() > 0 {
		n := int(min(batch, status.Planned()))
		if err := limiter.WaitN(ctx, n); err != nil {
			return Status{}, err
		}
		queued, skipped, err := s.RunReplay(ctx, r.ID, r.Present, n)
		if err != nil {
			return Status{}, err
		}
		if queued+skipped == 0 {
			break // another process was faster
		}
		_ = s.Wake(ctx)
		status.Queued += int64(queued)
		status.Skipped += int64(skipped)
	}
	return s.ReplayStatus(ctx, r.ID)
}

// Wait looks at a replay every interval until its runs have all ended or the
// context ends, and tells progress of each status that differs from the one
// before. It returns the last status, with the context's error if that ended
// the waiting.
func Wait(ctx context.Context, s Store, id uuid.UUID, interval time.Duration, progress func(Status)) (Status, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last Status
	for {
		status, err := s.ReplayStatus(ctx, id)
		if err != nil {
			return last, err
		}
		if !status.Same(&last) {
			progress(status)
		}
		last = status
		if status.CompletedAt != nil {
			return status, nil
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-tick.C:
		}
	}
}
