package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
)

// Filter says which deliveries to list. Empty fields match any.
type Filter struct {
	Namespace, Endpoint, Destination string
	// States: dead selects dead letters that no replay has taken up.
	States []event.State
	Types  []string
	// Limit bounds the result; it must be positive.
	Limit int
}

// DeliveryRecord is a delivery as people see it.
type DeliveryRecord struct {
	Key   event.DeliveryKey
	State event.State
	// Attempts counts those that count against the limit.
	Attempts int
	// NextAt is when a delivery that is not terminal may be claimed (again).
	NextAt *time.Time
	// EndedAt is when a terminal delivery became so.
	EndedAt    *time.Time
	Reason     event.Reason
	LastStatus int
	ErrorClass event.ErrorClass
	LastError  string
	// Replay started the run; ReplayedBy took this dead letter up again.
	Replay, ReplayedBy *uuid.UUID
	// Size is the body's, in bytes.
	Size int
	// Type and ReceivedAt are the event's; ReceivedAt is nil when the event
	// is no longer there.
	Type       string
	ReceivedAt *time.Time
}

// ListDeliveries returns the newest deliveries that match, newest first.
func (s *Store) ListDeliveries(ctx context.Context, f Filter) ([]DeliveryRecord, error) {
	states := make([]string, len(f.States))
	for i, state := range f.States {
		states[i] = string(state)
	}
	rows, err := s.pool.Query(ctx, sqlListDeliveries, stringOrNil(f.Namespace), stringOrNil(f.Endpoint), stringOrNil(f.Destination),
		orNil(states), orNil(f.Types), f.Limit)
	return collectDeliveries(rows, err, "listing deliveries")
}

func stringOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func collectDeliveries(rows pgx.Rows, err error, doing string) ([]DeliveryRecord, error) {
	if err != nil {
		return nil, classify(doing, err)
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (DeliveryRecord, error) {
		var d DeliveryRecord
		var status *int
		to := &d.Key.Destination
		err := row.Scan(&d.Key.Event, &to.Endpoint.Namespace, &to.Endpoint.Name, &to.Name, &d.Key.Run, &d.State, &d.Attempts,
			&d.NextAt, &d.EndedAt, &d.Reason, &status, &d.ErrorClass, &d.LastError, &d.Replay, &d.ReplayedBy, &d.Size, &d.Type, &d.ReceivedAt)
		if status != nil {
			d.LastStatus = *status
		}
		return d, err
	})
	return records, classify(doing, err)
}

// AttemptResult is how an attempt ended: a verdict, or one of the two below.
type AttemptResult string

// The results of attempts that have no outcome.
const (
	// AttemptRunning: a worker holds the delivery with this attempt.
	AttemptRunning AttemptResult = "running"
	// AttemptUnknown: the worker vanished before it recorded an outcome;
	// the request may have reached the destination.
	AttemptUnknown AttemptResult = "unknown"
)

// AttemptRecord is one row of the ledger: an intent with its outcome.
type AttemptRecord struct {
	Destination  string
	Run, Attempt int
	Worker       string
	StartedAt    time.Time
	EndedAt      *time.Time
	Result       AttemptResult
	// Status is 0 if there was no response.
	Status         int
	Latency        time.Duration
	ErrorClass     event.ErrorClass
	Error, Excerpt string
}

// EventRecord is everything about one event.
type EventRecord struct {
	// Event is nil when only its deliveries are left.
	Event      *event.Event
	Deliveries []DeliveryRecord
	Attempts   []AttemptRecord
}

// ErrNotFound is returned for an event of which nothing is left.
var ErrNotFound = errors.New("not found")

// ShowEvent returns everything about an event.
func (s *Store) ShowEvent(ctx context.Context, id event.ID) (*EventRecord, error) {
	record := &EventRecord{}
	var err error
	if record.Event, err = s.readEvent(ctx, id); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, sqlShowDeliveries, id)
	if record.Deliveries, err = collectDeliveries(rows, err, "reading deliveries"); err != nil {
		return nil, err
	}
	if record.Event == nil && len(record.Deliveries) == 0 {
		return nil, ErrNotFound
	}
	record.Attempts, err = s.readAttempts(ctx, id)
	return record, err
}

func (s *Store) readEvent(ctx context.Context, id event.ID) (*event.Event, error) {
	e := &event.Event{}
	var headers []byte
	err := s.pool.QueryRow(ctx, sqlShowEvent, id).Scan(&e.ID, &e.Endpoint.Namespace, &e.Endpoint.Name, &e.Key, &e.Type, &e.ContentType,
		&e.TraceParent, &headers, &e.Body, &e.ReceivedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(headers, &e.Headers)
	}
	if err != nil {
		return nil, classify("reading the event", err)
	}
	return e, nil
}

func (s *Store) readAttempts(ctx context.Context, id event.ID) ([]AttemptRecord, error) {
	rows, err := s.pool.Query(ctx, sqlShowAttempts, id)
	if err != nil {
		return nil, classify("reading attempts", err)
	}
	attempts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (AttemptRecord, error) {
		var a AttemptRecord
		var status, ms *int
		err := row.Scan(&a.Destination, &a.Run, &a.Attempt, &a.Worker, &a.StartedAt, &a.EndedAt, &a.Result, &status, &ms,
			&a.ErrorClass, &a.Error, &a.Excerpt)
		if status != nil {
			a.Status = *status
		}
		if ms != nil {
			a.Latency = time.Duration(*ms) * time.Millisecond
		}
		return a, err
	})
	return attempts, classify("reading attempts", err)
}
