package databases

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

func TestCheck(t *testing.T) {
	s, _ := open(t)
	for text, want := range map[string]string{
		"postgres://one:geheim@db.payments:5432/one?sslmode=require": "",
		"postgres://one:geheim@db/one\n":                             "",
		"host=db user=one password=geheim":                           "",
		"":                                                           "the database URL is empty",
		" \n":                                                        "the database URL is empty",
		"postgres://one:geheim@[db/":                                 "the database URL is malformed: want postgres://USER:PASSWORD@HOST:PORT/DATABASE",
		"postgres://one:geheim@a/\npostgres://one:geheim@b/": "the database URL is malformed: want postgres://USER:PASSWORD@HOST:PORT/DATABASE",
		"https://example.com":                                "the database URL is malformed: want postgres://USER:PASSWORD@HOST:PORT/DATABASE",
	} {
		is(t, text, want, s.Check(text))
		if want == "" {
			continue
		}
		is(t, "ping "+text, want, s.Ping(t.Context(), text))
		is(t, "migrate "+text, want, s.Migrate(t.Context(), text))
		_, err := s.For(t.Context(), text)
		is(t, "replays of "+text, want, err)
	}
}

func TestPing(t *testing.T) {
	s, _ := open(t)
	is(t, "no schema", "", s.Ping(t.Context(), testenv.Schema(t)))
	good := migrated(t)
	is(t, "a line end after it", "", s.Ping(t.Context(), good+"\n"))

	as := func(change func(*url.URL)) string {
		u, err := url.Parse(good)
		if err != nil {
			t.Fatal(err)
		}
		change(u)
		return u.String()
	}
	for want, bad := range map[string]string{
		"the database cannot be reached: connection refused":                                      as(func(u *url.URL) { u.Host = "127.0.0.1:1" }),
		`the database refuses: database "nowhere" does not exist (SQLSTATE 3D000)`:                as(func(u *url.URL) { u.Path = "/nowhere" }),
		`the database refuses: password authentication failed for user "nobody" (SQLSTATE 28P01)`: as(func(u *url.URL) { u.User = url.UserPassword("nobody", "geheim") }),
	} {
		for range 2 { // the second answer is one that was kept
			is(t, bad, want, s.Ping(t.Context(), bad))
		}
		is(t, "migrate "+bad, want, s.Migrate(t.Context(), bad))
	}
	is(t, "the good one", "", s.Ping(t.Context(), good))
}

func TestCounts(t *testing.T) {
	s, _ := open(t)
	other := event.DestinationRef{Endpoint: handler.Endpoint, Name: "other"}
	counts, err := s.Counts(t.Context(), migrated(t), []event.DestinationRef{other, handler})
	is(t, "counts", "", err)
	if diff := cmp.Diff([]event.Counts{{}, {Dead: 1}}, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	dead, err := s.DeadCounts(t.Context(), migrated(t), handler.Endpoint, time.Hour)
	is(t, "dead letters", "", err)
	if len(dead) != 1 || dead[0].Destination != handler || dead[0].Total() != 1 {
		t.Errorf("dead letters: %+v", dead)
	}
	_, err = s.DeadCounts(t.Context(), testenv.Schema(t), handler.Endpoint, time.Hour)
	is(t, "dead letters without a schema", errNotMigrated.Error(), err)
	_, err = s.Counts(t.Context(), testenv.Schema(t), []event.DestinationRef{handler})
	is(t, "without a schema", errNotMigrated.Error(), err)
}

// Who migrates first does it for all, and nobody does it again.
func TestMigrateOnce(t *testing.T) {
	s, logs := open(t)
	url := testenv.Schema(t)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { is(t, "migrate", "", s.Migrate(context.Background(), url)) })
	}
	all.Wait()
	is(t, "again", "", s.Migrate(t.Context(), url))
	if n := logs.count("Applied migration 00001"); n != 1 {
		t.Errorf("migrated %d times, want once", n)
	}
	if n := logs.count("step="); n != store.SchemaVersion {
		t.Errorf("%d steps, want one for each migration", n)
	}
}

// A database that was made anew is migrated anew.
func TestMigrateAgainWhenTheSchemaIsGone(t *testing.T) {
	s, logs := open(t)
	for n, lose := range []func(string){
		func(url string) { is(t, "ping", "", s.Ping(t.Context(), url)) },
		func(url string) {
			_, err := s.Counts(t.Context(), url, []event.DestinationRef{handler})
			is(t, "counts", errNotMigrated.Error(), err)
		},
	} {
		url := testenv.Schema(t)
		is(t, "migrate", "", s.Migrate(t.Context(), url))
		execute(t, url, "DROP SCHEMA "+schema(t, url)+" CASCADE; CREATE SCHEMA "+schema(t, url))
		lose(url)
		is(t, "migrate again", "", s.Migrate(t.Context(), url))
		if got, want := logs.count("Applied migration 00001"), 2*(n+1); got != want {
			t.Errorf("migrated %d times, want %d", got, want)
		}
		_, err := s.Counts(t.Context(), url, []event.DestinationRef{handler})
		is(t, "counts", "", err)
	}
}

// A migration that fails says why, and is tried again when somebody has
// mended it.
func TestMigrationThatFails(t *testing.T) {
	s, logs := open(t, again)
	url := testenv.Schema(t)
	execute(t, url, "CREATE TABLE event ()")
	const want = `the database refuses: relation "event" already exists (SQLSTATE 42P07)`
	for range 3 {
		is(t, "migrate", want, s.Migrate(t.Context(), url))
	}
	execute(t, url, "DROP TABLE event")
	eventually(t, func() error { return s.Migrate(t.Context(), url) })
	if n := logs.count("Applied migration 00001"); n != 1 {
		t.Errorf("migrated %d times, want once", n)
	}
}

// A migration that takes long goes on while nobody waits for it.
func TestMigrationThatTakesLong(t *testing.T) {
	s, logs := open(t, brief)
	url := testenv.Schema(t)
	release := hold(t, url, "CREATE TABLE event ()") // another of that name has to wait
	within(t, "migrate", s.callTimeout, func() { is(t, "migrate", errMigrating.Error(), s.Migrate(context.Background(), url)) })
	is(t, "ping meanwhile", "", s.Ping(t.Context(), url))
	release()
	eventually(t, func() error { return s.Migrate(t.Context(), url) })
	if n := logs.count("step="); n != store.SchemaVersion {
		t.Errorf("%d steps, want one for each migration", n)
	}
}

// A database that hangs answers in time, holds nobody else up, and is found
// again when it is back.
func TestDatabaseThatHangs(t *testing.T) {
	s, _ := open(t, func(s *Stores) { s.callTimeout, s.retryAfter = time.Second, time.Second })
	good, proxy := migrated(t), testenv.NewProxy(t, migrated(t))
	is(t, "ping", "", s.Ping(t.Context(), proxy.URL()))
	proxy.Freeze(testenv.ToServer, testenv.ToClient)
	const want = "the database does not answer in time"
	within(t, "ping", s.callTimeout, func() { is(t, "ping", want, s.Ping(context.Background(), proxy.URL())) })
	within(t, "a hundred pings", 0, func() {
		for range 100 {
			is(t, "ping", want, s.Ping(context.Background(), proxy.URL()))
		}
	})
	is(t, "another one", "", s.Ping(t.Context(), good))
	proxy.Thaw()
	eventually(t, func() error { return s.Ping(t.Context(), proxy.URL()) })
}

func TestDatabaseThatIsAway(t *testing.T) {
	s, _ := open(t, again)
	proxy := testenv.NewProxy(t, migrated(t))
	is(t, "ping", "", s.Ping(t.Context(), proxy.URL()))
	proxy.Refuse()
	proxy.Cut()
	eventually(t, func() error {
		if err := s.Ping(t.Context(), proxy.URL()); err == nil || err.Error() != "the database cannot be reached: connection refused" {
			return errNotYet
		}
		return nil
	})
	proxy.Accept()
	eventually(t, func() error { return s.Ping(t.Context(), proxy.URL()) })
}

// A caller that gives up says nothing about the database.
func TestCallerThatGivesUp(t *testing.T) {
	s, _ := open(t)
	proxy := testenv.NewProxy(t, migrated(t))
	is(t, "ping", "", s.Ping(t.Context(), proxy.URL()))
	proxy.Freeze(testenv.ToServer, testenv.ToClient)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	is(t, "ping", context.DeadlineExceeded.Error(), s.Ping(ctx, proxy.URL()))
	proxy.Thaw()
	is(t, "ping", "", s.Ping(t.Context(), proxy.URL()))
}

// Connections are few, and gone when nobody has used them for long.
func TestConnections(t *testing.T) {
	s, _ := open(t, func(s *Stores) { s.idle, s.reapEvery = 300*time.Millisecond, 50*time.Millisecond })
	one, two := migrated(t), migrated(t)
	eventually(t, func() error { return sessions(t, one, 0) })
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { is(t, "ping", "", s.Ping(context.Background(), one)) })
	}
	all.Wait()
	is(t, "ping", "", s.Ping(t.Context(), two))
	s.mu.Lock()
	n := len(s.open)
	s.mu.Unlock()
	if n > 2 {
		t.Errorf("%d databases are open, want at most 2", n)
	}
	eventually(t, func() error { return sessions(t, one, 0) })
	s.mu.Lock()
	n = len(s.open)
	s.mu.Unlock()
	if n != 0 {
		t.Errorf("%d databases are open, want none", n)
	}
	is(t, "ping after that", "", s.Ping(t.Context(), one))
}

func TestClose(t *testing.T) {
	s, _ := open(t)
	url, proxy := testenv.Schema(t), testenv.NewProxy(t, testenv.Schema(t))
	is(t, "ping", "", s.Ping(t.Context(), url))
	proxy.Freeze(testenv.ToServer, testenv.ToClient)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	is(t, "migrate", context.DeadlineExceeded.Error(), s.Migrate(ctx, proxy.URL()))
	within(t, "close", 0, s.Close)
	is(t, "ping", errClosed.Error(), s.Ping(t.Context(), url))
	is(t, "migrate", errClosed.Error(), s.Migrate(t.Context(), url))
	eventually(t, func() error { return sessions(t, url, 0) })
}
