package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

var _ replay.Store = (*Store)(nil)

// CountReplay returns the status that a replay would have after PlanReplay: by
// the same selection, and without changing anything. What would be skipped
// because its destination is gone already counts as skipped.
func (s *Store) CountReplay(ctx context.Context, r replay.Request) (replay.Status, error) {
	var status replay.Status
	if err := s.checkDestinations(ctx, &r); err != nil {
		return status, err
	}
	args := append(selection(&r), r.Present)
	err := s.pool.QueryRow(ctx, sqlCountReplay, args...).Scan(&status.PlannedAt, &status.Matched, &status.Skips.DestinationGone, &status.Sample)
	status.Skipped = status.Skips.DestinationGone
	if errors.Is(err, pgx.ErrNoRows) {
		return replay.Status{}, fmt.Errorf("endpoint %s: %w", r.Endpoint, replay.ErrUnknownEndpoint)
	}
	return status, classify("counting what the replay would take", err)
}

// PlanReplay freezes what a replay will take. Planning an id again changes
// nothing: it returns replay.ErrChanged where the spec differs, nil otherwise.
func (s *Store) PlanReplay(ctx context.Context, r replay.Request) error {
	if err := s.checkDestinations(ctx, &r); err != nil {
		return err
	}
	var created bool
	args := append(selection(&r), r.ID, r.Namespace, r.Name, r.Spec)
	err := s.pool.QueryRow(ctx, sqlPlanReplay, args...).Scan(&created)
	if err == nil && !created {
		return s.comparePlanned(ctx, r)
	}
	return classify("planning the replay", err)
}

// checkDestinations refuses to look for events that are missing at a
// destination which the database does not know yet, or never will: it would
// find none, where all are missing.
func (s *Store) checkDestinations(ctx context.Context, r *replay.Request) error {
	if !slices.Contains(r.Selector.States, replay.StateMissing) {
		return nil
	}
	var unknown string
	err := s.pool.QueryRow(ctx, sqlUnknownNames, r.Endpoint.Namespace, r.Endpoint.Name, r.Selector.Destinations).Scan(&unknown)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return classify("looking for the replay's destinations", err)
	}
	return fmt.Errorf("destination %q: %w", unknown, replay.ErrUnknownDestination)
}

// stateNames are the states as select_replay.sql has them.
var stateNames = map[event.State]string{event.StateDead: "Dead", event.StateDone: "Done", replay.StateMissing: "Missing"}

// selection are the arguments of select_replay.sql; nil slices become NULL:
// any.
func selection(r *replay.Request) []any {
	x := &r.Selector
	states := make([]string, len(x.States))
	for i, state := range x.States {
		states[i] = stateNames[state]
	}
	var limit *int64
	if r.Limit > 0 {
		limit = &r.Limit
	}
	return []any{
		r.Endpoint.Namespace, r.Endpoint.Name, states, orNil(x.Destinations), orNil(x.Types), orNil(x.Events),
		x.ReceivedAfter, x.ReceivedBefore, limit, orNil(x.Reasons), orNil(x.Statuses), x.DiedAfter, x.DiedBefore,
	}
}

func orNil[T any](values []T) []T {
	if len(values) == 0 {
		return nil
	}
	return values
}

// comparePlanned says why a replay was not created: it is there, or its
// endpoint is not.
func (s *Store) comparePlanned(ctx context.Context, r replay.Request) error {
	var spec string
	err := s.pool.QueryRow(ctx, "SELECT spec FROM replay WHERE id = $1", r.ID).Scan(&spec)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("endpoint %s: %w", r.Endpoint, replay.ErrUnknownEndpoint)
	case err != nil:
		return classify("planning the replay", err)
	case spec != r.Spec:
		return replay.ErrChanged
	}
	return nil
}

// RunReplay starts new runs for the next planned deliveries of a replay, at
// most batch, and returns how many were queued and how many had to be
// skipped; both are 0 when nothing is planned any more. Present are the
// destinations that the endpoint has, nil if that is not known: for others no
// run is started. However often and from wherever it is called, and whenever
// it is interrupted, a planned delivery is taken once.
func (s *Store) RunReplay(ctx context.Context, id uuid.UUID, present []string, batch int) (queued, skipped int, err error) {
	b := &pgx.Batch{}
	lockReplays(b)
	b.Queue(sqlRunReplay, id, batch, present).QueryRow(func(row pgx.Row) error { return row.Scan(&queued, &skipped) })
	return queued, skipped, classify("running the replay", s.together(ctx, b))
}

// lockReplays keeps new runs from being started until the transaction ends.
// It is a statement of its own, so that the snapshot of the next one is taken
// after the lock is held.
func lockReplays(b *pgx.Batch) {
	b.Queue("SELECT pg_advisory_xact_lock(hashtext('ackrail replay'), hashtext(current_schema()))")
}

// ReplayStatus returns a replay's status, or replay.ErrNotPlanned. Once every
// run has ended, it records the result, which then stays even when what it
// counted is purged.
func (s *Store) ReplayStatus(ctx context.Context, id uuid.UUID) (replay.Status, error) {
	if _, err := s.pool.Exec(ctx, sqlFinishReplay, id); err != nil {
		return replay.Status{}, classify("reading the replay's status", err)
	}
	var r replay.Status
	err := s.pool.QueryRow(ctx, sqlReplayStatus, id).Scan(&r.PlannedAt, &r.CompletedAt,
		&r.Matched, &r.Queued, &r.Skipped,
		&r.Skips.AlreadyPending, &r.Skips.PayloadPurged, &r.Skips.Purged, &r.Skips.TakenByAnotherReplay, &r.Skips.DestinationGone,
		&r.Succeeded, &r.Dead, &r.Open, &r.Failed, &r.OpenAt, &r.Sample)
	if errors.Is(err, pgx.ErrNoRows) {
		return replay.Status{}, replay.ErrNotPlanned
	}
	return r, classify("reading the replay's status", err)
}
