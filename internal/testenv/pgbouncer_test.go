package testenv_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackrail/ackrail/internal/testenv"
)

func TestPgBouncer(t *testing.T) {
	schema := testenv.Schema(t)
	direct := connect(t, schema)
	execute(t, direct, "CREATE TABLE t (id int)")

	through := testenv.PgBouncer(t, schema) + "&default_query_exec_mode=exec"
	conn := connect(t, through)
	if _, err := conn.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 42); err != nil {
		t.Fatal(err)
	}
	if got := query[int](t, direct, "SELECT id FROM t"); got != 42 {
		t.Errorf("got %d", got)
	}

	// Transaction mode: two clients share a session with the server, one transaction each.
	other := connect(t, through)
	const session = "SELECT pg_backend_pid()"
	if a, b := query[int](t, conn, session), query[int](t, other, session); a != b {
		t.Errorf("sessions %d and %d: not pooled by transaction", a, b)
	}

	// Stock settings: a client may not choose its search_path when it connects.
	var refused *pgconn.PgError
	_, err := pgx.Connect(t.Context(), through+"&search_path=other")
	if !errors.As(err, &refused) || !strings.Contains(refused.Message, "unsupported startup parameter: search_path") {
		t.Errorf("got %v", err)
	}
}

func TestPgBouncerRefusesSeveralSchemas(t *testing.T) {
	url := testenv.URL(t) + "&search_path=a,b"
	if got := failure(t, func(t testing.TB) { testenv.PgBouncer(t, url) }); !strings.Contains(got, "want one plain name") {
		t.Errorf("got %q", got)
	}
}
