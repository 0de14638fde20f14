package replay

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/store"
)

// batchSize is how many runs one transaction starts. It bounds how long other
// replays wait for their turn.
const batchSize = 200

// Start plans a replay, unless it is planned already, queues everything that
// is planned, wakes the workers, and returns the status after that. The
// errors are those of store.PlanReplay and of the database.
func Start(ctx context.Context, s *store.Store, r store.Replay) (store.ReplayStatus, error) {
	if err := s.PlanReplay(ctx, r); err != nil {
		return store.ReplayStatus{}, err
	}
	for {
		queued, skipped, err := s.RunReplay(ctx, r.ID, batchSize)
		if err != nil {
			return store.ReplayStatus{}, err
		}
		if queued+skipped == 0 {
			break
		}
		// Workers that miss it find the runs at their next poll.
		_ = s.Wake(ctx)
	}
	return s.ReplayStatus(ctx, r.ID)
}

// Wait looks at a replay every interval until its runs have all ended or the
// context ends, and tells progress of each status that differs from the one
// before. It returns the last status, with the context's error if that ended
// the waiting.
func Wait(ctx context.Context, s *store.Store, id uuid.UUID, interval time.Duration, progress func(store.ReplayStatus)) (store.ReplayStatus, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last store.ReplayStatus
	for {
		status, err := s.ReplayStatus(ctx, id)
		if err != nil {
			return last, err
		}
		if status != last {
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
