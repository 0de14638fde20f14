package store

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/testenv"
)

// deadCounts counts the dead letters of the endpoint; those that are purged
// within an hour are expiring.
func deadCounts(t testing.TB, s *Store) []event.DeadCounts {
	t.Helper()
	counts, err := s.DeadCounts(t.Context(), []event.EndpointRef{{Namespace: "nobody", Name: "knows"}, endpoint}, []time.Duration{time.Hour, time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// byReason is what deadCounts says of destinations, without times.
func byReason(t testing.TB, s *Store) map[string]map[event.Reason]int64 {
	t.Helper()
	all := map[string]map[event.Reason]int64{}
	for _, c := range deadCounts(t, s) {
		all[c.Destination.Name] = c.Reasons
	}
	return all
}

// bruteByReason counts what byReason sums up, the slow way.
func bruteByReason(t testing.TB, s *Store) map[string]map[event.Reason]int64 {
	t.Helper()
	all := map[string]map[event.Reason]int64{}
	for _, name := range column[string](t, s, "SELECT DISTINCT destination FROM delivery_state WHERE state = 'dead' AND replayed_by IS NULL") {
		all[name] = map[event.Reason]int64{}
		for _, reason := range column[string](t, s, "SELECT DISTINCT reason FROM dead_letter") {
			n := value[int64](t, s, `SELECT count(*) FROM delivery_state
				WHERE destination = $1 AND state = 'dead' AND replayed_by IS NULL AND reason = $2`, name, reason)
			if n > 0 {
				all[name][event.Reason(reason)] = n
			}
		}
	}
	return all
}

// die ends deliveries for a reason.
func die(t testing.TB, s *Store, reason event.Reason, claims ...*Claim) {
	t.Helper()
	var outcomes []Outcome
	for _, c := range claims {
		o := outcome(c, event.VerdictDead)
		o.Reason = reason
		outcomes = append(outcomes, o)
	}
	complete(t, s, outcomes...)
}

func TestDeadCounts(t *testing.T) {
	s := newStore(t)
	if got := deadCounts(t, s); len(got) != 0 {
		t.Errorf("of nothing: %+v", got)
	}
	enqueueNew(t, s, 5, "a", "b", "c")
	atA, atB := claim(t, s, want("a")), claim(t, s, want("b"))
	die(t, s, event.ReasonPermanentStatus, atA[:3]...)
	die(t, s, event.ReasonAttemptsExhausted, atA[3], atB[0])
	finish(t, s, event.VerdictFailed, atA[4])
	execute(t, s, "UPDATE dead_letter SET died_at = now() - interval '90 seconds', expires_at = now() + interval '2 hours'")
	execute(t, s, "UPDATE dead_letter SET died_at = '2020-01-02 03:04:05Z' WHERE event_id = $1 AND destination_id = 1", atA[1].Event.ID)
	execute(t, s, "UPDATE dead_letter SET expires_at = now() + interval '10 minutes' WHERE event_id = $1", atA[0].Event.ID)
	execute(t, s, "UPDATE dead_letter SET expires_at = now() + interval '50 minutes' WHERE event_id = $1", atA[2].Event.ID)

	expected := map[string]map[event.Reason]int64{
		"a": {event.ReasonPermanentStatus: 3, event.ReasonAttemptsExhausted: 1},
		"b": {event.ReasonAttemptsExhausted: 1},
	}
	for range 2 {
		same(t, "by reason", expected, byReason(t, s))
		same(t, "differences are nobody's dead letters", []Counts{{Failed: 1, Dead: 4}, {Claimed: 4, Dead: 1}, {Pending: 5}}, withoutAge(counts(t, s, "a", "b", "c")))
		maintain(t, s)
	}
	got := deadCounts(t, s)
	same(t, "total", []int64{4, 1}, []int64{got[0].Total(), got[1].Total()})
	same(t, "oldest death", time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC), got[0].OldestDeath.UTC())
	if age := got[1].OldestAge; age < 90*time.Second || age > 10*time.Minute {
		t.Errorf("the oldest died %s ago", age)
	}
	same(t, "expiring", []int64{2, 1}, []int64{got[0].Expiring, got[1].Expiring})
	for _, x := range []time.Duration{got[0].LastPurge.Sub(got[0].FirstPurge) - 40*time.Minute, got[1].LastPurge.Sub(got[1].FirstPurge)} {
		if x.Abs() > time.Minute {
			t.Errorf("the times of the purge are off by %s", x)
		}
	}

	run(t, s, plan(t, s, newReplay(t, replay.Selector{States: selectDead, Destinations: []string{"a"}, Reasons: []event.Reason{event.ReasonPermanentStatus}})), 10)
	same(t, "after a replay", map[string]map[event.Reason]int64{"a": {event.ReasonAttemptsExhausted: 1}, "b": {event.ReasonAttemptsExhausted: 1}}, byReason(t, s))
	same(t, "taken up, none expires", int64(0), deadCounts(t, s)[0].Expiring)
	execute(t, s, "UPDATE dead_letter SET expires_at = now()")
	maintain(t, s)
	execute(t, s, "UPDATE chore SET due_at = '-infinity'")
	maintain(t, s)
	same(t, "after the purge", map[string]map[event.Reason]int64{}, byReason(t, s))
}

// What counting dead letters costs depends neither on what is waiting nor on
// what is dead and stays.
func TestDeadCountsReadLittle(t *testing.T) {
	s := newStore(t)
	newDead(t, s, 1)
	enqueueNew(t, s, 1, "b")
	cost := func() float64 {
		t.Helper()
		maintain(t, s)
		execute(t, s, "VACUUM ANALYZE delivery, dead_letter, tally, tally_delta")
		c := call{sqlDeadCounts, []any{[]string{endpoint.Namespace}, []string{endpoint.Name}, []int32{3600}}}
		plan := c.plan(t, s)
		types, indexes := plan.scans("dead_letter")
		t.Logf("%v of %v: %v pages", types, indexes, plan.Hit+plan.Read)
		return plan.Hit + plan.Read
	}
	few := cost()
	fill(t, s, backlog)
	execute(t, s, `INSERT INTO dead_letter (event_id, destination_id, run, attempt, attempts, size, event_expires_at, reason, error_class, last_error, died_at, expires_at)
		SELECT gen_random_uuid(), d.id, 1, 1, 1, 100, now(), 'PermanentStatus', '', '', now() - n * interval '1 second', now() + interval '1 day'
		FROM generate_series(1, $1::int) AS n, destination d`, backlog)
	if many := cost(); many > few+40 {
		t.Errorf("counting reads %v pages with much that waits and is dead, %v without", many, few)
	}
}

// Dead letters that were there before they were counted by reason are counted,
// and what a binary of the version before does still counts.
func TestDeadCountsOfAnOlderSchema(t *testing.T) {
	url := testenv.Schema(t)
	migrateTo(t, url, 1)
	s := openStore(t, url)
	newDead(t, s, 3)
	same(t, "of version 1", 3, value[int](t, s, "SELECT count(*)::int FROM dead_letter"))
	for range 2 {
		if err := Migrate(t.Context(), url, t.Logf); err != nil {
			t.Fatal(err)
		}
		execute(t, s, "UPDATE schema_lock SET updated_at = NULL")
	}
	same(t, "after the migration", bruteByReason(t, s), byReason(t, s))
	newDead(t, s, 2)
	execute(t, s, sqlFoldTally) // as before
	same(t, "afterwards", bruteByReason(t, s), byReason(t, s))
	same(t, "dead", int64(5), counts(t, s, "a")[0].Dead)
}

// migrateTo brings a database to an older version.
func migrateTo(t testing.TB, url string, version int64) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	provider, err := newProvider(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(context.Background(), version); err != nil {
		t.Fatal(err)
	}
}
