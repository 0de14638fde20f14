package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
)

func TestBodiesAreKeptByteForByte(t *testing.T) {
	s := newStore(t)
	random := make([]byte, 1<<20)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(random)
	for _, tc := range []struct {
		name string
		body []byte
	}{
		{"nil", nil},
		{"empty", []byte{}},
		{"text", []byte(`{"a":  1}` + "\r\n")},
		{"NUL", []byte("a\x00b\x00")},
		{"escaped NUL", []byte(`{"a":"\u0000"}`)},
		{"invalid UTF-8", []byte("\xff\xfe\xc3\x28")},
		{"1 MiB that can be compressed", bytes.Repeat([]byte("0123456789abcdef"), 1<<16)},
		{"1 MiB that cannot", random},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sub := submission(t, tc.name, body(string(tc.body)))
			if tc.body == nil {
				sub.Event.Body = nil
			}
			id := enqueue(t, s, sub)[0].EventID
			stored := value[[]byte](t, s, "SELECT body FROM event WHERE id = $1", id)
			c := claimOne(t, s)
			shown, err := s.ShowEvent(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			for where, got := range map[string][]byte{"table": stored, "claim": c.Event.Body, "ShowEvent": shown.Event.Body} {
				if !bytes.Equal(got, tc.body) {
					t.Errorf("%s: %d bytes differ from the %d that came in", where, len(got), len(tc.body))
				}
			}
			same(t, "size", len(tc.body), shown.Deliveries[0].Size)
			finish(t, s, event.VerdictDone, c)
		})
	}
}

func TestEventIsKeptWhole(t *testing.T) {
	s := newStore(t)
	sub := submission(t, "key with ünïcödé and '\"quotes", func(s *Submission) {
		s.Event.Headers = map[string][]string{"Accept": {"*/*", ""}, "X-Bytes": {"caf\u00e9 \\ \""}, "X-None": {}}
	})
	enqueue(t, s, sub)
	shown, err := s.ShowEvent(t.Context(), sub.Event.ID)
	if err != nil {
		t.Fatal(err)
	}
	got := shown.Event
	if age := value[float64](t, s, "SELECT extract(epoch FROM now() - $1::timestamptz)::float8", got.ReceivedAt); age < 0 || age > 60 {
		t.Errorf("received %v s ago", age)
	}
	got.ReceivedAt = time.Time{}
	same(t, "event", sub.Event, got)
}

func TestHowLongThingsAreKept(t *testing.T) {
	s := newStore(t)
	for _, tc := range []struct {
		keep time.Duration
		want float64
	}{
		{0, 0},
		{time.Second, 1},
		{1900 * time.Millisecond, 1},
		{10 * 366 * 24 * time.Hour, 10 * 366 * 86400},
		{200 * 366 * 24 * time.Hour, 1<<31 - 1},
	} {
		sub := submission(t, tc.keep.String(), func(s *Submission) { s.KeepEvent, s.KeepKey = tc.keep, tc.keep })
		enqueue(t, s, sub)
		for _, table := range []string{"event JOIN delivery ON event_id = id AND event_expires_at = expires_at", "event JOIN dedup d ON event_id = id"} {
			expires := "expires_at"
			if strings.Contains(table, "dedup") {
				expires = "d.expires_at"
			}
			got := value[float64](t, s, "SELECT extract(epoch FROM "+expires+" - received_at)::float8 FROM "+table+" WHERE id = $1", sub.Event.ID)
			if got != tc.want {
				t.Errorf("%s: kept for %v s in %s, want %v s", tc.keep, got, table, tc.want)
			}
		}
	}
}

func TestDuplicates(t *testing.T) {
	type step struct {
		key, body           string
		duplicate, conflict bool
	}
	for _, tc := range []struct {
		name    string
		batches [][]step
	}{
		{"across batches", [][]step{
			{{"k", "one", false, false}},
			{{"k", "one", true, false}},
			{{"k", "two", true, true}},
			{{"k", "one", true, false}},
		}},
		{"inside a batch the first wins", [][]step{
			{{"k", "one", false, false}, {"k", "one", true, false}, {"k", "two", true, true}},
		}},
		{"both", [][]step{
			{{"k", "one", false, false}},
			{{"k", "two", true, true}, {"l", "", false, false}, {"k", "one", true, false}, {"l", "x", true, true}},
		}},
		{"keys that look alike", [][]step{
			{{"k", "", false, false}, {"K", "", false, false}, {"k ", "", false, false}, {" k", "", false, false}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			first := map[string]event.ID{}
			for n, steps := range tc.batches {
				var batch []Submission
				var expected []Receipt
				for _, step := range steps {
					sub := submission(t, step.key, body(step.body))
					batch = append(batch, sub)
					if !step.duplicate {
						first[step.key] = sub.Event.ID
					}
					expected = append(expected, Receipt{EventID: first[step.key], Duplicate: step.duplicate, Conflict: step.conflict})
				}
				same(t, fmt.Sprintf("receipts of batch %d", n+1), expected, enqueue(t, s, batch...))
			}
			for _, table := range []string{"event", "dedup", "delivery"} {
				same(t, "rows of "+table, len(first), value[int](t, s, "SELECT count(*)::int FROM "+table))
			}
		})
	}
}

// In a large batch, too, it is the first submission with a key that wins.
func TestFirstOfABatchWins(t *testing.T) {
	s := newStore(t)
	random := rand.New(rand.NewPCG(1, 2))
	var batch []Submission
	first := map[string]event.ID{}
	for range 400 {
		sub := submission(t, digits(random.IntN(40)), body(digits(random.IntN(1000))))
		batch = append(batch, sub)
		if _, there := first[sub.Event.Key]; !there {
			first[sub.Event.Key] = sub.Event.ID
		}
	}
	for i, r := range enqueue(t, s, batch...) {
		if r.EventID != first[batch[i].Event.Key] {
			t.Fatalf("submission %d: event %s, want the first with its key", i, r.EventID)
		}
	}
}

func TestKeysAreUniquePerEndpoint(t *testing.T) {
	s := newStore(t)
	at := func(namespace, name string) Submission {
		return submission(t, "k", func(s *Submission) { s.Event.Endpoint = event.EndpointRef{Namespace: namespace, Name: name} })
	}
	batch := []Submission{at("payments", "github"), at("payments", "stripe"), at("orders", "github"), at("payments", "github")}
	var duplicates []bool
	for _, r := range enqueue(t, s, batch...) {
		duplicates = append(duplicates, r.Duplicate)
	}
	same(t, "duplicates", []bool{false, false, false, true}, duplicates)
	same(t, "deliveries", []string{"orders/github/a", "payments/github/a", "payments/stripe/a"},
		column[string](t, s, "SELECT namespace || '/' || endpoint || '/' || destination FROM delivery_state ORDER BY 1"))
}

// Destinations belong to the submission: what an endpoint's configuration was
// when the request came.
func TestDestinationsPerSubmission(t *testing.T) {
	s := newStore(t)
	var batch []Submission
	owed := map[event.ID]string{}
	for i, names := range [][]string{{"a"}, {"b", "a"}, {"c"}, {}, {"a", "b", "c", "d"}} {
		sub := submission(t, digits(i), to(names...))
		batch = append(batch, sub)
		if len(names) > 0 {
			owed[sub.Event.ID] = strings.Join(names, " ")
		}
	}
	owed[batch[1].Event.ID] = "a b"
	enqueue(t, s, batch...)
	got := map[event.ID]string{}
	for _, id := range column[uuid.UUID](t, s, "SELECT DISTINCT event_id FROM delivery") {
		got[id] = value[string](t, s, "SELECT string_agg(destination, ' ' ORDER BY destination) FROM delivery_state WHERE event_id = $1", id)
	}
	same(t, "owed", owed, got)
	same(t, "events", len(batch), value[int](t, s, "SELECT count(*)::int FROM event"))
}

// Whatever is committed for one key, it is one event with one delivery for
// each destination, and everybody is told the same id (I2).
func TestSameKeyAtOnce(t *testing.T) {
	const copies = 200
	url := migrated(t)
	var queues []*Enqueuer
	for range 2 {
		q := NewEnqueuer(openStore(t, url), EnqueuerOptions{MaxBatch: 20})
		defer q.Close()
		queues = append(queues, q)
	}
	receipts, errs := make([]Receipt, copies), make([]error, copies)
	subs := make([]Submission, copies)
	for i := range subs {
		subs[i] = submission(t, "k", to("a", "b"))
	}
	parallel(copies, func(i int) { receipts[i], errs[i] = queues[i%2].Enqueue(t.Context(), subs[i]) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	fresh := 0
	for _, r := range receipts {
		if r.EventID != receipts[0].EventID {
			t.Fatalf("two ids: %s and %s", r.EventID, receipts[0].EventID)
		}
		if !r.Duplicate {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d copies are new", fresh)
	}
	s := openStore(t, url)
	same(t, "events", []uuid.UUID{receipts[0].EventID}, column[uuid.UUID](t, s, "SELECT id FROM event"))
	same(t, "deliveries", []string{"a", "b"}, column[string](t, s, "SELECT destination FROM delivery_state ORDER BY 1"))
}

// Names are made known by whoever needs them first.
func TestNamesAtOnce(t *testing.T) {
	url := migrated(t)
	const writers = 8
	stores := make([]*Store, writers)
	for i := range stores {
		stores[i] = openStore(t, url)
	}
	results := make([][]result, writers)
	batches := make([][]Submission, writers)
	for w := range batches {
		for i := range 12 {
			batches[w] = append(batches[w], submission(t, fmt.Sprint(w, i), to("a", "w"+digits(w), "i"+digits(i)), func(s *Submission) {
				s.Event.Endpoint.Name = digits(i % 4)
			}))
		}
	}
	parallel(writers, func(w int) { results[w] = stores[w].enqueueBatch(t.Context(), batches[w]) })
	for w := range results {
		for i, r := range results[w] {
			if r.err != nil {
				t.Errorf("writer %d, submission %d: %v", w, i, r.err)
			}
		}
	}
	same(t, "deliveries", writers*12*3, value[int](t, stores[0], "SELECT count(*)::int FROM delivery_state"))
	same(t, "endpoints", 4, value[int](t, stores[0], "SELECT count(*)::int FROM endpoint"))
}

// A process that registers names while another one is about to commit some of
// them registers the rest.
func TestRegisterMeanwhile(t *testing.T) {
	url := migrated(t)
	s, other := openStore(t, url), openStore(t, url)
	tx, err := other.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "INSERT INTO endpoint (namespace, name) VALUES ($1, $2)", endpoint.Namespace, endpoint.Name); err != nil {
		t.Fatal(err)
	}
	registered := make(chan error, 1)
	go func() { registered <- s.Register(t.Context(), []event.DestinationRef{dest("a"), dest("b")}) }()
	waitForLocks(t, other, "transactionid", 1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-registered; err != nil {
		t.Fatal(err)
	}
	same(t, "destinations", []string{"a", "b"}, column[string](t, s, "SELECT name FROM destination ORDER BY 1"))
}

// Ids of names must not be remembered: the schema may be dropped and made
// anew under a process that runs.
func TestNamesInANewSchema(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	enqueueNew(t, s, 1, "a", "b")
	claim(t, s, want("a"))

	schema := value[string](t, s, "SELECT quote_ident(current_schema())")
	execute(t, s, "DROP SCHEMA "+schema+" CASCADE")
	sub := submission(t, "k")
	if r := s.enqueueBatch(t.Context(), []Submission{sub}); !errors.Is(r[0].err, ErrUnavailable) {
		t.Errorf("without a schema: %v, want %v", r[0].err, ErrUnavailable)
	}
	execute(t, s, "CREATE SCHEMA "+schema)
	if err := Migrate(t.Context(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	// These take the ids that the old schema had given to others.
	other := event.EndpointRef{Namespace: "orders", Name: "stripe"}
	if err := openStore(t, url).Register(t.Context(), []event.DestinationRef{{Endpoint: other, Name: "x"}, {Endpoint: other, Name: "y"}}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, sub)
	same(t, "deliveries", []string{"payments/github/a"},
		column[string](t, s, "SELECT namespace || '/' || endpoint || '/' || destination FROM delivery_state"))
	same(t, "counts", []Counts{{Pending: 1}, {}}, withoutAge(counts(t, s, "a", "b")))
	finish(t, s, event.VerdictDone, claimOne(t, s))
}

func withoutAge(counts []Counts) []Counts {
	for i := range counts {
		counts[i].OldestDue = 0
	}
	return counts
}

// What the database refuses is refused alone, wherever it stands in a batch.
func TestBadRowsFailAlone(t *testing.T) {
	s := newStore(t)
	bad := map[string]func(*Submission){
		"type":         func(s *Submission) { s.Event.Type = "\xff" },
		"key":          func(s *Submission) { s.Event.Key += "\x00" },
		"content type": func(s *Submission) { s.Event.ContentType = "a\x00" },
		"trace parent": func(s *Submission) { s.Event.TraceParent = "\xc3\x28" },
		"header":       func(s *Submission) { s.Event.Headers = map[string][]string{"X": {"a\x00"}} },
	}
	for name, change := range bad {
		t.Run(name, func(t *testing.T) {
			var batch []Submission
			isBad := map[int]bool{0: true, 7: true, 12: true}
			for i := range 13 {
				sub := submission(t, name+digits(i))
				if isBad[i] {
					change(&sub)
				}
				batch = append(batch, sub)
			}
			for i, r := range s.enqueueBatch(t.Context(), batch) {
				var rejected *RejectedError
				switch {
				case !isBad[i] && (r.err != nil || r.receipt != Receipt{EventID: batch[i].Event.ID}):
					t.Errorf("good submission %d: %v, %v", i, r.receipt, r.err)
				case isBad[i] && (!errors.As(r.err, &rejected) || errors.Is(r.err, ErrUnavailable)):
					t.Errorf("bad submission %d: %v, want a rejection", i, r.err)
				}
			}
			same(t, "events", 10, value[int](t, s, "SELECT count(*)::int FROM event WHERE starts_with(idempotency_key, $1)", name))
		})
	}
}

// An event that waits for a key's end is new, not a duplicate of nothing.
func TestKeyThatLapsesMeanwhile(t *testing.T) {
	s := newStore(t)
	enqueue(t, s, submission(t, "k"))
	subs := []Submission{submission(t, "k"), submission(t, "l")}
	p := make([]prepared, len(subs))
	results := make([]result, len(subs))
	for i := range subs {
		var err error
		if p[i], err = prepare(&subs[i], &results[i]); err != nil {
			t.Fatal(err)
		}
	}
	// The look-up comes after the key is gone.
	execute(t, s, "DELETE FROM dedup")
	left, err := s.settleReceipts(t.Context(), p, [][16]byte{subs[1].Event.ID})
	if err != nil || len(left) != 1 || left[0].Event.Key != "k" {
		t.Fatalf("left over: %v, %v", left, err)
	}
	same(t, "receipt", Receipt{EventID: subs[1].Event.ID}, results[1].receipt)
	same(t, "receipt", []Receipt{{EventID: subs[0].Event.ID}}, enqueue(t, s, subs[0]))
}

// Two batches with the same keys in opposite orders insert them in one order.
func TestOppositeOrdersDoNotDeadlock(t *testing.T) {
	url := migrated(t)
	var c conflicts
	stores := []*Store{watch(t, openStore(t, url), &c), watch(t, openStore(t, url), &c)}
	enqueueNew(t, stores[0], 1, "a", "b") // the names
	for round := range 20 {
		results := make([][]result, 2)
		batches := make([][]Submission, 2)
		for i := range 200 {
			key := fmt.Sprintf("%d-%d", round, i)
			batches[0] = append(batches[0], submission(t, key))
			batches[1] = append([]Submission{submission(t, key)}, batches[1]...)
		}
		parallel(2, func(w int) { results[w] = stores[w].enqueueBatch(t.Context(), batches[w]) })
		fresh := 0
		for _, r := range append(results[0], results[1]...) {
			if r.err != nil {
				t.Fatal(r.err)
			}
			if !r.receipt.Duplicate {
				fresh++
			}
		}
		same(t, "new events", 200, fresh)
	}
	if n := c.n.Load(); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}
