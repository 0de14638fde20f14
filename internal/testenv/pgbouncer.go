package testenv

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/postgres/child"
)

const bouncerTimeout = 10 * time.Second

//go:embed pgbouncer.ini
var bouncerText string

var bouncerConfig = template.Must(template.New("pgbouncer.ini").Parse(bouncerText))

// bouncer is what pgbouncer.ini is filled in with.
type bouncer struct {
	Port       int
	Server     *pgx.ConnConfig
	SearchPath string // a plain identifier, or empty
	UserFile   string
}

var plainName = regexp.MustCompile(`^[a-z0-9_]+$`)

// PgBouncer starts a PgBouncer with its default settings in front of the database of a URL, in transaction mode, and
// returns the URL of the same database by way of it. A search_path of the URL, which PgBouncer refuses to take from a
// client, is set in each of its sessions with the server. It ends with the test. A machine without the program fails
// the test and says what to install.
//
// As everywhere behind a PgBouncer in transaction mode, nothing may be kept in a session between two transactions;
// before version 1.21 that includes prepared statements.
func PgBouncer(t testing.TB, target string) string {
	t.Helper()
	program := findBouncer(t)
	u := parseURL(t, target)
	server, err := pgx.ParseConfig(target)
	if err != nil {
		t.Fatalf("testenv: reading the URL for PgBouncer: %v", err)
	}
	query := u.Query()
	searchPath := query.Get("search_path")
	if searchPath != "" && !plainName.MatchString(searchPath) {
		t.Fatalf("testenv: PgBouncer for the search_path %q: want one plain name", searchPath)
	}
	port, err := postgres.FreePort()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	query.Del("search_path")
	query.Set("sslmode", "disable")
	through := url.URL{
		Scheme: u.Scheme, User: u.User, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path: "/" + server.Database, RawQuery: query.Encode(),
	}
	startBouncer(t, program, bouncer{Port: port, Server: server, SearchPath: searchPath}, through.String())
	return through.String()
}

func findBouncer(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	t.Fatal("testenv: the program pgbouncer is not there: install it, for instance with 'apt-get install pgbouncer' or 'brew install pgbouncer'")
	return ""
}

func startBouncer(t testing.TB, program string, b bouncer, through string) {
	t.Helper()
	dir, err := process.folder("pgbouncer")
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // Main removes the rest
	as, err := child.Unprivileged()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	config, err := b.write(dir, as)
	if err != nil {
		t.Fatalf("testenv: configuring PgBouncer: %v", err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	defer func() { _ = log.Close() }()

	cmd := exec.Command(program, config)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	// It has nothing to save, and what the polite signals mean has changed between its versions.
	running, err := child.Start(cmd, as, syscall.SIGKILL)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() {
		_ = running.Signal(syscall.SIGKILL) // fails only if it has ended
		<-running.Gone()
	})
	if err := answers(running, through); err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("testenv: PgBouncer does not answer: %v; it said:\n%s", err, said)
	}
}

// write makes the files that PgBouncer reads, for its user only.
func (b bouncer) write(dir string, as *child.Account) (string, error) {
	b.UserFile = filepath.Join(dir, "userlist.txt")
	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	users := quote(b.Server.User) + " " + quote(b.Server.Password) + "\n"
	if err := os.WriteFile(b.UserFile, []byte(users), 0o600); err != nil {
		return "", err
	}
	var text strings.Builder
	if err := bouncerConfig.Execute(&text, b); err != nil {
		return "", err
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(config, []byte(text.String()), 0o600); err != nil {
		return "", err
	}
	return config, as.Own(dir)
}

// answers waits until a statement has gone through to the server and back.
func answers(running *child.Process, through string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bouncerTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := ping(ctx, through)
		if err == nil {
			return nil
		}
		select {
		case <-running.Exited():
			return fmt.Errorf("it has ended: %w", err)
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

func ping(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.Ping(ctx)
}
