package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/postgres/child"
)

// Primary starts a server, as Server does, that standbys may follow.
func Primary(t testing.TB, settings map[string]string) *postgres.Server {
	t.Helper()
	s := Server(t, settings)
	p := placeOf(t, s)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	// Only a superuser may allow replication, and none can log in.
	p.run(t, strings.NewReader("ALTER ROLE ackrail REPLICATION;\n"),
		"postgres", "--single", "-D", p.data, "-c", "exit_on_error=true", "postgres")
	if err := s.Restart(t.Context()); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return s
}

// Standby starts a server that follows a primary and answers queries meanwhile. Its URL is that of the primary but for
// the port. Its commits count for synchronous_standby_names under the name "standby".
func Standby(t testing.TB, primary *postgres.Server, settings map[string]string) *postgres.Server {
	t.Helper()
	from := placeOf(t, primary)
	dir, err := process.folder("server")
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	if err := from.account.Own(data); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	// The password is the primary's: it is among the data.
	password, err := os.ReadFile(filepath.Join(filepath.Dir(from.data), "password"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "password"), password, 0o600) //nolint:gosec // a folder of our own
	}
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	u := parseURL(t, primary.URL())
	query := u.Query()
	query.Set("application_name", "standby")
	u.RawQuery = query.Encode()
	from.run(t, nil, "pg_basebackup", "-d", u.String(), "-D", data, "-X", "stream", "-c", "fast", "-R", "--no-sync")
	return serve(t, dir, settings)
}

// Promote makes a standby a primary, and returns when it takes writes. What it has not received is lost.
func Promote(t testing.TB, standby *postgres.Server) {
	t.Helper()
	p := placeOf(t, standby)
	p.run(t, nil, "pg_ctl", "promote", "-D", p.data, "-w", "-t", "60")
}

// Configure changes a setting of a running server, which must be one that needs no restart, for its later starts too.
// Those that the server was started with cannot be changed.
func Configure(t testing.TB, s *postgres.Server, name, value string) {
	t.Helper()
	p := placeOf(t, s)
	// As ALTER SYSTEM, which no role may do that can log in, but for its lock. The last line holds.
	file, err := os.OpenFile(filepath.Join(p.data, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	_, err = fmt.Fprintf(file, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
	if err = errors.Join(err, file.Close()); err == nil {
		err = syscall.Kill(p.pid, syscall.SIGHUP)
	}
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	Eventually(t, adminTimeout, func() error {
		now, err := setting(s, name)
		if err == nil && now != value {
			err = fmt.Errorf("%s is %q", name, now)
		}
		return err
	})
}

// Pause stops a server without a word, as a machine does that hangs: its connections stay open and silent. The
// returned function lets it go on.
func Pause(t testing.TB, s *postgres.Server) (resume func()) {
	t.Helper()
	p := placeOf(t, s)
	signal := func(sig syscall.Signal) {
		// Backends are in groups of their own.
		backends, err := exec.Command("pgrep", "-P", strconv.Itoa(p.pid)).Output()
		if err != nil {
			t.Errorf("testenv: looking for the processes of a server: %v", err)
		}
		for _, pid := range append(strings.Fields(string(backends)), strconv.Itoa(p.pid)) {
			if n, err := strconv.Atoi(pid); err == nil {
				_ = syscall.Kill(n, sig) // it may have ended meanwhile
			}
		}
	}
	paused := true
	resume = func() {
		if paused {
			paused = false
			signal(syscall.SIGCONT)
		}
	}
	t.Cleanup(resume)
	// The postmaster first, so that it starts no others.
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("testenv: pausing a server: %v", err)
	}
	signal(syscall.SIGSTOP)
	return resume
}

// place is where a running server is.
type place struct {
	data    string
	pid     int
	bin     string         // folder of its programs
	account *child.Account // that it runs as
}

func placeOf(t testing.TB, s *postgres.Server) place {
	t.Helper()
	data, err := setting(s, "data_directory")
	if err != nil {
		t.Fatalf("testenv: finding a server: %v", err)
	}
	p := place{data: data}
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		t.Fatalf("testenv: finding a server: %v", err)
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	if p.pid, err = strconv.Atoi(string(first)); err != nil {
		t.Fatalf("testenv: finding a server: %v", err)
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid))
	if err != nil {
		t.Fatalf("testenv: finding a server's programs: %v", err)
	}
	p.bin = filepath.Dir(program)
	if p.account, err = child.Owner(data); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return p
}

// run runs one of the server's programs as its user.
func (p place) run(t testing.TB, input *strings.Reader, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.bin, program), args...)
	cmd.Dir = "/"
	if input != nil {
		cmd.Stdin = input
	}
	if out, err := child.Run(cmd, p.account); err != nil {
		t.Fatalf("testenv: %s: %v\n%s", program, err, out)
	}
}

func setting(s *postgres.Server, name string) (value string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
	return value, err
}
