package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patience bounds every wait. It is reached only when a test fails.
const patience = 20 * time.Second

// migrated returns the URL of a migrated schema of the test's own.
func migrated(t testing.TB) string {
	t.Helper()
	url := testenv.Schema(t)
	if err := Migrate(t.Context(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	return url
}

func openStore(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(url, Options{MaxConns: 10, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func newStore(t testing.TB) *Store {
	t.Helper()
	return openStore(t, migrated(t))
}

// with adds a parameter to a database URL.
func with(t testing.TB, raw, name, value string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // as libpq, pgx does not read "+" as a space
	return u.String()
}

// conflicts counts the statements of a store that the server gave up because
// of a deadlock, which the store itself would hide by trying again.
type conflicts struct{ n atomic.Int64 }

func (c *conflicts) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *conflicts) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if isContention(data.Err) {
		c.n.Add(1)
	}
}

// watch returns a store on the same schema whose deadlocks are counted.
func watch(t testing.TB, s *Store, c *conflicts) *Store {
	t.Helper()
	config := s.pool.Config()
	config.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &Store{pool: pool}
}

// execute runs a statement of the test's own in the store's schema.
func execute(t testing.TB, s *Store, sql string, args ...any) int64 {
	t.Helper()
	tag, err := s.pool.Exec(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

// column returns the first column of a query's rows.
func column[T any](t testing.TB, s *Store, sql string, args ...any) []T {
	t.Helper()
	rows, err := s.pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return values
}

// value returns the only value of a query.
func value[T any](t testing.TB, s *Store, sql string, args ...any) T {
	t.Helper()
	values := column[T](t, s, sql, args...)
	if len(values) != 1 {
		t.Fatalf("%s: %d rows, want 1", sql, len(values))
	}
	return values[0]
}

// contents returns every row of every table, for tests that nothing changed.
func contents(t testing.TB, s *Store) map[string]string {
	t.Helper()
	tables := column[string](t, s, `SELECT c.relname::text FROM pg_class c
		WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relkind IN ('r', 'p') AND NOT c.relispartition`)
	all := map[string]string{}
	for _, table := range tables {
		all[table] = value[string](t, s,
			"SELECT coalesce(string_agg(r::text, E'\n' ORDER BY r::text), '') FROM "+pgx.Identifier{table}.Sanitize()+" AS r")
	}
	return all
}

// same fails the test if two values differ.
func same[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// block holds a table so that every use of it waits, until the returned
// function is called or the test ends.
func block(t testing.TB, s *Store, table string) (unlock func()) {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	t.Cleanup(unlock)
	if _, err := tx.Exec(t.Context(), "LOCK TABLE "+pgx.Identifier{table}.Sanitize()+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	return unlock
}

// waitForLocks waits until n statements of this schema's sessions wait for a
// lock of some type, as pg_locks calls it.
func waitForLocks(t testing.TB, s *Store, locktype string, n int) {
	t.Helper()
	testenv.Eventually(t, patience, func() error {
		got := value[int](t, s, `SELECT count(DISTINCT l.pid)::int FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE NOT l.granted AND l.locktype = $1 AND a.application_name = current_setting('application_name')`, locktype)
		if got != n {
			return fmt.Errorf("%d statements wait for a lock, want %d", got, n)
		}
		return nil
	})
}

var endpoint = event.EndpointRef{Namespace: "payments", Name: "github"}

func dest(name string) event.DestinationRef {
	return event.DestinationRef{Endpoint: endpoint, Name: name}
}

func newID(t testing.TB) event.ID {
	t.Helper()
	id, err := event.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// submission is an event for one destination, "a". Its body is its key.
func submission(t testing.TB, key string, changes ...func(*Submission)) Submission {
	t.Helper()
	s := Submission{
		Event: &event.Event{
			ID: newID(t), Endpoint: endpoint, Key: key, Type: "push", ContentType: "application/json",
			Headers: map[string][]string{"X-Test": {"1", "2"}}, Body: []byte(key), TraceParent: "00-trace",
		},
		Destinations: []string{"a"},
		KeepEvent:    48 * time.Hour,
		KeepKey:      48 * time.Hour,
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func to(destinations ...string) func(*Submission) {
	return func(s *Submission) { s.Destinations = destinations }
}

func body(b string) func(*Submission) {
	return func(s *Submission) { s.Event.Body = []byte(b) }
}

func typed(name string) func(*Submission) {
	return func(s *Submission) { s.Event.Type = name }
}

// enqueue commits submissions in one batch.
func enqueue(t testing.TB, s *Store, batch ...Submission) []Receipt {
	t.Helper()
	receipts := make([]Receipt, len(batch))
	for i, r := range s.enqueueBatch(t.Context(), batch) {
		if r.err != nil {
			t.Fatal(r.err)
		}
		receipts[i] = r.receipt
	}
	return receipts
}

// enqueueNew commits n events for the destinations and returns their ids,
// oldest first.
func enqueueNew(t testing.TB, s *Store, n int, destinations ...string) []event.ID {
	t.Helper()
	var batch []Submission
	for range n {
		id := newID(t)
		batch = append(batch, submission(t, id.String(), to(destinations...), func(s *Submission) { s.Event.ID = id }))
	}
	ids := make([]event.ID, n)
	for i, r := range enqueue(t, s, batch...) {
		if r.Duplicate {
			t.Fatal("a new key is a duplicate")
		}
		ids[i] = r.EventID
	}
	return ids
}

// want asks for everything that is due to a destination.
func want(name string, changes ...func(*Want)) Want {
	w := Want{
		Destination: dest(name), Most: 1000, MostBytes: 1 << 30, Lease: time.Minute, MaxAttempts: 3, KeepLedger: 48 * time.Hour,
	}
	for _, change := range changes {
		change(&w)
	}
	return w
}

func most(n int) func(*Want)           { return func(w *Want) { w.Most = n } }
func mostBytes(n int64) func(*Want)    { return func(w *Want) { w.MostBytes = n } }
func since(when time.Time) func(*Want) { return func(w *Want) { w.Since = when } }

// claim takes deliveries, in the order of events and destinations.
func claim(t testing.TB, s *Store, wants ...Want) []*Claim {
	t.Helper()
	claims, err := s.Claim(t.Context(), "worker", wants)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(claims, func(a, b *Claim) int {
		x, y := a.Token.Delivery, b.Token.Delivery
		return cmp.Or(slices.Compare(x.Event[:], y.Event[:]), cmp.Compare(x.Destination.Name, y.Destination.Name))
	})
	return claims
}

// claimOne takes the only delivery that is due to destination "a".
func claimOne(t testing.TB, s *Store) *Claim {
	t.Helper()
	claims := claim(t, s, want("a"))
	if len(claims) != 1 {
		t.Fatalf("%d deliveries are due, want 1", len(claims))
	}
	return claims[0]
}

// events returns the events of claims, in their order.
func events(claims []*Claim) []event.ID {
	ids := []event.ID{}
	for _, c := range claims {
		ids = append(ids, c.Token.Delivery.Event)
	}
	return ids
}

// lapse ends all leases and waits, as time would.
func lapse(t testing.TB, s *Store) {
	t.Helper()
	execute(t, s, "UPDATE delivery SET next_at = now() - interval '1 second' WHERE next_at > now()")
}

// outcome is an attempt's end with all that goes with the verdict.
func outcome(c *Claim, v event.Verdict) Outcome {
	o := Outcome{Claim: c, Verdict: v, Latency: 12 * time.Millisecond, KeepLedger: 48 * time.Hour, KeepEnded: 96 * time.Hour}
	switch v {
	case event.VerdictDone:
		o.Status, o.KeepEnded = 204, 48*time.Hour
	case event.VerdictFailed:
		o.Status, o.ErrorClass, o.Error, o.Excerpt, o.Delay = 503, event.ErrorHTTPStatus, "status 503", "try later", time.Minute
	case event.VerdictDead:
		o.Status, o.ErrorClass, o.Error, o.Excerpt, o.Reason = 410, event.ErrorHTTPStatus, "status 410", "gone", event.ReasonPermanentStatus
	}
	return o
}

var verdicts = []event.Verdict{event.VerdictDone, event.VerdictFailed, event.VerdictDead, event.VerdictReleased}

func complete(t testing.TB, s *Store, outcomes ...Outcome) []bool {
	t.Helper()
	took, err := s.Complete(t.Context(), outcomes)
	if err != nil {
		t.Fatal(err)
	}
	return took
}

// finish ends claims with one verdict; each must take effect.
func finish(t testing.TB, s *Store, v event.Verdict, claims ...*Claim) {
	t.Helper()
	var outcomes []Outcome
	for _, c := range claims {
		outcomes = append(outcomes, outcome(c, v))
	}
	for i, took := range complete(t, s, outcomes...) {
		if !took {
			t.Fatalf("%s: %s took no effect", claims[i].Token.Delivery, v)
		}
	}
}

// newDead makes n dead letters of destination "a" and returns their events.
func newDead(t testing.TB, s *Store, n int) []event.ID {
	t.Helper()
	ids := enqueueNew(t, s, n, "a")
	finish(t, s, event.VerdictDead, claim(t, s, want("a"))...)
	return ids
}

func counts(t testing.TB, s *Store, destinations ...string) []Counts {
	t.Helper()
	refs := make([]event.DestinationRef, len(destinations))
	for i, name := range destinations {
		refs[i] = dest(name)
	}
	all, err := s.Counts(t.Context(), refs)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var keeps = []Keep{{Events: 48 * time.Hour, Ledger: 48 * time.Hour}}

// maintain does all housekeeping now.
func maintain(t testing.TB, s *Store) Maintained {
	t.Helper()
	execute(t, s, "UPDATE chore SET due_at = '-infinity'")
	m, err := s.Maintain(t.Context(), keeps)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// enqueueBatch commits submissions in one batch.
func (s *Store) enqueueBatch(ctx context.Context, batch []Submission) []result {
	results := make([]result, len(batch))
	all := make([]prepared, 0, len(batch))
	for i := range batch {
		p, err := prepare(&batch[i], &results[i])
		if err != nil {
			results[i].err = err
			continue
		}
		all = append(all, p)
	}
	s.enqueue(ctx, all)
	return results
}

// parallel runs n functions at once, on a test that has to wait for all.
func parallel(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

func isCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}

func sortedIDs(ids []uuid.UUID) []uuid.UUID {
	return slices.SortedFunc(slices.Values(ids), func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
}

func digits(n int) string { return strconv.Itoa(n) }

func diffUnexported(want, got *Claim) string {
	return gocmp.Diff(want, got, gocmp.AllowUnexported(Claim{}))
}

// list returns deliveries, newest first, 100 where the filter has no limit.
func list(t testing.TB, s *Store, f Filter) []DeliveryRecord {
	t.Helper()
	f.Limit = cmp.Or(f.Limit, 100)
	records, err := s.ListDeliveries(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return records
}
