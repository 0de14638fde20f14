package store

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

// letters reads all dead letters of a database.
func letters(t testing.TB, s *Store) []DeadLetter {
	t.Helper()
	all, err := s.DeadLetters(t.Context(), DeadLetterFilter{Limit: 1000, Bytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func importAll(t testing.TB, s *Store, all []DeadLetter, dryRun bool) Imported {
	t.Helper()
	n, err := s.ImportDeadLetters(t.Context(), all, 2*time.Hour, time.Hour, dryRun)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// newLetters makes dead letters of every kind of body and returns them.
func newLetters(t testing.TB, s *Store) []DeadLetter {
	t.Helper()
	for i, b := range []string{"{}", "", "\x00\xff\xfe", string(bytes.Repeat([]byte("Ångström "), 1000))} {
		enqueue(t, s, submission(t, digits(i), to("a", "b"), body(b), typed("push")))
	}
	die(t, s, event.ReasonAttemptsExhausted, claim(t, s, want("a"))...)
	die(t, s, event.ReasonPermanentStatus, claim(t, s, want("b"))...)
	all := letters(t, s)
	same(t, "letters", 8, len(all))
	return all
}

// Dead letters go from one database to another as they are, once, and can be
// replayed there.
func TestImportDeadLetters(t *testing.T) {
	from, s := newStore(t), newStore(t)
	all := newLetters(t, from)
	before := contents(t, s)
	same(t, "dry run", Imported{New: 8}, importAll(t, s, all, true))
	same(t, "contents after a dry run", before, contents(t, s))
	same(t, "imported", Imported{New: 8}, importAll(t, s, all, false))
	got := letters(t, s)
	for i := range got {
		same(t, "event", all[i].Event, got[i].Event)
		same(t, "record", all[i].DeliveryRecord, got[i].DeliveryRecord)
	}
	same(t, "by reason", bruteByReason(t, s), byReason(t, s))
	if seconds := value[float64](t, s, "SELECT max(extract(epoch FROM expires_at - now()))::float8 FROM dead_letter"); seconds < 7000 || seconds > 7200 {
		t.Errorf("kept for %v s", seconds)
	}

	before = contents(t, s)
	same(t, "again", Imported{Known: 8}, importAll(t, s, all, false))
	same(t, "contents", before, contents(t, s))
	same(t, "where they come from", Imported{Known: 8}, importAll(t, from, all, false))

	// The sender sends one of them here too.
	receipts := enqueue(t, s, submission(t, "0", to("a", "b"), body("{}")))
	same(t, "duplicate", Receipt{EventID: all[0].Key.Event, Duplicate: true}, receipts[0])

	execute(t, s, "UPDATE chore SET due_at = '-infinity'")
	maintain(t, s) // drops nothing of them
	r := plan(t, s, newReplay(t, replay.Selector{States: selectDead}))
	run(t, s, r, 10)
	wantStatus(t, s, r, progress{Matched: 8, Queued: 8, Open: 8})
	for i, c := range claim(t, s, want("a"), want("b")) {
		same(t, "run", 2, c.Token.Delivery.Run)
		if c.PayloadMissing || c.Event.ID != all[0].Key.Event && i == 0 {
			t.Errorf("claimed %+v", c)
		}
		finish(t, s, event.VerdictDone, c)
	}
	same(t, "after they were delivered", Imported{Known: 8}, importAll(t, s, all, false))
	execute(t, s, "UPDATE dead_letter SET expires_at = now()")
	execute(t, s, "UPDATE chore SET due_at = '-infinity'")
	maintain(t, s)
	same(t, "as long as that is known", Imported{Known: 8}, importAll(t, s, all, false))
}

// What the sender has sent here by itself is not imported a second time.
func TestImportOfATakenKey(t *testing.T) {
	all := newLetters(t, newStore(t))
	s := newStore(t)
	enqueue(t, s, submission(t, "0", to("a"), body("{}")))
	same(t, "dry run", Imported{New: 6, KeyTaken: 2}, importAll(t, s, all, true))
	same(t, "imported", Imported{New: 6, KeyTaken: 2}, importAll(t, s, all, false))
	same(t, "again", Imported{Known: 6, KeyTaken: 2}, importAll(t, s, all, false))

	// Of two events with one key, as after the end of its window, the first
	// wins, whether they come together or not.
	for _, batches := range [][][]DeadLetter{{all[:4]}, {all[:2], all[2:4]}} {
		s := newStore(t)
		var sum Imported
		for _, batch := range batches {
			for i := range batch {
				e := *batch[i].Event
				e.Key = "the same"
				batch[i].Event = &e
			}
			n := importAll(t, s, batch, false)
			sum.New, sum.KeyTaken = sum.New+n.New, sum.KeyTaken+n.KeyTaken
		}
		same(t, "of one key", Imported{New: 2, KeyTaken: 2}, sum)
	}
}

// An event never changes: where one of the id is here that is another one,
// nothing of the batch is written.
func TestImportConflicts(t *testing.T) {
	all := newLetters(t, newStore(t))
	for name, change := range map[string]func(*DeadLetter){
		"body":     func(l *DeadLetter) { l.Event.Body = []byte("{ }") },
		"endpoint": func(l *DeadLetter) { l.Key.Destination.Endpoint.Name, l.Event.Endpoint.Name = "other", "other" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			importAll(t, s, all[:1], false)
			other := all[0]
			e := *other.Event
			other.Event = &e
			change(&other)
			if err := s.Register(t.Context(), []event.DestinationRef{other.Key.Destination}); err != nil {
				t.Fatal(err)
			}
			register(t, s)
			before := contents(t, s)
			_, err := s.ImportDeadLetters(t.Context(), append([]DeadLetter{other}, all[2:]...), time.Hour, time.Hour, false)
			var conflict *ConflictError
			if !errors.As(err, &conflict) || conflict.Event != all[0].Key.Event {
				t.Errorf("got %v", err)
			}
			same(t, "contents", before, contents(t, s))
		})
	}
}
