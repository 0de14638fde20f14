package databases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patience bounds every wait. It is reached only when a test fails.
const patience = 20 * time.Second

var handler = event.DestinationRef{Endpoint: event.EndpointRef{Namespace: "payments", Name: "github"}, Name: "handler"}

// logs is what was logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// open returns stores that are closed when the test ends.
func open(t testing.TB, change ...func(*Stores)) (*Stores, *logs) {
	t.Helper()
	l := &logs{}
	s := newStores(slog.New(slog.NewTextHandler(l, nil)), func(s *Stores) {
		for _, c := range change {
			c(s)
		}
	})
	t.Cleanup(s.Close)
	return s, l
}

// brief shortens the times that a test waits for.
func brief(s *Stores) { s.callTimeout, s.retryAfter = time.Second, 100*time.Millisecond }

// again shortens the time after which a failure is looked at again.
func again(s *Stores) { s.retryAfter = 100 * time.Millisecond }

// migrated returns the URL of a schema that has a dead letter of handler.
func migrated(t testing.TB) string {
	t.Helper()
	url := testenv.Schema(t)
	if err := store.Migrate(t.Context(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	q := store.NewEnqueuer(db, store.EnqueuerOptions{})
	defer q.Close()
	id, err := event.NewID()
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Enqueue(t.Context(), store.Submission{
		Event:        &event.Event{ID: id, Endpoint: handler.Endpoint, Key: "1", Type: "push", Body: []byte("{}")},
		Destinations: []string{handler.Name}, KeepEvent: time.Hour, KeepKey: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	claims, err := db.Claim(t.Context(), "worker", []store.Want{{
		Destination: handler, Most: 1, MostBytes: 1000, Lease: time.Minute, MaxAttempts: 1, KeepLedger: time.Hour,
	}})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d, %v", len(claims), err)
	}
	ended, err := db.Complete(t.Context(), []store.Outcome{{
		Claim: claims[0], Verdict: event.VerdictDead, Reason: event.ReasonPermanentStatus, Status: 410, KeepLedger: time.Hour, KeepEnded: time.Hour,
	}})
	if err != nil || !ended[0] {
		t.Fatalf("completed %v, %v", ended, err)
	}
	return url
}

// execute runs a statement in a session of its own.
func execute(t testing.TB, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// schema returns the schema that a URL chooses.
func schema(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("search_path")
}

// is fails the test unless an error has a text, "" for none.
func is(t testing.TB, what, want string, err error) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// eventually waits until a call succeeds.
func eventually(t testing.TB, call func() error) {
	t.Helper()
	testenv.Eventually(t, patience, call)
}

// within fails the test if a call takes longer, with room for a busy machine.
func within(t testing.TB, what string, bound time.Duration, call func()) {
	t.Helper()
	done := make(chan struct{})
	start := time.Now()
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: not within %s", what, patience)
	}
	if took := time.Since(start); took > bound+2*time.Second {
		t.Errorf("%s: took %s, want at most %s", what, took, bound)
	}
}

// sessions reports an error unless there are so many connections of stores.
func sessions(t testing.TB, url string, want int) error {
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var n int
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ackrail manager'").Scan(&n)
	if err == nil && n != want {
		err = fmt.Errorf("%d connections, want %d", n, want)
	}
	return err
}

var errNotYet = errors.New("not yet")

// hold runs a statement in a transaction that stays open until release is
// called.
func hold(t testing.TB, url, sql string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = conn.Close(context.Background()) }
	t.Cleanup(release)
	if _, err := conn.Exec(t.Context(), "BEGIN; "+sql); err != nil {
		t.Fatal(err)
	}
	return release
}
