package replay

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
)

// Request asks for new runs of deliveries.
type Request struct {
	// ID is the replay's identity: whatever is asked for under one id
	// happens once.
	ID              uuid.UUID
	Namespace, Name string
	Endpoint        event.EndpointRef
	Selector        Selector
	// Limit bounds how many deliveries are taken, the oldest first; 0 is
	// no bound.
	Limit int64
	// Spec is what its author wrote of all that decides which deliveries are
	// taken, in a canonical form: a second request under the same id must
	// have the same.
	Spec string
	// Present are the destinations that the endpoint has at this moment: what
	// is planned for another one is skipped when its turn comes. Nil: not
	// known, so nothing is.
	Present []string
}

// Selector says which deliveries of an endpoint a replay takes. Empty fields
// select any. What is done has neither a reason nor a time of death, so it
// meets no criterion about these, and what is missing none about statuses either.
type Selector struct {
	// States are some of event.StateDead, event.StateDone and StateMissing.
	States       []event.State
	Destinations []string
	Types        []string
	Events       []event.ID
	// ReceivedAfter is inclusive, ReceivedBefore exclusive.
	ReceivedAfter, ReceivedBefore *time.Time
	// Reasons are why deliveries are dead.
	Reasons []event.Reason
	// Statuses are HTTP status codes, of the last attempt.
	Statuses []int32
	// DiedAfter is inclusive, DiedBefore exclusive.
	DiedAfter, DiedBefore *time.Time
}

// StateMissing selects events of which there is no trace at the destinations
// named: neither a delivery nor what one leaves behind. The run that is started
// is the first.
const StateMissing event.State = "missing"

// Status tells how far a replay is. Its times are the database's.
type Status struct {
	PlannedAt time.Time
	// CompletedAt is set once every run that the replay started has ended.
	CompletedAt *time.Time
	// Matched is frozen by the plan. Queued counts runs that were started,
	// Skipped what could not be replayed any more; the rest of Matched is
	// still planned.
	Matched, Queued, Skipped int64
	// Skips is Skipped by reason.
	Skips Skips
	// Succeeded, Dead and Open are the runs that were started.
	Succeeded, Dead, Open int64
	// Failed are those of Open whose last attempt failed: they wait for
	// their next one, and for no worker.
	Failed int64
	// OpenAt is Open by destination, sorted by name.
	OpenAt []OpenRuns
	// Sample are events of the plan: the 20 oldest.
	Sample []event.ID
}

// OpenRuns are the runs at one destination that have not ended.
type OpenRuns struct {
	Destination string
	// Failed are those of Open that wait for their next attempt.
	Open, Failed int64
}

// Skips counts planned deliveries for which no run was started.
type Skips struct {
	// AlreadyPending: another run had not ended.
	AlreadyPending int64
	// PayloadPurged: the event was gone.
	PayloadPurged int64
	// Purged: the record of the delivery was gone.
	Purged int64
	// TakenByAnotherReplay: another replay's run of it has ended.
	TakenByAnotherReplay int64
	// DestinationGone: the endpoint no longer had the destination.
	DestinationGone int64
}

// Planned returns how many deliveries of the plan are neither queued nor
// skipped yet.
func (s *Status) Planned() int64 { return s.Matched - s.Queued - s.Skipped }

// Stranded returns the runs that have not ended and cannot, as long as the
// endpoint has no destinations but those present: nil if it is not known.
func (s *Status) Stranded(present []string) (runs []OpenRuns) {
	for _, r := range s.OpenAt {
		if present != nil && !slices.Contains(present, r.Destination) {
			runs = append(runs, r)
		}
	}
	return runs
}

// Same reports whether two looks at the same replay have seen the same.
func (s *Status) Same(other *Status) bool { return reflect.DeepEqual(s, other) }

// The errors of a Store that are no trouble of the database.
var (
	// ErrUnknownEndpoint: the database has never seen the endpoint.
	ErrUnknownEndpoint = errors.New("the database knows no such endpoint")
	// ErrUnknownDestination: the database has never seen a destination for
	// which events are missing.
	ErrUnknownDestination = errors.New("the database knows no such destination of the endpoint")
	// ErrChanged: the id was used before with another Spec.
	ErrChanged = errors.New("a replay of this name with another spec was started before")
	// ErrNotPlanned: there is no plan under the id.
	ErrNotPlanned = errors.New("the replay is not planned")
)
