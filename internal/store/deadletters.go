package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
)

// DeadLetterFilter says which dead letters to read, of those that no replay
// has taken up. Empty fields match any.
type DeadLetterFilter struct {
	Namespace, Endpoint, Destination string
	Types                            []string
	Reasons                          []event.Reason
	// Limit bounds the page; it must be positive.
	Limit int
	// Bytes of bodies with which a page has enough. There is always room for
	// one dead letter.
	Bytes int64
	// After is the last one of the page before; nil for the first page.
	After *DeadLetter
}

// DeadLetter is a dead delivery with its event.
type DeadLetter struct {
	DeliveryRecord
	// Event is nil when it is no longer there.
	Event *event.Event

	destination int
}

// DeadLetters returns a page of the dead letters that match, those of the
// oldest events first; an empty one after the last.
func (s *Store) DeadLetters(ctx context.Context, f DeadLetterFilter) ([]DeadLetter, error) {
	const doing = "reading dead letters"
	reasons := make([]string, len(f.Reasons))
	for i, reason := range f.Reasons {
		reasons[i] = string(reason)
	}
	after := f.After
	if after == nil {
		after = &DeadLetter{} // before every id
	}
	rows, err := s.pool.Query(ctx, sqlDeadLetters, stringOrNil(f.Namespace), stringOrNil(f.Endpoint), stringOrNil(f.Destination),
		orNil(f.Types), orNil(reasons), after.Key.Event, after.destination, after.Key.Run, f.Limit, f.Bytes)
	if err != nil {
		return nil, classify(doing, err)
	}
	letters, err := pgx.CollectRows(rows, scanDeadLetter)
	return letters, classify(doing, err)
}

func scanDeadLetter(row pgx.CollectableRow) (DeadLetter, error) {
	l := DeadLetter{DeliveryRecord: DeliveryRecord{State: event.StateDead}}
	e := &event.Event{}
	var status *int
	var died time.Time
	var headers []byte
	to := &l.Key.Destination
	err := row.Scan(&l.Key.Event, &l.destination, &l.Key.Run, &to.Endpoint.Namespace, &to.Endpoint.Name, &to.Name, &l.Attempts, &died, &l.Reason, &status,
		&l.ErrorClass, &l.LastError, &l.Replay, &l.Size, &l.ReceivedAt, &e.Type, &e.Key, &e.ContentType, &e.TraceParent, &headers, &e.Body)
	if err != nil {
		return l, err
	}
	l.EndedAt = &died
	if status != nil {
		l.LastStatus = *status
	}
	if l.ReceivedAt == nil {
		return l, nil
	}
	e.ID, e.Endpoint, e.ReceivedAt = l.Key.Event, to.Endpoint, *l.ReceivedAt
	l.Type, l.Event = e.Type, e
	return l, json.Unmarshal(headers, &e.Headers)
}
