package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/testenv"
)

const day = 24 * time.Hour

// partitionOf returns the name of the partition of rows that expire in so
// many days from now.
func partitionOf(t testing.TB, s *Store, parent string, days int) string {
	t.Helper()
	return value[string](t, s, "SELECT $1 || '_' || to_char((now() AT TIME ZONE 'UTC')::date + $2::int, 'YYYYMMDD')", parent, days)
}

func partitions(t testing.TB, s *Store) []string {
	t.Helper()
	return column[string](t, s, `SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relkind = 'r' AND c.relname NOT LIKE '%_default' ORDER BY 1`)
}

// age moves the end of events and of what belongs to them to so many days
// from now, as if they had come earlier.
func age(t testing.TB, s *Store, days int, ids ...event.ID) {
	t.Helper()
	for _, sql := range []string{
		"UPDATE event SET expires_at = now() + $1 * interval '1 day', received_at = received_at - interval '10 days' WHERE id = ANY ($2)",
		"UPDATE delivery SET event_expires_at = now() + $1 * interval '1 day' WHERE event_id = ANY ($2)",
		"UPDATE dead_letter SET event_expires_at = now() + $1 * interval '1 day' WHERE event_id = ANY ($2)",
		"UPDATE settled SET expires_at = now() + $1 * interval '1 day' WHERE event_id = ANY ($2)",
		"UPDATE attempt SET expires_at = now() + $1 * interval '1 day' WHERE event_id = ANY ($2)",
		"UPDATE outcome SET expires_at = now() + $1 * interval '1 day' WHERE event_id = ANY ($2)",
	} {
		execute(t, s, sql, days, ids)
	}
}

var parents = []string{"event", "settled", "attempt", "outcome"}

// pastPartitions makes the partitions of a day that is over.
func pastPartitions(t testing.TB, s *Store, days int) []string {
	t.Helper()
	var made []string
	for _, parent := range parents {
		if !value[bool](t, s, "SELECT create_partition($1, (now() AT TIME ZONE 'UTC')::date + $2::int)", parent, days) {
			t.Fatalf("the partition of %s was there", parent)
		}
		made = append(made, partitionOf(t, s, parent, days))
	}
	return made
}

func TestPartitionsAreMadeAhead(t *testing.T) {
	s := newStore(t)
	keeps := []Keep{{Events: day, Ledger: 30 * day}, {Events: 2 * day, Ledger: 2 * day}, {Events: day, Ledger: 30 * day}}
	m, err := s.Maintain(t.Context(), keeps)
	if err != nil {
		t.Fatal(err)
	}
	var expected []string
	for parent, first := range map[string][]int{"event": {1, 2}, "settled": {1, 2}, "attempt": {2, 30}, "outcome": {2, 30}} {
		for _, first := range first {
			for ahead := range daysAhead + 1 {
				expected = append(expected, partitionOf(t, s, parent, first+ahead))
			}
		}
	}
	slices.Sort(expected)
	expected = slices.Compact(expected)
	same(t, "created", expected, slices.Sorted(slices.Values(m.Created)))
	same(t, "partitions", expected, partitions(t, s))

	execute(t, s, "UPDATE chore SET due_at = '-infinity'")
	m, err = s.Maintain(t.Context(), keeps)
	same(t, "the second time", Maintained{}, m)
	if err != nil {
		t.Error(err)
	}
	if err := s.EnsurePartitions(t.Context(), keeps); err != nil {
		t.Error(err)
	}
	same(t, "partitions after the second time", expected, partitions(t, s))
}

// Rows find their partition, and it is the same day for every session.
func TestPartitionsAreDaysOfUTC(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	for i, zone := range []string{"Pacific/Kiritimati", "America/Los_Angeles", "UTC"} {
		zoned := openStore(t, with(t, url, "timezone", zone))
		if err := zoned.EnsurePartitions(t.Context(), []Keep{{Events: time.Duration(i+1) * 7 * day, Ledger: day}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		keep := time.Duration(i+1) * 7 * day
		sub := submission(t, digits(i), func(s *Submission) { s.KeepEvent = keep })
		enqueue(t, s, sub)
		same(t, "partition", partitionOf(t, s, "event", (i+1)*7), value[string](t, s, "SELECT tableoid::regclass::text FROM event WHERE id = $1", sub.Event.ID))
	}
	bounds := value[string](t, openStore(t, with(t, url, "timezone", "UTC")),
		"SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = to_regclass($1)", partitionOf(t, s, "event", 7))
	same(t, "bounds", value[string](t, s, `SELECT format('FOR VALUES FROM (''%s 00:00:00+00'') TO (''%s 00:00:00+00'')', today + 7, today + 8)
		FROM (SELECT (now() AT TIME ZONE 'UTC')::date AS today) AS d`), bounds)
}

// A partition that is made late takes in what came before it.
func TestRowsMoveOutOfTheDefaultPartition(t *testing.T) {
	s := newStore(t)
	ids := enqueueNew(t, s, 4, "a")
	claims := claim(t, s, want("a"))
	finish(t, s, event.VerdictDone, claims[0])
	finish(t, s, event.VerdictFailed, claims[1])
	rows := func(table string) int {
		return value[int](t, s, "SELECT count(*)::int FROM "+pgx.Identifier{table}.Sanitize())
	}
	var before []int
	for _, parent := range parents {
		before = append(before, rows(parent+"_default"))
	}
	same(t, "rows in default partitions", []int{4, 1, 4, 1}, before)
	maintain(t, s)
	for i, parent := range parents {
		same(t, "rows of "+parent, []int{0, before[i], before[i]},
			[]int{rows(parent + "_default"), rows(partitionOf(t, s, parent, 2)), rows(parent)})
	}
	// Nobody notices.
	finish(t, s, event.VerdictDone, claims[2])
	lapse(t, s)
	for _, c := range claim(t, s, want("a")) {
		same(t, "body", c.Event.ID.String(), string(c.Event.Body))
	}
	shown, err := s.ShowEvent(t.Context(), ids[1])
	if err != nil || shown.Event == nil || len(shown.Attempts) != 2 {
		t.Errorf("got %+v, %v", shown, err)
	}
}

// Retention drops whole partitions. What is not terminal, and what is dead,
// keeps its event until nothing needs it (I3, I10).
func TestRetention(t *testing.T) {
	for name, past := range map[string]func(*testing.T, *Store) []string{
		"partition": func(t *testing.T, s *Store) []string { return pastPartitions(t, s, -1) },
		"default":   func(*testing.T, *Store) []string { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			made := past(t, s)
			ids := enqueueNew(t, s, 6, "a")
			pending, claimed, failed, dead, done, fresh := ids[0], ids[1], ids[2], ids[3], ids[4], ids[5]
			for _, c := range claim(t, s, want("a"))[1:5] {
				switch c.Token.Delivery.Event {
				case failed:
					finish(t, s, event.VerdictFailed, c)
				case dead:
					finish(t, s, event.VerdictDead, c)
				case done:
					finish(t, s, event.VerdictDone, c)
				}
			}
			execute(t, s, "UPDATE delivery SET state = 'pending', attempt = 0 WHERE event_id = ANY ($1)", []uuid.UUID{pending, fresh})
			age(t, s, -1, ids[:5]...)

			m := maintain(t, s)
			same(t, "dropped", slices.Sorted(slices.Values(made)), slices.Sorted(slices.Values(m.Dropped)))
			same(t, "held", 4, int(m.Held))
			same(t, "events left", []uuid.UUID{fresh}, column[uuid.UUID](t, s, "SELECT id FROM event"))
			same(t, "held events", sortedIDs(ids[:4]), column[uuid.UUID](t, s, "SELECT id FROM held_event ORDER BY 1"))
			for _, table := range []string{"settled", "outcome"} {
				same(t, "rows of "+table, 0, value[int](t, s, "SELECT count(*)::int FROM "+table))
			}
			if _, err := s.ShowEvent(t.Context(), done); !errors.Is(err, ErrNotFound) {
				t.Errorf("a done event after its time: %v, want %v", err, ErrNotFound)
			}

			// Everything that is open is delivered, everything dead replayed.
			replay := replay.Request{ID: newID(t), Endpoint: endpoint, Selector: replay.Selector{States: []event.State{event.StateDead}, Types: []string{"push"}}}
			if err := s.PlanReplay(t.Context(), replay); err != nil {
				t.Fatal(err)
			}
			if queued, skipped, err := s.RunReplay(t.Context(), replay.ID, nil, 10); queued != 1 || skipped != 0 || err != nil {
				t.Fatalf("queued %d, skipped %d, %v", queued, skipped, err)
			}
			lapse(t, s)
			claims := claim(t, s, want("a"))
			same(t, "claimed", sortedIDs([]uuid.UUID{pending, claimed, failed, dead, fresh}), events(claims))
			for _, c := range claims {
				if c.PayloadMissing || string(c.Event.Body) != c.Event.ID.String() || c.Event.Type != "push" || c.Age <= 0 {
					t.Errorf("%s: payload missing %v, body %q, type %q", c.Event.ID, c.PayloadMissing, c.Event.Body, c.Event.Type)
				}
			}
			same(t, "held while it is needed", 0, int(maintain(t, s).HeldEvents))
			finish(t, s, event.VerdictDone, claims...)

			// The dead letter needs its event until it goes itself.
			same(t, "held that nothing needs", 3, int(maintain(t, s).HeldEvents))
			same(t, "held events", []uuid.UUID{dead}, column[uuid.UUID](t, s, "SELECT id FROM held_event"))
			execute(t, s, "UPDATE dead_letter SET expires_at = now()")
			m = maintain(t, s)
			same(t, "dead letters and held events that went", []int64{1, 1}, []int64{m.DeadLetters, m.HeldEvents})
		})
	}
}

// The last partition of the ledger goes when its own time is over.
func TestLedgerOutlivesItsEvent(t *testing.T) {
	s := newStore(t)
	pastPartitions(t, s, -1)
	id := newDead(t, s, 1)[0]
	age(t, s, -1, id)
	execute(t, s, "UPDATE attempt SET expires_at = now() + interval '1 day'")
	execute(t, s, "UPDATE outcome SET expires_at = now() + interval '1 day'")
	maintain(t, s)
	shown, err := s.ShowEvent(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if shown.Event == nil || len(shown.Deliveries) != 1 || len(shown.Attempts) != 1 || shown.Attempts[0].Status != 410 {
		t.Errorf("got %+v", shown)
	}
}

// An event in the default partition whose time ends while the housekeeping
// is under way is not deleted before it was looked at.
func TestEventThatExpiresMeanwhile(t *testing.T) {
	s := newStore(t)
	id := enqueueNew(t, s, 1, "a")[0]
	// The event expires as soon as somebody has looked which ones did.
	execute(t, s, `CREATE OR REPLACE FUNCTION hold_events(child text) RETURNS bigint LANGUAGE plpgsql AS $$
		BEGIN
			UPDATE event SET expires_at = clock_timestamp();
			UPDATE delivery SET event_expires_at = (SELECT expires_at FROM event);
			RETURN 0;
		END $$`)
	if err := s.emptyDefault(t.Context(), "event", &Maintained{}); err != nil {
		t.Fatal(err)
	}
	same(t, "events", []uuid.UUID{id}, column[uuid.UUID](t, s, "SELECT id FROM event"))
}

func TestKeysExpire(t *testing.T) {
	s := newStore(t)
	first := submission(t, "k", func(s *Submission) { s.KeepKey = time.Hour })
	other := submission(t, "l", func(s *Submission) { s.KeepKey = 2 * time.Hour })
	enqueue(t, s, first, other)
	same(t, "keys that went early", 0, int(maintain(t, s).Keys))
	execute(t, s, "UPDATE dedup SET expires_at = expires_at - interval '1 hour'")
	same(t, "keys that went", 1, int(maintain(t, s).Keys))
	again := submission(t, "k")
	same(t, "receipts", []Receipt{{EventID: again.Event.ID}, {EventID: other.Event.ID, Duplicate: true}},
		enqueue(t, s, again, submission(t, "l")))
}

func TestPurgeGoesOnUntilNothingIsLeft(t *testing.T) {
	s := newStore(t)
	n := purgeBatch + 1
	execute(t, s, `INSERT INTO dedup SELECT 1, n::text::bytea, gen_random_uuid(), 0, now() FROM generate_series(1, $1) AS n`, n)
	execute(t, s, `INSERT INTO dead_letter SELECT gen_random_uuid(), 1, 1, 1, 1, 0, now(), 'PermanentStatus', NULL, '', '', now(), now(), NULL, NULL
		FROM generate_series(1, $1)`, n)
	m := maintain(t, s)
	same(t, "went", []int64{int64(n), int64(n)}, []int64{m.Keys, m.DeadLetters})
	same(t, "left", 0, value[int](t, s, "SELECT ((SELECT count(*) FROM dedup) + (SELECT count(*) FROM dead_letter))::int"))
}

// Of all processes that do the housekeeping, one does each chore, and does it
// again only when it is due.
func TestChoresAreDoneOnce(t *testing.T) {
	const processes = 6
	url := migrated(t)
	s := openStore(t, url)
	stores := make([]*Store, processes)
	for i := range stores {
		stores[i] = openStore(t, url)
	}
	made := pastPartitions(t, s, -2)
	enqueueNew(t, s, 50, "a")
	execute(t, s, "UPDATE dedup SET expires_at = now()")
	all, errs := make([]Maintained, processes), make([]error, processes)
	parallel(processes, func(i int) { all[i], errs[i] = stores[i].Maintain(t.Context(), keeps) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var sum Maintained
	for _, m := range all {
		sum.Created = append(sum.Created, m.Created...)
		sum.Dropped = append(sum.Dropped, m.Dropped...)
		sum.Keys += m.Keys
	}
	same(t, "created", partitions(t, s), slices.Sorted(slices.Values(sum.Created)))
	same(t, "dropped", slices.Sorted(slices.Values(made)), slices.Sorted(slices.Values(sum.Dropped)))
	same(t, "keys", 50, int(sum.Keys))
	m, err := s.Maintain(t.Context(), keeps)
	same(t, "at once again", Maintained{}, m)
	if err != nil {
		t.Error(err)
	}
	same(t, "next times in seconds", []string{"partitions 3600", "purge 60", "tally 10"}, column[string](t, s,
		"SELECT name || ' ' || ceil(extract(epoch FROM due_at - now()) / 10) * 10 FROM chore ORDER BY 1"))
}

// Several processes may find the same partitions missing.
func TestPartitionsAtOnce(t *testing.T) {
	const processes = 4
	url := migrated(t)
	errs := make([]error, processes)
	stores := make([]*Store, processes)
	for i := range stores {
		stores[i] = openStore(t, url)
	}
	parallel(processes, func(i int) { errs[i] = stores[i].EnsurePartitions(t.Context(), keeps) })
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	same(t, "partitions", len(parents)*(daysAhead+1), len(partitions(t, stores[0])))
}

// A change of partitions gives up rather than make writers wait, and what it
// leaves undone is done the next time.
func TestPartitionsGiveWayToWriters(t *testing.T) {
	s := newStore(t)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "LOCK TABLE attempt_default IN ROW EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	execute(t, s, "UPDATE chore SET due_at = '-infinity'")
	before := time.Now()
	_, err = s.Maintain(t.Context(), keeps)
	if !isCode(err, "55P03") || !errors.Is(err, ErrUnavailable) { // lock_not_available
		t.Fatalf("got %v, want the lock's timeout", err)
	}
	if took := time.Since(before); took > 10*time.Second {
		t.Errorf("gave up after %s", took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	maintain(t, s)
	same(t, "partitions", len(parents)*(daysAhead+1), len(partitions(t, s)))
}

// Partitions come and go under a pipeline at work, which loses nothing.
func TestPartitionsChangeUnderLoad(t *testing.T) {
	url := migrated(t)
	s, worker, keeper := openStore(t, url), openStore(t, url), openStore(t, url)
	q := NewEnqueuer(s, EnqueuerOptions{})
	defer q.Close()
	stop := make(chan struct{})
	running := func() bool {
		select {
		case <-stop:
			return false
		default:
			return true
		}
	}
	const senders = 4
	sent := make([]int, senders)
	errs := make([]error, senders+2)
	delivered := map[event.ID]bool{}
	parallel(senders+2, func(i int) {
		for running() && errs[i] == nil {
			switch {
			case i < senders:
				sent[i]++
				id, err := event.NewID()
				if err == nil {
					e := &event.Event{ID: id, Endpoint: endpoint, Key: id.String(), Body: []byte(id.String())}
					_, err = q.Enqueue(context.Background(), Submission{Event: e, Destinations: []string{"a"}, KeepEvent: 2 * day, KeepKey: day})
				}
				errs[i] = err
			case i == senders:
				errs[i] = deliverAll(worker, delivered)
			default:
				errs[i] = changePartitions(keeper)
				close(stop)
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := deliverAll(worker, delivered); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range sent {
		total += n
	}
	same(t, "delivered", total, len(delivered))
	same(t, "settled", total, value[int](t, s, "SELECT count(*)::int FROM settled"))
	same(t, "events", total, value[int](t, s, "SELECT count(*)::int FROM event"))
	t.Logf("%d events", total)
}

// deliverAll claims and settles what is due.
func deliverAll(s *Store, delivered map[event.ID]bool) error {
	for {
		claims, err := s.Claim(context.Background(), "worker", []Want{want("a", most(100))})
		if err != nil || len(claims) == 0 {
			return err
		}
		var outcomes []Outcome
		for _, c := range claims {
			if c.PayloadMissing || string(c.Event.Body) != c.Event.ID.String() {
				return fmt.Errorf("%s: body %q", c.Event.ID, c.Event.Body)
			}
			outcomes = append(outcomes, outcome(c, event.VerdictDone))
		}
		took, err := s.Complete(context.Background(), outcomes)
		if err != nil {
			return err
		}
		for i, ok := range took {
			if ok {
				delivered[claims[i].Token.Delivery.Event] = true
			}
		}
	}
}

// changePartitions makes all partitions ahead, one retention after the other,
// takes some away again, and makes them anew.
func changePartitions(s *Store) error {
	ctx := context.Background()
	for i := range 6 {
		if err := s.EnsurePartitions(ctx, []Keep{{Events: time.Duration(i) * day, Ledger: time.Duration(i) * day}}); err != nil {
			return err
		}
		for _, parent := range parents {
			// Past ones, which are retired while everything else goes on.
			if _, err := s.pool.Exec(ctx, "SELECT create_partition($1, (now() AT TIME ZONE 'UTC')::date - $2::int)", parent, i+1); err != nil {
				return err
			}
		}
		if err := s.retire(ctx, &Maintained{}); err != nil {
			return err
		}
	}
	return nil
}

// A replay that starts runs of done events at the moment in which their held
// copies are purged keeps them.
func TestPurgeWaitsForReplays(t *testing.T) {
	url := migrated(t)
	s, other := openStore(t, url), openStore(t, url)
	pastPartitions(t, s, -1)
	id := enqueueNew(t, s, 1, "a")[0]
	age(t, s, -1, id)
	maintain(t, s)
	finish(t, s, event.VerdictDone, claimOne(t, s)) // nothing needs the held copy any more
	replay := replay.Request{ID: newID(t), Endpoint: endpoint, Selector: replay.Selector{States: []event.State{event.StateDone}}}
	if err := s.PlanReplay(t.Context(), replay); err != nil {
		t.Fatal(err)
	}

	// The replay's transaction stands still before its commit.
	execute(t, s, `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1, 2); RETURN NULL; END $$`)
	execute(t, s, `CREATE TRIGGER wait AFTER INSERT ON delivery FOR EACH STATEMENT EXECUTE FUNCTION wait()`)
	tx, err := other.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1, 2)"); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 2)
	go func() {
		_, _, err := s.RunReplay(context.Background(), replay.ID, nil, 10)
		errs <- err
	}()
	waitForLocks(t, s, "advisory", 1)
	go func() { errs <- s.purge(context.Background(), &Maintained{}) }()
	testenv.Eventually(t, patience, func() error {
		// Until the purge waits, or is through.
		if len(errs) > 0 || value[int](t, s, "SELECT count(*)::int FROM pg_locks WHERE NOT granted AND locktype = 'advisory'") == 2 {
			return nil
		}
		return errors.New("the purge is under way")
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	c := claimOne(t, s)
	if c.PayloadMissing || c.Token.Delivery.Run != 2 {
		t.Errorf("run %d, payload missing %v", c.Token.Delivery.Run, c.PayloadMissing)
	}
}

// An event that ends soon may have ended when the run that a replay starts is
// committed: it is held in time.
func TestReplayOfAnEventThatEndsSoon(t *testing.T) {
	s := newStore(t)
	id := enqueueNew(t, s, 1, "a")[0]
	finish(t, s, event.VerdictDone, claimOne(t, s))
	execute(t, s, "UPDATE event SET expires_at = now() + interval '5 minutes'")
	execute(t, s, "UPDATE settled SET expires_at = (SELECT expires_at FROM event)")
	replay := replay.Request{ID: newID(t), Endpoint: endpoint, Selector: replay.Selector{States: []event.State{event.StateDone}}}
	if err := s.PlanReplay(t.Context(), replay); err != nil {
		t.Fatal(err)
	}
	if queued, _, err := s.RunReplay(t.Context(), replay.ID, nil, 10); queued != 1 || err != nil {
		t.Fatalf("queued %d, %v", queued, err)
	}
	same(t, "held events", []uuid.UUID{id}, column[uuid.UUID](t, s, "SELECT id FROM held_event"))
	same(t, "held while its time lasts", 0, int(maintain(t, s).HeldEvents))
	c := claimOne(t, s)
	same(t, "body", id.String(), string(c.Event.Body))
}
