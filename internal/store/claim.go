package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
)

// Want says what a worker would take for one destination.
type Want struct {
	Destination event.DestinationRef
	// Most bounds the claim. MostBytes does so once the bodies reach it:
	// the last one may exceed it.
	Most      int
	MostBytes int64
	// Reserved is how many of Most are not for runs of replays, which come
	// after everything else that is due.
	Reserved int
	// Lease is how long the claim holds, in whole milliseconds.
	Lease time.Duration
	// MaxAttempts is after how many attempts a delivery is exhausted.
	MaxAttempts int
	// KeepLedger is for how long the record of the attempt is kept.
	KeepLedger time.Duration
	// Since is the earliest due time to look from, zero for the beginning.
	// It spares reading what earlier claims left behind in the index; what
	// it could miss is found by a look from the beginning now and then.
	Since time.Time
	// SinceReplays is the same for runs of replays.
	SinceReplays time.Time
}

// Claim is a delivery that a worker holds until its lease ends.
type Claim struct {
	Token event.Token
	// Attempts is how many attempts count so far, this one included unless
	// it is exhausted.
	Attempts int
	// Exhausted: earlier attempts used the limit up. The delivery must not
	// be sent.
	Exhausted bool
	// OutcomeKnown: the outcome of the last attempt of an exhausted delivery
	// is on record after all, so the limit must have been lowered since.
	OutcomeKnown bool
	// Event carries what delivering needs: id, endpoint, type, content
	// type, trace context, time and body.
	Event event.Event
	// Age is how long ago the event was accepted, by the database's clock.
	Age time.Duration
	// PayloadMissing: the event is no longer in the database, or is damaged.
	PayloadMissing bool
	// Damage is what the database says of an event that it cannot read.
	Damage error
	// Replay is the replay that started the run, nil for the first run.
	Replay *uuid.UUID
	// Seen is the greatest due time that the claim took of the destination:
	// of runs of replays, if this is one, else of all others.
	Seen time.Time

	destination int32
}

// Claim takes what is due, at most what each Want allows, by one statement
// whose commit also writes the intents into the ledger: once it has returned,
// the requests may leave. The worker's name is written beside each intent.
// The order of the result is not the order of the wants. An event that the
// database cannot read holds up no other one.
func (s *Store) Claim(ctx context.Context, worker string, wants []Want) ([]*Claim, error) {
	if len(wants) == 0 {
		return nil, nil
	}
	claims, err := s.claim(ctx, worker, wants, true)
	if isDamage(err) {
		if claims, err = s.claim(ctx, worker, wants, false); err == nil {
			err = s.readEvents(ctx, claims)
		}
	}
	if err != nil {
		return nil, classify("claiming deliveries", err)
	}
	return claims, nil
}

// claim claims, with the events or without.
func (s *Store) claim(ctx context.Context, worker string, wants []Want, withEvents bool) ([]*Claim, error) {
	destinations := make([]event.DestinationRef, len(wants))
	var most, attempts, keep, reserved []int32
	var bytes, lease []int64
	var since, sinceReplays []time.Time
	for i, w := range wants {
		destinations[i] = w.Destination
		most = append(most, int32(w.Most))                //nolint:gosec // bounded by configuration
		attempts = append(attempts, int32(w.MaxAttempts)) //nolint:gosec // bounded by configuration
		keep = append(keep, wholeSeconds(w.KeepLedger))
		bytes = append(bytes, w.MostBytes)
		lease = append(lease, w.Lease.Milliseconds())
		since, sinceReplays = append(since, w.Since), append(sinceReplays, w.SinceReplays)
		reserved = append(reserved, int32(w.Reserved)) //nolint:gosec // at most Most
	}
	namespaces, endpoints, names := columns(destinations)
	rows, err := s.pool.Query(ctx, sqlClaim, worker, namespaces, endpoints, names, most, bytes, lease, attempts, keep, since, sinceReplays, reserved, withEvents)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var claims []*Claim
	for rows.Next() {
		c, err := scanClaim(rows, destinations)
		if err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	return claims, rows.Err()
}

// readEvents reads the events of claims one by one.
func (s *Store) readEvents(ctx context.Context, claims []*Claim) error {
	for _, c := range claims {
		e := &c.Event
		var age float64
		err := s.pool.QueryRow(ctx, sqlReadEvent, [16]byte(e.ID)).
			Scan(&e.ReceivedAt, &e.Type, &e.ContentType, &e.TraceParent, &e.Body, &age)
		switch {
		case err == nil:
			c.PayloadMissing = false
			c.Age = time.Duration(age * float64(time.Second))
		case isDamage(err):
			c.Damage = err
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		}
	}
	return nil
}

func scanClaim(row pgx.Row, destinations []event.DestinationRef) (*Claim, error) {
	c := &Claim{}
	var n int
	var received *time.Time
	var age float64
	k := &c.Token.Delivery
	if err := row.Scan(&n, (*[16]byte)(&k.Event), &c.destination, &k.Run, &c.Token.Attempt, &c.Attempts, &c.Exhausted, &c.OutcomeKnown, &c.Replay,
		&received, &c.Event.Type, &c.Event.ContentType, &c.Event.TraceParent, &c.Event.Body, &age, &c.Seen); err != nil {
		return nil, err
	}
	k.Destination = destinations[n-1]
	c.Event.ID, c.Event.Endpoint = k.Event, k.Destination.Endpoint
	if received == nil {
		c.PayloadMissing = true
		return c, nil
	}
	c.Event.ReceivedAt = *received
	c.Age = time.Duration(age * float64(time.Second))
	return c, nil
}
