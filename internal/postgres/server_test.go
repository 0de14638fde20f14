//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/postgres"
)

func TestFreshServer(t *testing.T) {
	dir := folder(t)
	s := start(t, postgres.Options{Dir: dir, Settings: map[string]string{"fsync": "off", "work_mem": "5MB"}})

	conn := connect(t, s.URL())
	for sql, want := range map[string]string{
		"SHOW server_encoding": "UTF8",
		"SELECT datcollate::text FROM pg_database WHERE datname = current_database()": "C",
		"SHOW data_checksums":             "on",
		"SHOW listen_addresses":           "127.0.0.1",
		"SHOW unix_socket_directories":    "",
		"SHOW work_mem":                   "5MB",
		"SELECT current_database()::text": "ackrail",
		"SELECT current_user::text":       "ackrail",
		"SELECT usesuper::text FROM pg_user WHERE usename = current_user":                 "false",
		"SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = 'ackrail'": "ackrail",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
			t.Errorf("%s: %v", sql, err)
		} else if got != want {
			t.Errorf("%s: got %q, want %q", sql, got, want)
		}
	}
	if _, err := conn.Exec(t.Context(), "CREATE TABLE t (id int); CREATE SCHEMA s; CREATE ROLE r; DROP ROLE r"); err != nil {
		t.Errorf("what the owner may do: %v", err)
	}

	info, err := os.Stat(filepath.Join(dir, "password"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("password file: mode %o", got)
	}
	for _, secret := range []string{"", "wrong"} {
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("ackrail", secret)
		conn, err := pgx.Connect(t.Context(), u.String())
		if err == nil {
			_ = conn.Close(t.Context())
			t.Errorf("password %q was accepted", secret)
		}
	}
}

func TestKeepsDataAndURLOverRestarts(t *testing.T) {
	dir := folder(t)
	var said []string
	logf := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	first := start(t, postgres.Options{Dir: dir, Settings: quick(), Logf: logf})
	execute(t, first.URL(), "CREATE TABLE t AS SELECT 42 AS id")
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-first.Done():
	default:
		t.Error("not done after Stop")
	}
	if err := first.Err(); err != nil {
		t.Errorf("error after Stop: %v", err)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Errorf("second Stop: %v", err)
	}

	second := start(t, postgres.Options{Dir: dir, Settings: quick(), Logf: logf})
	if got := query[int](t, second.URL(), "SELECT id FROM t"); got != 42 {
		t.Errorf("got %d", got)
	}
	if first.URL() != second.URL() {
		t.Error("the URL changed over a restart")
	}
	var verbs []string
	for _, line := range said {
		verb, _, _ := strings.Cut(line, " ")
		verbs = append(verbs, verb)
	}
	if diff := cmp.Diff([]string{"Creating", "Starting", "Starting"}, verbs); diff != "" {
		t.Errorf("steps told (-want +got):\n%s", diff)
	}
}

func TestKillAndRestart(t *testing.T) {
	dir := folder(t)
	s := start(t, postgres.Options{Dir: dir})
	execute(t, s.URL(), "CREATE TABLE t (id int)")
	for i := range 5 {
		execute(t, s.URL(), fmt.Sprintf("INSERT INTO t VALUES (%d)", i))
		busy := connect(t, s.URL())
		broken := make(chan error, 1)
		go func() {
			_, err := busy.Exec(context.Background(), "SELECT pg_sleep(600)")
			broken <- err
		}()
		pid, before := postmaster(t, dir), s.URL()
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if running(pid) {
			t.Error("still running after Kill")
		}
		if err := <-broken; err == nil {
			t.Error("a statement survived the crash")
		}
		if err := s.Err(); err != nil {
			t.Errorf("error after Kill: %v", err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.URL() != before {
			t.Error("the URL changed over a crash")
		}
		if got := query[int](t, s.URL(), "SELECT count(*) FROM t"); got != i+1 {
			t.Fatalf("after crash %d: %d rows", i+1, got)
		}
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatalf("restarting a running server: %v", err)
	}
	if got := query[int](t, s.URL(), "SELECT count(*) FROM t"); got != 5 {
		t.Errorf("%d rows", got)
	}
}

func TestUnexpectedEnd(t *testing.T) {
	dir := folder(t)
	s := start(t, postgres.Options{Dir: dir, Settings: quick()})
	if err := s.Err(); err != nil {
		t.Errorf("error while running: %v", err)
	}
	if err := syscall.Kill(postmaster(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v", err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	query[int](t, s.URL(), "SELECT 1")
}

// A hanging backend keeps a fast shutdown waiting; the context says how long.
func TestStopEscalates(t *testing.T) {
	dir := folder(t)
	s := start(t, postgres.Options{Dir: dir, Settings: quick()})
	conn := connect(t, s.URL())
	backend := int(conn.PgConn().PID())
	if err := syscall.Kill(backend, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pid := postmaster(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	if running(pid) || running(backend) {
		t.Error("still running after Stop")
	}
}

func TestStalePIDFile(t *testing.T) {
	tests := map[string]func(t *testing.T, pidFile string){
		"nobody has the id": func(*testing.T, string) {},
		"another program has the id": func(t *testing.T, pidFile string) {
			text, err := os.ReadFile(pidFile)
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(text), "\n")
			stale := fmt.Sprintf("%d\n%s", os.Getpid(), rest)
			if err := os.WriteFile(pidFile, []byte(stale), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"half written": func(t *testing.T, pidFile string) {
			if err := os.WriteFile(pidFile, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			s := start(t, postgres.Options{Dir: dir, Settings: quick()})
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			spoil(t, filepath.Join(dir, "data", "postmaster.pid"))
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			query[int](t, s.URL(), "SELECT 1")
		})
	}
}
