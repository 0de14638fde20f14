package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/testenv"
)

// listener is a Listen at work.
type listener struct {
	t     *testing.T
	wakes atomic.Int64
	stop  context.CancelFunc
	ended chan struct{}
	err   error // once it has ended
}

func listen(t *testing.T, s *Store) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{t: t, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		l.err = s.Listen(ctx, func() { l.wakes.Add(1) })
	}()
	t.Cleanup(func() {
		cancel()
		<-l.ended
	})
	l.waitFor(1) // at the start, for what came before
	return l
}

func (l *listener) waitFor(n int64) {
	l.t.Helper()
	testenv.Eventually(l.t, patience, func() error {
		if got := l.wakes.Load(); got < n {
			return fmt.Errorf("woken %d times, want %d", got, n)
		}
		return nil
	})
}

// end waits until the listening has ended and returns why.
func (l *listener) end() error {
	l.t.Helper()
	select {
	case <-l.ended:
		return l.err
	case <-time.After(patience):
		l.t.Fatal("it is still listening")
		return nil
	}
}

func TestListenIsWoken(t *testing.T) {
	url := migrated(t)
	s, other := openStore(t, url), openStore(t, url)
	l, stranger := listen(t, s), listen(t, newStore(t))
	if err := other.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.waitFor(2)
	n := NewNotifier(other)
	defer n.Close()
	n.Notify()
	l.waitFor(3)
	q := NewEnqueuer(other, EnqueuerOptions{OnCommit: n.Notify})
	defer q.Close()
	if _, err := q.Enqueue(t.Context(), submission(t, "k")); err != nil {
		t.Fatal(err)
	}
	l.waitFor(4)
	if got := stranger.wakes.Load(); got != 1 {
		t.Errorf("a listener of another schema was woken %d times", got)
	}
	l.stop()
	if err := l.end(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// Many events in a moment are few notifications, and the last is not lost.
func TestNotificationsAreCoalesced(t *testing.T) {
	s := newStore(t)
	l := listen(t, s)
	n := NewNotifier(s)
	defer n.Close()
	before := time.Now()
	for l.wakes.Load() < 6 && time.Since(before) < patience {
		n.Notify()
	}
	took, woken := time.Since(before), l.wakes.Load()
	if most := 2 + int64(took/notifyInterval); woken < 6 || woken > most {
		t.Errorf("woken %d times in %s, want 6 to %d", woken, took, most)
	}
	n.Notify()
	l.waitFor(woken + 1)
}

// Notify never blocks, and a notifier whose database is away goes on when it
// is back.
func TestNotifierSurvivesTheDatabase(t *testing.T) {
	url := migrated(t)
	proxy := testenv.NewProxy(t, url)
	s, l := openStore(t, proxy.URL()), listen(t, openStore(t, url))
	proxy.Refuse()
	n := NewNotifier(s)
	defer n.Close()
	for range 3 {
		n.Notify()
	}
	proxy.Accept()
	testenv.Eventually(t, patience, func() error {
		n.Notify()
		if l.wakes.Load() < 2 {
			return errors.New("not woken")
		}
		return nil
	})
}

func TestNotifierCloses(t *testing.T) {
	proxy := testenv.NewProxy(t, migrated(t))
	proxy.Freeze()
	n := NewNotifier(openStore(t, with(t, proxy.URL(), "connect_timeout", "60")))
	n.Notify()
	before := time.Now()
	n.Close() // although it waits for a connection
	if took := time.Since(before); took > 5*time.Second {
		t.Errorf("closed after %s", took)
	}
}

// Whoever listens has to know that nobody will wake it any more.
func TestListenEndsWithItsConnection(t *testing.T) {
	url := migrated(t)
	admin := openStore(t, url)
	l := listen(t, openStore(t, with(t, url, "application_name", "listener")))
	if n := execute(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND application_name = $1 AND query LIKE 'LISTEN%'`, t.Name()); n != 1 {
		t.Fatalf("%d sessions listen", n)
	}
	if err := l.end(); !errors.Is(err, ErrUnavailable) || !isCode(err, "57P01") {
		t.Errorf("got %v", err)
	}
}

// A schema may have the longest name there is.
func TestChannelOfALongName(t *testing.T) {
	base := testenv.Schema(t)
	admin := openStore(t, base)
	prefix := value[string](t, admin, "SELECT current_schema()::text")
	name := prefix + strings.Repeat("x", 63-len(prefix))
	t.Cleanup(func() {
		sql := "DROP SCHEMA IF EXISTS " + pgx.Identifier{name}.Sanitize() + " CASCADE"
		if _, err := admin.pool.Exec(context.Background(), sql); err != nil {
			t.Error(err)
		}
	})
	url := with(t, base, "search_path", name)
	if err := Migrate(t.Context(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, url)
	l := listen(t, s)
	if err := s.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.waitFor(2)
}
