package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
)

// Selector says which deliveries of an endpoint a replay takes. Empty fields
// select any.
type Selector struct {
	// States are event.StateDead, event.StateDone or both.
	States       []event.State
	Destinations []string
	Types        []string
	Events       []event.ID
	// ReceivedAfter is inclusive, ReceivedBefore exclusive.
	ReceivedAfter, ReceivedBefore *time.Time
}

// Replay asks for new runs of deliveries.
type Replay struct {
	// ID is the replay's identity: whatever is asked for under one id
	// happens once.
	ID              uuid.UUID
	Namespace, Name string
	Endpoint        event.EndpointRef
	Selector        Selector
	// Limit bounds how many deliveries are taken, the oldest first; 0 is
	// no bound.
	Limit int64
	// Spec is the request as its author wrote it, in a canonical form: a
	// second request under the same id must have the same.
	Spec string
}

// ReplayStatus tells how far a replay is.
type ReplayStatus struct {
	PlannedAt time.Time
	// CompletedAt is set once every run that the replay started has ended.
	CompletedAt *time.Time
	// Matched is frozen by the plan. Queued counts runs that were started,
	// Skipped what could not be replayed any more; the rest of Matched is
	// still planned.
	Matched, Queued, Skipped int64
	// Succeeded, Dead and Open are the runs that were started.
	Succeeded, Dead, Open int64
}

// Planned returns how many deliveries of the plan are neither queued nor
// skipped yet.
func (r *ReplayStatus) Planned() int64 { return r.Matched - r.Queued - r.Skipped }

// The errors of PlanReplay.
var (
	// ErrUnknownEndpoint: the database has never seen the endpoint.
	ErrUnknownEndpoint = errors.New("the database knows no such endpoint")
	// ErrReplayChanged: the id was used before with another Spec.
	ErrReplayChanged = errors.New("a replay of this name with another spec was started before")
)

// PlanReplay freezes what a replay will take. Planning an id again changes
// nothing: it returns ErrReplayChanged where the spec differs, nil otherwise.
func (s *Store) PlanReplay(ctx context.Context, r Replay) error {
	var created bool
	err := s.pool.QueryRow(ctx, sqlPlanReplay, r.planArgs()...).Scan(&created)
	if err == nil && !created {
		return s.comparePlanned(ctx, r)
	}
	return classify("planning the replay", err)
}

// planArgs are the arguments of the plan; nil slices become NULL: any.
func (r *Replay) planArgs() []any {
	states := make([]string, len(r.Selector.States))
	for i, state := range r.Selector.States {
		states[i] = map[event.State]string{event.StateDead: "Dead", event.StateDone: "Done"}[state]
	}
	var limit *int64
	if r.Limit > 0 {
		limit = &r.Limit
	}
	x := r.Selector
	return []any{
		r.ID, r.Endpoint.Namespace, r.Endpoint.Name, states, orNil(x.Destinations), orNil(x.Types), orNil(x.Events),
		x.ReceivedAfter, x.ReceivedBefore, limit, r.Namespace, r.Name, r.Spec,
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
func (s *Store) comparePlanned(ctx context.Context, r Replay) error {
	var spec string
	err := s.pool.QueryRow(ctx, "SELECT spec FROM replay WHERE id = $1", r.ID).Scan(&spec)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("endpoint %s: %w", r.Endpoint, ErrUnknownEndpoint)
	case err != nil:
		return classify("planning the replay", err)
	case spec != r.Spec:
		return ErrReplayChanged
	}
	return nil
}

// RunReplay starts new runs for the next planned deliveries of a replay, at
// most batch, and returns how many were queued and how many had to be
// skipped; both are 0 when nothing is planned any more. However often and
// from wherever it is called, and whenever it is interrupted, a planned
// delivery is taken once.
func (s *Store) RunReplay(ctx context.Context, id uuid.UUID, batch int) (queued, skipped int, err error) {
	b := &pgx.Batch{}
	lockReplays(b)
	b.Queue(sqlRunReplay, id, batch).QueryRow(func(row pgx.Row) error { return row.Scan(&queued, &skipped) })
	return queued, skipped, classify("running the replay", s.together(ctx, b))
}

// lockReplays keeps new runs from being started until the transaction ends.
// It is a statement of its own, so that the snapshot of the next one is taken
// after the lock is held.
func lockReplays(b *pgx.Batch) {
	b.Queue("SELECT pg_advisory_xact_lock(hashtext('ackrail replay'), hashtext(current_schema()))")
}

// ReplayStatus returns a replay's status, or ErrNotFound. Once every run has ended, it
// records the result, which then stays even when what it counted is purged.
func (s *Store) ReplayStatus(ctx context.Context, id uuid.UUID) (ReplayStatus, error) {
	if _, err := s.pool.Exec(ctx, sqlFinishReplay, id); err != nil {
		return ReplayStatus{}, classify("reading the replay's status", err)
	}
	var r ReplayStatus
	err := s.pool.QueryRow(ctx, sqlReplayStatus, id).Scan(&r.PlannedAt, &r.CompletedAt,
		&r.Matched, &r.Queued, &r.Skipped, &r.Succeeded, &r.Dead, &r.Open)
	if errors.Is(err, pgx.ErrNoRows) {
		return ReplayStatus{}, ErrNotFound
	}
	return r, classify("reading the replay's status", err)
}
