package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/testenv"
)

// journal gathers what a migrator tells.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) logf(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) count(start string) int {
	n := 0
	for _, line := range j.lines {
		if strings.HasPrefix(line, start) {
			n++
		}
	}
	return n
}

func TestMigrateTwice(t *testing.T) {
	url := testenv.Schema(t)
	var j journal
	if err := Migrate(t.Context(), url, j.logf); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, url)
	enqueueNew(t, s, 3, "a", "b")
	execute(t, s, "UPDATE schema_lock SET updated_at = NULL") // the second migrator's turn is no change
	before := contents(t, s)
	if err := Migrate(t.Context(), url, j.logf); err != nil {
		t.Fatal(err)
	}
	execute(t, s, "UPDATE schema_lock SET updated_at = NULL")
	same(t, "contents", before, contents(t, s))
	if len(j.lines) != SchemaVersion+1 || j.count("Applied migration ") != SchemaVersion || j.lines[SchemaVersion] != "The schema is up to date" {
		t.Errorf("the migrators said %q", j.lines)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMigratorsAtOnce(t *testing.T) {
	for _, n := range []int{2, 8} {
		t.Run(digits(n), func(t *testing.T) {
			url := testenv.Schema(t)
			var j journal
			errs := make([]error, n)
			parallel(n, func(i int) { errs[i] = Migrate(t.Context(), url, j.logf) })
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			if got := j.count("Applied"); got != SchemaVersion {
				t.Errorf("migrations were applied %d times: %q", got, j.lines)
			}
			s := openStore(t, url)
			if err := s.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			same(t, "versions", []int64{0, 1, 2, SchemaVersion}, column[int64](t, s, "SELECT version_id FROM schema_version ORDER BY 1"))
		})
	}
}

// The schema need not be there, whatever its name and what comes after it in
// the search path.
func TestMigrateCreatesTheSchema(t *testing.T) {
	base := testenv.Schema(t)
	admin := openStore(t, base)
	prefix := value[string](t, admin, "SELECT current_schema()::text")
	for _, tc := range []struct{ name, path string }{
		{prefix + "_plain", prefix + "_plain"},
		{prefix + "_first", prefix + "_first, public"},
		{prefix + `_"Odd Näme"`, `"` + prefix + `_""Odd Näme"""`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Cleanup(func() {
				sql := "DROP SCHEMA IF EXISTS " + pgx.Identifier{tc.name}.Sanitize() + " CASCADE"
				if _, err := admin.pool.Exec(context.Background(), sql); err != nil {
					t.Error(err)
				}
			})
			url := with(t, base, "search_path", tc.path)
			errs := make([]error, 2)
			parallel(len(errs), func(i int) { errs[i] = Migrate(t.Context(), url, t.Logf) })
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			s := openStore(t, url)
			same(t, "schema", tc.name, value[string](t, s, "SELECT current_schema()::text"))
			same(t, "claims", 3, len(enqueueNew(t, s, 3, "a")))
		})
	}
}

// Somebody else may have made the schema for a role that may not make any.
func TestMigrateIntoAGivenSchema(t *testing.T) {
	base := testenv.Schema(t)
	admin := openStore(t, base)
	schema := value[string](t, admin, "SELECT current_schema()::text")
	role := pgx.Identifier{schema + "_role"}.Sanitize()
	execute(t, admin, "CREATE ROLE "+role)
	t.Cleanup(func() {
		if _, err := admin.pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	})
	execute(t, admin, "GRANT "+role+" TO CURRENT_USER")
	execute(t, admin, "GRANT USAGE, CREATE ON SCHEMA "+pgx.Identifier{schema}.Sanitize()+" TO "+role)
	url := with(t, base, "role", schema+"_role")
	if err := Migrate(t.Context(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, url)
	enqueueNew(t, s, 1, "a")
	finish(t, s, "done", claimOne(t, s))
	maintain(t, s)
}

func TestPingNamesTheRemedy(t *testing.T) {
	for _, tc := range []struct {
		name, change string
		migrate      bool
		ok           bool
	}{
		{"empty schema", "", false, false},
		{"no schema", "DROP SCHEMA %s CASCADE", false, false},
		{"interrupted", "DELETE FROM schema_version", true, false},
		{"older", "DELETE FROM schema_version WHERE version_id = 3", true, false},
		{"taken back", "UPDATE schema_version SET is_applied = false WHERE version_id = 3", true, false},
		{"current", "", true, true},
		{"newer", "INSERT INTO schema_version (version_id, is_applied) VALUES (99, true)", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url := testenv.Schema(t)
			if tc.migrate {
				if err := Migrate(t.Context(), url, t.Logf); err != nil {
					t.Fatal(err)
				}
			}
			s := openStore(t, url)
			if schema := value[string](t, s, "SELECT quote_ident(current_schema())"); strings.Contains(tc.change, "%s") {
				execute(t, s, fmt.Sprintf(tc.change, schema))
				t.Cleanup(func() { _, _ = s.pool.Exec(context.Background(), "CREATE SCHEMA "+schema) }) // testenv drops it
			} else if tc.change != "" {
				execute(t, s, tc.change)
			}
			err := s.Ping(t.Context())
			if tc.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), `run "ackrail migrate"`) {
				t.Errorf("got %v", err)
			}
			if tc.migrate {
				return
			}
			// Nor is it guesswork for who claims.
			_, err = s.Claim(t.Context(), "worker", []Want{want("a")})
			if !NotMigrated(err) || !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), `run "ackrail migrate"`) {
				t.Errorf("claiming: %v", err)
			}
		})
	}
}

func TestErrorsKeepTheURLSecret(t *testing.T) {
	const secret = "hunter2"
	for _, tc := range []struct{ name, url string }{
		{"port", "postgres://user:hunter2@hunter2.example:port/db"},
		{"escape", "postgres://user:hunter2%zz@host/db"},
		{"space", "postgres://user:hunter2@ho st/db"},
		{"sslmode", "postgres://user:hunter2@host/db?sslmode=hunter2"},
		{"pool", "postgres://user:hunter2@host/db?pool_max_conns=hunter2"},
		{"pairs", "user=u password='hunter2"},
		{"nothing like it", "hunter2"},
		{"unreachable", "postgres://user:hunter2@127.0.0.1:1/db"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Open(tc.url, Options{})
			if err == nil {
				err = s.Ping(t.Context())
				s.Close()
			}
			for what, err := range map[string]error{"Open": err, "Migrate": Migrate(t.Context(), tc.url, t.Logf)} {
				if err == nil || strings.Contains(err.Error(), secret) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	s, err := Open("postgres://user:hunter2@127.0.0.1:1/db", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want %v", err, ErrUnavailable)
	}
}
