package databases

import (
	"context"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/store"
)

// For returns what replays need of the database at a URL. It connects when it
// is used, and holds nothing in between. Its calls take as long as their
// contexts allow, since a plan has to go through all that it selects from.
func (s *Stores) For(_ context.Context, url string) (replay.Store, error) {
	if err := s.Check(url); err != nil {
		return nil, err
	}
	return replays{s, url}, nil
}

// replays are the calls that replays make of one database.
type replays struct {
	stores *Stores
	url    string
}

// call waits for one of the connections that replays may use.
func (r replays) call(ctx context.Context, call func(*store.Store) error) error {
	d, err := r.stores.acquire(r.url)
	if err != nil {
		return err
	}
	defer r.stores.release(d)
	select {
	case d.replays <- struct{}{}:
		defer func() { <-d.replays }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return d.call(ctx, 0, func(_ context.Context, s *store.Store) error { return call(s) })
}

// CountReplay implements replay.Store.
func (r replays) CountReplay(ctx context.Context, request replay.Request) (status replay.Status, err error) {
	err = r.call(ctx, func(s *store.Store) (err error) {
		status, err = s.CountReplay(ctx, request)
		return err
	})
	return status, err
}

// PlanReplay implements replay.Store.
func (r replays) PlanReplay(ctx context.Context, request replay.Request) error {
	return r.call(ctx, func(s *store.Store) error { return s.PlanReplay(ctx, request) })
}

// RunReplay implements replay.Store.
func (r replays) RunReplay(ctx context.Context, id uuid.UUID, present []string, batch int) (queued, skipped int, err error) {
	err = r.call(ctx, func(s *store.Store) (err error) {
		queued, skipped, err = s.RunReplay(ctx, id, present, batch)
		return err
	})
	return queued, skipped, err
}

// ReplayStatus implements replay.Store.
func (r replays) ReplayStatus(ctx context.Context, id uuid.UUID) (status replay.Status, err error) {
	err = r.call(ctx, func(s *store.Store) (err error) {
		status, err = s.ReplayStatus(ctx, id)
		return err
	})
	return status, err
}

// Wake implements replay.Store.
func (r replays) Wake(ctx context.Context) error {
	return r.call(ctx, func(s *store.Store) error { return s.Wake(ctx) })
}
