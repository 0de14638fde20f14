package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackrail/ackrail/internal/event"
)

// Submission is an event to commit, with what it owes.
type Submission struct {
	Event *event.Event
	// Destinations are the names of the endpoint's destinations.
	Destinations []string
	// KeepEvent and KeepKey are for how long the event and its idempotency
	// key are kept, in whole seconds.
	KeepEvent, KeepKey time.Duration
}

// Receipt says what became of a submission that was committed.
type Receipt struct {
	// EventID is the id of the event that holds the idempotency key.
	EventID event.ID
	// Duplicate: the key was taken before; EventID is the first event's id.
	Duplicate bool
	// Conflict: a duplicate whose body differs from the first event's.
	Conflict bool
}

// RejectedError says that the database refuses this very event, whatever else
// it is asked to store.
type RejectedError struct{ err error }

// Error names the cause.
func (e *RejectedError) Error() string { return "event rejected by the database: " + e.err.Error() }

// Unwrap returns the database's error.
func (e *RejectedError) Unwrap() error { return e.err }

// enqueueAttempts bounds how often a batch is tried again: to make names
// known, after a deadlock, or when a key lapsed between insert and look-up.
const enqueueAttempts = 4

// result is what became of one submission of a batch.
type result struct {
	receipt Receipt
	err     error
}

// prepared is a submission with its digests, and where its result goes.
type prepared struct {
	*Submission
	keyDigest  []byte
	bodyDigest int64
	headers    string
	result     *result
}

// prepare does what each caller can do for itself.
func prepare(s *Submission, r *result) (prepared, error) {
	headers, err := json.Marshal(s.Event.Headers)
	if err != nil {
		return prepared{}, &RejectedError{fmt.Errorf("encoding headers: %w", err)}
	}
	key := sha256.Sum256([]byte(s.Event.Key))
	body := sha256.Sum256(s.Event.Body)
	return prepared{
		Submission: s,
		keyDigest:  key[:],
		bodyDigest: int64(binary.BigEndian.Uint64(body[:8])), //nolint:gosec // the bits are wanted, not the number
		headers:    string(headers),
		result:     r,
	}, nil
}

// enqueue commits a batch in one transaction and says what became of each
// submission. It returns after the commit; on an error the outcome is unknown
// and nothing may be promised. As long as the data of some row is at fault,
// the batch is halved, so that one bad row fails alone.
func (s *Store) enqueue(ctx context.Context, batch []prepared) {
	if len(batch) == 0 {
		return
	}
	err := s.commit(ctx, batch)
	switch {
	case err == nil:
	case isDataError(err) && len(batch) > 1:
		s.enqueue(ctx, batch[:len(batch)/2])
		s.enqueue(ctx, batch[len(batch)/2:])
	case isDataError(err):
		batch[0].result.err = &RejectedError{err}
	default:
		err = classify("committing events", err)
		for i := range batch {
			batch[i].result.err = err
		}
	}
}

// commit runs the statement until every submission has its receipt.
func (s *Store) commit(ctx context.Context, batch []prepared) error {
	for range enqueueAttempts {
		c := columnsOf(batch)
		var resolved bool
		var fresh [][16]byte // pgx has a quick way for these
		err := s.promising(ctx, func(conn *pgxpool.Conn) error {
			return conn.QueryRow(ctx, sqlEnqueue, append([]any{s.mayName()}, c.args()...)...).Scan(&resolved, &fresh)
		})
		if isContention(err) {
			continue
		}
		if err != nil {
			return err
		}
		if !resolved {
			if err := s.Register(ctx, c.destinations); err != nil {
				return err
			}
			continue
		}
		batch, err = s.settleReceipts(ctx, batch, fresh)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return nil
		}
	}
	return errors.New("gave up: names or keys changed under every attempt")
}

// settleReceipts writes the receipts of a committed batch. It returns the
// submissions that have none because their key lapsed in the meantime.
func (s *Store) settleReceipts(ctx context.Context, batch []prepared, fresh [][16]byte) ([]prepared, error) {
	isNew := make(map[uuid.UUID]bool, len(fresh))
	for _, id := range fresh {
		isNew[id] = true
	}
	var taken []prepared
	for _, p := range batch {
		if isNew[p.Event.ID] {
			p.result.receipt = Receipt{EventID: p.Event.ID}
		} else {
			taken = append(taken, p)
		}
	}
	if len(taken) == 0 {
		return nil, nil
	}
	return s.lookUp(ctx, taken)
}

// lookUp finds the events that hold the keys of duplicates.
func (s *Store) lookUp(ctx context.Context, taken []prepared) ([]prepared, error) {
	var namespaces, endpoints []string
	var digests [][]byte
	for _, p := range taken {
		namespaces = append(namespaces, p.Event.Endpoint.Namespace)
		endpoints = append(endpoints, p.Event.Endpoint.Name)
		digests = append(digests, p.keyDigest)
	}
	found := make([]bool, len(taken))
	err := s.promising(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sqlLookupKeys, namespaces, endpoints, digests)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var n int
			var id uuid.UUID
			var digest int64
			if err := rows.Scan(&n, &id, &digest); err != nil {
				return err
			}
			p := taken[n-1]
			found[n-1] = true
			p.result.receipt = Receipt{EventID: id, Duplicate: true, Conflict: digest != p.bodyDigest}
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	var left []prepared
	for i, p := range taken {
		if !found[i] {
			left = append(left, p)
		}
	}
	return left, nil
}

// enqueueColumns are the arguments of the statement, column by column.
type enqueueColumns struct {
	endpoints    []event.EndpointRef
	destinations []event.DestinationRef

	namespaces, names                           []string
	destinationOwner                            []int32
	destinationName                             []string
	owedEvent                                   [][16]byte
	owedDestination, owedSize, owedKeep         []int32
	endpoint                                    []int32
	id                                          [][16]byte
	keyDigest                                   pgtype.FlatArray[[]byte]
	bodyDigest                                  []int64
	key, typ, contentType, traceParent, headers []string
	body                                        pgtype.FlatArray[[]byte]
	keepEvent, keepKey                          []int32
}

func columnsOf(batch []prepared) *enqueueColumns {
	c := &enqueueColumns{}
	endpoints := map[event.EndpointRef]int32{}
	destinations := map[event.DestinationRef]int32{}
	for _, p := range batch {
		e := p.Event
		owner := position(endpoints, e.Endpoint, func() {
			c.endpoints = append(c.endpoints, e.Endpoint)
			c.namespaces = append(c.namespaces, e.Endpoint.Namespace)
			c.names = append(c.names, e.Endpoint.Name)
		})
		for _, name := range p.Destinations {
			ref := event.DestinationRef{Endpoint: e.Endpoint, Name: name}
			n := position(destinations, ref, func() {
				c.destinations = append(c.destinations, ref)
				c.destinationOwner = append(c.destinationOwner, owner)
				c.destinationName = append(c.destinationName, name)
			})
			c.owedEvent = append(c.owedEvent, e.ID)
			c.owedDestination = append(c.owedDestination, n)
			c.owedSize = append(c.owedSize, int32(len(e.Body))) //nolint:gosec // the ingress bounds bodies far below
			c.owedKeep = append(c.owedKeep, wholeSeconds(p.KeepEvent))
		}
		c.add(owner, &p)
	}
	return c
}

// position returns the position of a key from 1, calling added for a new one.
func position[K comparable](known map[K]int32, key K, added func()) int32 {
	n, ok := known[key]
	if !ok {
		n = int32(len(known) + 1) //nolint:gosec // a batch is small
		known[key] = n
		added()
	}
	return n
}

func (c *enqueueColumns) add(owner int32, p *prepared) {
	e := p.Event
	c.endpoint = append(c.endpoint, owner)
	c.id = append(c.id, e.ID)
	c.keyDigest = append(c.keyDigest, p.keyDigest)
	c.bodyDigest = append(c.bodyDigest, p.bodyDigest)
	c.key = append(c.key, e.Key)
	c.typ = append(c.typ, e.Type)
	c.contentType = append(c.contentType, e.ContentType)
	c.traceParent = append(c.traceParent, e.TraceParent)
	c.headers = append(c.headers, p.headers)
	body := e.Body
	if body == nil {
		body = []byte{} // a nil slice would be NULL
	}
	c.body = append(c.body, body)
	c.keepEvent = append(c.keepEvent, wholeSeconds(p.KeepEvent))
	c.keepKey = append(c.keepKey, wholeSeconds(p.KeepKey))
}

func (c *enqueueColumns) args() []any {
	return []any{
		c.namespaces, c.names, c.destinationOwner, c.destinationName,
		c.owedEvent, c.owedDestination, c.owedSize, c.owedKeep,
		c.endpoint, c.id, c.keyDigest, c.bodyDigest, c.key, c.typ, c.contentType, c.traceParent,
		c.headers, c.body, c.keepEvent, c.keepKey,
	}
}

// wholeSeconds bounds a period to what an integer column holds, 68 years.
func wholeSeconds(d time.Duration) int32 {
	return int32(min(max(d/time.Second, 0), 1<<31-1)) //nolint:gosec // bounded on the line
}
