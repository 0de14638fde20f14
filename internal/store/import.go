package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
)

// Imported counts what became of dead letters that were to be imported.
type Imported struct {
	// New are dead letters here now.
	New int
	// Known have left a trace here: they are, or were, a delivery of this
	// database.
	Known int
	// KeyTaken have an idempotency key that another event here holds: the
	// sender has sent it here too.
	KeyTaken int
}

// ConflictError says that an event to import has the id of another one here:
// of another endpoint, or with another body.
type ConflictError struct{ Event event.ID }

// Error names the event.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("there is another event %s here, of another endpoint or with another body", e.Event)
}

// ImportDeadLetters makes dead letters of another database dead letters of
// this one, in one transaction: the same events, byte for byte, with the reason
// and the time of their death, kept for some time from now. Their idempotency
// keys are kept for keepKeys, so that the sender's own repetition is a
// duplicate. What has left any trace here stays as it is, so importing twice
// is importing once. A dry run writes nothing and returns the same. Every
// letter must have its event. The error may be a ConflictError.
func (s *Store) ImportDeadLetters(ctx context.Context, letters []DeadLetter, keep, keepKeys time.Duration, dryRun bool) (Imported, error) {
	const doing = "importing dead letters"
	if len(letters) == 0 {
		return Imported{}, nil
	}
	args, err := importColumns(letters)
	if err != nil {
		return Imported{}, err
	}
	if !dryRun {
		refs := make([]event.DestinationRef, len(letters))
		for i := range letters {
			refs[i] = letters[i].Key.Destination
		}
		if err := s.Register(ctx, refs); err != nil {
			return Imported{}, err
		}
	}
	args = append(args, wholeSeconds(keep), wholeSeconds(keepKeys), !dryRun)
	var verdicts []string
	for range enqueueAttempts {
		b := &pgx.Batch{}
		lockReplays(b)
		b.Queue(sqlImportDeadLetters, args...).Query(func(rows pgx.Rows) (err error) {
			verdicts, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		if err = s.together(ctx, b); !isContention(err) {
			break
		}
	}
	if err != nil {
		return Imported{}, classify(doing, err)
	}
	var n Imported
	for i, verdict := range verdicts {
		switch verdict {
		case "new":
			n.New++
		case "known":
			n.Known++
		case "taken":
			n.KeyTaken++
		default:
			return Imported{}, &ConflictError{letters[i].Key.Event}
		}
	}
	return n, nil
}

// importColumns are the arguments of import_dead_letters.sql that come from
// the letters.
func importColumns(letters []DeadLetter) ([]any, error) {
	var ids []uuid.UUID
	var namespaces, endpoints, destinations, reasons, classes, faults, types, keys, contentTypes, traces, headers []string
	var runs, attempts []int32
	var statuses []*int32
	var died, received []time.Time
	var keyDigests, bodies [][]byte
	var bodyDigests []int64
	for i := range letters {
		l := &letters[i]
		p, err := prepare(&Submission{Event: l.Event}, nil)
		if err != nil {
			return nil, fmt.Errorf("event %s: %w", l.Key.Event, err)
		}
		to := &l.Key.Destination
		ids, namespaces = append(ids, l.Key.Event), append(namespaces, to.Endpoint.Namespace)
		endpoints, destinations = append(endpoints, to.Endpoint.Name), append(destinations, to.Name)
		runs, attempts = append(runs, int32(l.Key.Run)), append(attempts, int32(l.Attempts)) //nolint:gosec // both are counted one by one
		var status *int32
		if l.LastStatus != 0 {
			status = new(int32)
			*status = int32(l.LastStatus) //nolint:gosec // three digits
		}
		reasons, statuses, classes = append(reasons, string(l.Reason)), append(statuses, status), append(classes, string(l.ErrorClass))
		faults, died, received = append(faults, l.LastError), append(died, *l.EndedAt), append(received, l.Event.ReceivedAt)
		types, keys = append(types, l.Event.Type), append(keys, l.Event.Key)
		keyDigests, bodyDigests = append(keyDigests, p.keyDigest), append(bodyDigests, p.bodyDigest)
		contentTypes, traces = append(contentTypes, l.Event.ContentType), append(traces, l.Event.TraceParent)
		body := l.Event.Body
		if body == nil {
			body = []byte{} // nil would be NULL
		}
		headers, bodies = append(headers, p.headers), append(bodies, body)
	}
	return []any{
		ids, namespaces, endpoints, destinations, runs, attempts, reasons, statuses, classes, faults,
		died, received, types, keys, keyDigests, bodyDigests, contentTypes, traces, headers, bodies,
	}, nil
}
