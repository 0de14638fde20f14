package testenv

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/postgres"
)

const (
	// URLEnv names the environment variable with the URL of a database that tests may use instead of a private server.
	// They make and drop schemas in it.
	URLEnv = "TEST_DATABASE_URL"

	adminTimeout = 30 * time.Second
)

// URL returns the connection string of the database that all tests of this process share: of TEST_DATABASE_URL, or of
// a private server that is started when the first test asks and stopped by Main. That server does not sync to disk, so
// it survives killed clients but must not be killed itself; see Server for one that may be. A machine without a server
// fails the test and says what to install.
func URL(t testing.TB) string {
	t.Helper()
	if given := os.Getenv(URLEnv); given != "" {
		return given
	}
	s, err := process.server()
	if err != nil {
		t.Fatalf("testenv: %v (or set %s to the URL of a database for tests)", err, URLEnv)
	}
	return s.URL()
}

func (e *environment) server() (*postgres.Server, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shared != nil || e.sharedErr != nil {
		return e.shared, e.sharedErr
	}
	dir, err := e.folderLocked("shared")
	if err != nil {
		return nil, err
	}
	e.shared, e.sharedErr = postgres.Start(context.Background(), postgres.Options{Dir: dir, Settings: map[string]string{
		"fsync":                     "off",
		"synchronous_commit":        "on",
		"max_connections":           "200",
		"max_locks_per_transaction": "256", // dropping a schema locks every partition in it
	}})
	return e.shared, e.sharedErr
}

// Schema makes an empty schema in the shared database and returns the connection string that puts it first, by
// search_path. It is dropped when the test ends; a session of the test that still holds locks then fails it.
func Schema(t testing.TB) string {
	t.Helper()
	base := URL(t)
	u := parseURL(t, base)
	name := "t_" + randomHex()
	admin(t, base, "CREATE SCHEMA "+pgx.Identifier{name}.Sanitize())
	t.Cleanup(func() {
		admin(t, base, "SET lock_timeout = '10s'", "DROP SCHEMA "+pgx.Identifier{name}.Sanitize()+" CASCADE")
	})
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return u.String()
}

// Server starts a server for one test, which may kill and restart it. It syncs to disk unless the settings say
// otherwise.
func Server(t testing.TB, settings map[string]string) *postgres.Server {
	t.Helper()
	dir, err := process.folder("server")
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return serve(t, dir, settings)
}

// serve starts a server in a folder, for one test.
func serve(t testing.TB, dir string, settings map[string]string) *postgres.Server {
	t.Helper()
	s, err := postgres.Start(t.Context(), postgres.Options{Dir: dir, Settings: settings})
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() {
		select {
		case <-s.Done():
			// Only a server that shuts down gives back the shared memory that a killed one leaves behind.
			if err := s.Restart(context.Background()); err != nil {
				t.Errorf("testenv: restarting the server to clean up: %v", err)
			}
		default:
		}
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("testenv: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("testenv: %v", err)
		}
	})
	return s
}

// admin runs statements in one session of its own.
func admin(t testing.TB, url string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	if err := execute(ctx, url, statements); err != nil {
		t.Fatalf("testenv: %v", err)
	}
}

func execute(ctx context.Context, url string, statements []string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func parseURL(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" || u.Hostname() == "" {
		t.Fatalf("testenv: want a URL with a host (in %s too)", URLEnv) // the text is not shown: it may hold a password
	}
	return u
}

func randomHex() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails: it ends the process instead
	return hex.EncodeToString(id[:])
}
