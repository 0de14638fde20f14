package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/testenv"
)

// volume is a folder with one file that changes as a Kubernetes volume's do:
// the file is a link through a link that is exchanged.
type volume struct {
	t       testing.TB
	dir     string
	version int
}

func newVolume(t testing.TB, content string) *volume {
	t.Helper()
	v := &volume{t: t, dir: t.TempDir()}
	if err := os.Symlink(filepath.Join("..data", "uri"), v.path()); err != nil {
		t.Fatal(err)
	}
	v.write(content)
	return v
}

func (v *volume) path() string { return filepath.Join(v.dir, "uri") }

func (v *volume) write(content string) {
	v.t.Helper()
	v.version++
	name := fmt.Sprintf("..v%d", v.version)
	err := errors.Join(
		os.Mkdir(filepath.Join(v.dir, name), 0o700),
		os.WriteFile(filepath.Join(v.dir, name, "uri"), []byte(content), 0o600),
		os.Symlink(name, filepath.Join(v.dir, "..data_tmp")),
		os.Rename(filepath.Join(v.dir, "..data_tmp"), filepath.Join(v.dir, "..data")),
	)
	if err != nil {
		v.t.Fatal(err)
	}
}

// sink gathers a log.
type sink struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// member is a role of a test's own on a private server, which asks for
// passwords.
type member struct {
	t     testing.TB
	admin *pgx.Conn
	base  *url.URL
}

func newMember(t testing.TB, password string) *member {
	t.Helper()
	server := testenv.Server(t, map[string]string{"fsync": "off"})
	admin, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	base, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t, admin, base}
	m.execute("CREATE ROLE one LOGIN PASSWORD '" + password + "'")
	m.execute("CREATE ROLE two LOGIN PASSWORD '" + password + "'")
	return m
}

func (m *member) execute(sql string) {
	m.t.Helper()
	if _, err := m.admin.Exec(m.t.Context(), sql); err != nil {
		m.t.Fatal(err)
	}
}

// cut ends the roles' connections, as a failover does.
func (m *member) cut() {
	m.t.Helper()
	m.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename IN ('one', 'two')")
}

func (m *member) url(user, password string) string {
	u := *m.base
	u.User = url.UserPassword(user, password)
	return u.String()
}

// user asks who a store's connection belongs to, until it can.
func user(t testing.TB, s *Store, want string) {
	t.Helper()
	testenv.Eventually(t, 20*time.Second, func() error {
		var got string
		err := s.pool.QueryRow(t.Context(), "SELECT current_user").Scan(&got)
		if err == nil && got != want {
			err = fmt.Errorf("the user is %q, want %q", got, want)
		}
		return err
	})
}

func TestRotatedPassword(t *testing.T) {
	m := newMember(t, "geheim1")
	v, logs := newVolume(t, m.url("one", "geheim1")+"\n"), &sink{}
	s, err := OpenFile(v.path(), Options{MaxConns: 1, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	user(t, s, "one")
	pid := value[int](t, s, "SELECT pg_backend_pid()")

	// What is open stays open.
	m.execute("ALTER ROLE one PASSWORD 'geheim2'")
	v.write(m.url("one", "geheim2"))
	same(t, "connection", pid, value[int](t, s, "SELECT pg_backend_pid()"))
	m.cut()
	user(t, s, "one")

	// So does a listener, and the next one finds its way as well.
	l := listen(t, s)
	l.waitFor(1)
	m.execute("ALTER ROLE one PASSWORD 'geheim3'")
	v.write(m.url("two", "geheim1"))
	m.cut()
	if err := l.end(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("listening ended with %v", err)
	}
	user(t, s, "two")
	l = listen(t, s)
	l.waitFor(1)
	user(t, s, "two")

	// A file that has become useless is told of once, and changes nothing.
	v.write("postgres://two:geheim1@[host/")
	for range 3 {
		m.cut()
		user(t, s, "two")
	}
	if err := os.Remove(v.path()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m.cut()
		user(t, s, "two")
	}
	if n := strings.Count(logs.String(), "level=WARN"); n != 2 || strings.Count(logs.String(), "malformed") != 1 {
		t.Errorf("told %d times, want once of each fault:\n%s", n, logs)
	}
	if strings.Contains(logs.String(), "geheim") {
		t.Errorf("the log has a password:\n%s", logs)
	}
}

func TestRotatedHost(t *testing.T) {
	first, second := testenv.NewProxy(t, migrated(t)), testenv.NewProxy(t, migrated(t))
	v := newVolume(t, first.URL())
	s, err := OpenFile(v.path(), Options{MaxConns: 1, Name: "mover"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	schema := value[string](t, s, "SELECT current_schema()")
	v.write("\n" + second.URL() + "\r\n")
	first.Refuse()
	first.Cut()
	testenv.Eventually(t, 20*time.Second, func() error {
		var now, name string
		err := s.pool.QueryRow(t.Context(), "SELECT current_schema(), current_setting('application_name')").Scan(&now, &name)
		if err == nil && (now == schema || name != "mover") {
			err = fmt.Errorf("still in %s, as %q", now, name)
		}
		return err
	})
}

func TestOpenFileRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		content, want string
	}{
		"malformed":  {"postgres://one:geheim@[host/", ErrURL.Error()},
		"two lines":  {"postgres://one:geheim@a/\npostgres://one:geheim@b/\n", ErrURL.Error()},
		"prose":      {"geheim", ErrURL.Error()},
		"empty":      {"", "is empty"},
		"a line end": {"\n", "is empty"},
		"blank":      {" \n\n ", "the database URL is empty"},
		"oversized":  {"postgres://one:geheim@a/?x=" + strings.Repeat("x", 64<<10), "is larger than 65536 bytes"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		want := "secret file " + path + ": " + c.want
		s, err := OpenFile(path, Options{})
		if err == nil || s != nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
		if url, err := ReadURL(path); err == nil || url != "" || err.Error() != want {
			t.Errorf("%s: read %q, %v, want %s", name, url, err, want)
		}
	}
	if _, err := OpenFile(filepath.Join(dir, "missing"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := OpenFile(dir, Options{}); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("folder: %v", err)
	}
}

func TestReadURL(t *testing.T) {
	url := "postgres://one:geheim@a/db?pool_max_conns=3"
	v := newVolume(t, " "+url+"\n")
	got, err := ReadURL(v.path())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "URL", url, got)
}

// The settings of a pool are for pgxpool, not for the server.
func TestMigrateTakesPoolSettings(t *testing.T) {
	if err := Migrate(t.Context(), with(t, testenv.Schema(t), "pool_max_conns", "3"), t.Logf); err != nil {
		t.Error(err)
	}
}

// A session stays read-only although its database is writable again.
func TestConnectionsThatCannotWriteAreReplaced(t *testing.T) {
	m := newMember(t, "secret")
	m.execute("GRANT CREATE ON DATABASE " + pgx.Identifier{m.admin.Config().Database}.Sanitize() + " TO one")
	m.execute("ALTER ROLE one SET default_transaction_read_only = on")
	s := openStore(t, m.url("one", "secret"))
	write := func() error {
		_, err := s.pool.Exec(t.Context(), "CREATE SCHEMA written")
		return err
	}
	if err := write(); !isCode(err, "25006") {
		t.Fatalf("got %v, want a refusal to write", err)
	}
	m.execute("ALTER ROLE one RESET default_transaction_read_only")
	if err := write(); err != nil {
		t.Error(err)
	}
}
