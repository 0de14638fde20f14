package worker

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patience bounds every wait. It is reached only when a test fails.
const patience = 40 * time.Second

var github = event.EndpointRef{Namespace: "payments", Name: "github"}

// config has one endpoint, github.
func config(destinations ...pipeline.Destination) *pipeline.Config {
	return &pipeline.Config{Version: pipeline.Version, Endpoints: []pipeline.Endpoint{{
		Namespace: github.Namespace, Name: github.Name, LeaseSeconds: 60,
		Retention:    pipeline.Retention{EventsSeconds: 86400, DeadLettersSeconds: 86400, DedupSeconds: 86400},
		Destinations: destinations,
	}}}
}

// destination takes deliveries at a path of its own. Its attempts are so far
// apart that a test has to make the next one due; see rig.due.
func destination(name, url string, change ...func(*pipeline.Destination)) pipeline.Destination {
	d := pipeline.Destination{
		Name:           name,
		HTTP:           pipeline.HTTP{URL: url + "/" + name, TimeoutSeconds: 30},
		Retry:          pipeline.Retry{MaxAttempts: 3, MinBackoffSeconds: 60, MaxBackoffSeconds: 3600},
		MaxConcurrency: 8,
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

func concurrency(n int) func(*pipeline.Destination) {
	return func(d *pipeline.Destination) { d.MaxConcurrency = n }
}

func maxAttempts(n int) func(*pipeline.Destination) {
	return func(d *pipeline.Destination) { d.Retry.MaxAttempts = n }
}

// rig is a database with a pipeline's schema.
type rig struct {
	t        testing.TB
	url      string
	store    *store.Store
	enqueuer *store.Enqueuer
	pool     *pgxpool.Pool
}

// newRig migrates a schema of the test's own in the shared database.
func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigAt(t, testenv.Schema(t))
}

func newRigAt(t testing.TB, url string) *rig {
	t.Helper()
	if err := store.Migrate(t.Context(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(url, store.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, url: url, store: s, pool: pool, enqueuer: store.NewEnqueuer(s, store.EnqueuerOptions{})}
	t.Cleanup(func() {
		r.enqueuer.Close()
		s.Close()
		pool.Close()
	})
	// Default partitions will do, and dozens more make every test slow.
	r.execute("UPDATE chore SET due_at = 'infinity' WHERE name = 'partitions'")
	return r
}

// enqueue accepts n events of some size for destinations of github. It
// notifies nobody.
func (r *rig) enqueue(n, size int, destinations ...string) []event.ID {
	r.t.Helper()
	ids := make([]event.ID, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { ids[i], errs[i] = r.accept(size, destinations) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
	return ids
}

func (r *rig) accept(size int, destinations []string) (event.ID, error) {
	id, err := event.NewID()
	if err != nil {
		return id, err
	}
	_, err = r.enqueuer.Enqueue(r.t.Context(), store.Submission{
		Event:        &event.Event{ID: id, Endpoint: github, Key: id.String(), Type: "push", Body: bytes.Repeat([]byte{'x'}, size)},
		Destinations: destinations,
		KeepEvent:    48 * time.Hour,
		KeepKey:      48 * time.Hour,
	})
	return id, err
}

// wake notifies the workers.
func (r *rig) wake() {
	r.t.Helper()
	if err := r.store.Wake(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) execute(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// due makes the next attempt of everything that failed due.
func (r *rig) due() {
	r.t.Helper()
	r.execute("UPDATE delivery SET next_at = now() WHERE state = 'failed'")
}

// lapse ends all leases, as time would.
func (r *rig) lapse() {
	r.t.Helper()
	r.execute("UPDATE delivery SET next_at = now() - interval '1 second' WHERE state = 'claimed'")
}

// value returns the only value of a query.
func value[T any](r *rig, sql string, args ...any) T {
	r.t.Helper()
	var v T
	if err := r.pool.QueryRow(r.t.Context(), sql, args...).Scan(&v); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// contents is everything that workers write.
func (r *rig) contents() map[string]string {
	r.t.Helper()
	all := map[string]string{}
	for _, table := range []string{"delivery", "attempt", "outcome", "settled", "dead_letter", "held_event"} {
		all[table] = value[string](r, "SELECT coalesce(string_agg(r::text, E'\n' ORDER BY r::text), '') FROM "+pgx.Identifier{table}.Sanitize()+" AS r")
	}
	return all
}

// show returns an event's only delivery and its attempts.
func (r *rig) show(id event.ID) (store.DeliveryRecord, []store.AttemptRecord) {
	r.t.Helper()
	record, err := r.store.ShowEvent(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(record.Deliveries) != 1 {
		r.t.Fatalf("event %s has %d deliveries, want 1", id, len(record.Deliveries))
	}
	return record.Deliveries[0], record.Attempts
}

// results are how attempts ended, in order.
func results(attempts []store.AttemptRecord) []string {
	all := []string{}
	for _, a := range attempts {
		all = append(all, string(a.Result))
	}
	return all
}

// waitForStates waits until a destination has so many deliveries by state,
// and none in another.
func (r *rig) waitForStates(name string, want map[event.State]int) {
	r.t.Helper()
	testenv.Eventually(r.t, patience, func() error {
		got := map[event.State]int{}
		rows, err := r.pool.Query(r.t.Context(), "SELECT state FROM delivery_state WHERE destination = $1", name)
		if err != nil {
			return err
		}
		states, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, state := range states {
			got[event.State(state)]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("deliveries to %s (-want +got):\n%s", name, diff)
		}
		return nil
	})
}

// stage has a sink's requests wait until the test answers each.
type stage struct {
	t      testing.TB
	visits chan *visit
}

// visit is a request on the stage.
type visit struct {
	header http.Header
	uri    string
	status chan int
	gone   <-chan struct{} // closed when the client has gone away
}

func newStage(t testing.TB, sink *testenv.Sink) *stage {
	t.Helper()
	s := &stage{t: t, visits: make(chan *visit)}
	sink.Handle(s)
	return s
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{header: r.Header, uri: r.RequestURI, status: make(chan int, 1), gone: r.Context().Done()}
	select {
	case s.visits <- v:
	case <-v.gone:
		panic(http.ErrAbortHandler)
	}
	select {
	case status := <-v.status:
		w.WriteHeader(status)
	case <-v.gone:
		panic(http.ErrAbortHandler)
	}
}

// next waits for the next request.
func (s *stage) next() *visit {
	s.t.Helper()
	return receive(s.t, "a request", s.visits)
}

// answer ends the request.
func (v *visit) answer(status int) { v.status <- status }

func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: not within %s", what, patience)
		panic("unreachable")
	}
}

// same fails the test if two values differ.
func same[T any](t testing.TB, what string, want, got T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
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
	u.RawQuery = q.Encode()
	return u.String()
}
