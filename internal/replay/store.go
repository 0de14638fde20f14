package replay

import (
	"context"

	"github.com/google/uuid"
)

// Store is the database that holds plans and runs. It is safe for concurrent
// use, also by several processes for the same replay.
type Store interface {
	// CountReplay returns the status that the replay would have after
	// PlanReplay, and changes nothing. It may return ErrUnknownEndpoint and
	// ErrUnknownDestination.
	CountReplay(ctx context.Context, r Request) (Status, error)
	// PlanReplay freezes what the replay takes, once for each id. It may
	// return ErrUnknownEndpoint, ErrUnknownDestination and ErrChanged.
	PlanReplay(ctx context.Context, r Request) error
	// RunReplay starts runs for the next planned deliveries, at most batch,
	// and returns how many were queued and how many had to be skipped: both
	// are 0 when nothing is planned any more. Of present see
	// Request.Present.
	RunReplay(ctx context.Context, id uuid.UUID, present []string, batch int) (queued, skipped int, err error)
	// ReplayStatus returns the status, or ErrNotPlanned.
	ReplayStatus(ctx context.Context, id uuid.UUID) (Status, error)
	// Wake tells the workers that something is due. Workers that miss it
	// find it at their next poll.
	Wake(ctx context.Context) error
}
