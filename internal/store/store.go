package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackrail/ackrail/internal/event"
)

// Store is a PostgreSQL database that holds a pipeline. It is safe for
// concurrent use.
type Store struct {
	pool *pgxpool.Pool
	// refresh replaces the settings of a connection that is about to be made
	// by those that hold now; nil where they never change.
	refresh func(*pgx.ConnConfig)
	// direct: a connection reached the server; pooled: one reached a pooler.
	direct, pooled atomic.Bool
}

// detectPooler notices a pooler on the way: it hands out keys for cancelling
// of its own, so the process id in them is not that of the server's process.
func (s *Store) detectPooler(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return err
	}
	if pid == conn.PgConn().PID() {
		s.direct.Store(true)
	} else {
		s.pooled.Store(true)
	}
	return nil
}

// mayName is how statements are executed that may have a name, which spares
// parsing and planning: half of what a small batch costs.
//
// A name is session state, which a pooler in transaction mode loses: behind
// one, and as long as nobody knows whether there is one, the statement is
// described once and executed unnamed. And a named statement keeps the plan
// that was good when the tables were empty. So none may have a name that
// looks something up in a table that grows with the traffic.
func (s *Store) mayName() pgx.QueryExecMode {
	if s.direct.Load() && !s.pooled.Load() {
		return pgx.QueryExecModeCacheStatement
	}
	return pgx.QueryExecModeCacheDescribe
}

// together runs statements in one transaction that is sent as a whole: between
// its first statement and its commit the server waits for nothing, so a
// process that stops in the middle leaves no lock behind.
func (s *Store) together(ctx context.Context, b *pgx.Batch) error {
	return s.pool.SendBatch(ctx, b).Close()
}

// unreplicated is under what a connection remembers that a commit on it was
// not waited for.
const unreplicated = "ackrail unreplicated"

// noteUnreplicated notices the warning of a commit that is durable here and
// did not reach the synchronous standby, since somebody cancelled the wait. The
// server says so beside a success; the name of its function is in no language.
func noteUnreplicated(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[unreplicated] = true
	}
}

// errUnreplicated says that a commit promises less than it should.
var errUnreplicated = errors.New("the wait for the synchronous standby was cancelled")

// promising runs a statement whose commit is promised to others.
func (s *Store) promising(ctx context.Context, run func(*pgxpool.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := run(conn); err != nil {
		return err
	}
	data := conn.Conn().PgConn().CustomData()
	if data[unreplicated] == nil {
		return nil
	}
	delete(data, unreplicated)
	return errUnreplicated
}

// Close releases the connections. It waits for those in use.
func (s *Store) Close() { s.pool.Close() }

// ErrUnavailable is wrapped by every error that says that the database cannot
// do its work now: away, read-only, full, not migrated, too slow. Whether a
// statement that failed so took effect is unknown.
var ErrUnavailable = errors.New("database unavailable")

// classify wraps a database error with what is being done and, unless the
// data itself is at fault, with ErrUnavailable.
func classify(doing string, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case isDataError(err):
		return fmt.Errorf("%s: %w", doing, err)
	case lacksObject(err):
		return fmt.Errorf("%s: %w: the schema is missing or too old, run \"ackrail migrate\": %w", doing, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}

// isDataError reports whether the values of a statement are at fault rather
// than the database: SQLSTATE classes 22 (data exception), 23 (integrity
// constraint violation) and 54 (program limit exceeded).
func isDataError(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 {
		return false
	}
	class := pg.Code[:2]
	return class == "22" || class == "23" || class == "54"
}

// isDamage reports whether the server could not read what it has stored:
// SQLSTATE class XX (internal error: data or index corrupted), io_error and
// undefined_file.
func isDamage(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "XX") || pg.Code == "58030" || pg.Code == "58P01")
}

// isContention reports whether the server gave a transaction up to resolve a
// conflict (deadlock, serialization failure): nothing took effect and the
// same statement may be run again at once.
func isContention(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40P01" || pg.Code == "40001")
}

// schemaError says that the schema is missing or too old.
type schemaError string

func (e schemaError) Error() string { return string(e) }

// NotMigrated reports whether an error says that the schema is missing, or
// older than this binary needs: Migrate is what helps. A schema that was there
// can vanish with its database.
func NotMigrated(err error) bool {
	var schema schemaError
	var pg *pgconn.PgError
	return errors.As(err, &schema) || lacksObject(err) ||
		errors.As(err, &pg) && pg.Code == "3F000" // invalid_schema_name
}

// lacksObject reports whether a statement failed since there is not what it
// names: SQLSTATE undefined_table, undefined_column, undefined_function.
func lacksObject(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"42P01", "42703", "42883"}, pg.Code)
}

// Ping reports whether the database answers and has a schema that this
// binary can work with.
func (s *Store) Ping(ctx context.Context) error {
	var version int64
	err := s.pool.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versionTable+" WHERE is_applied").Scan(&version)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42P01" {
		return fmt.Errorf("%w: %w", ErrUnavailable, schemaError("the schema is missing: run \"ackrail migrate\""))
	}
	if err != nil {
		return classify("checking the schema", err)
	}
	if version < SchemaVersion {
		return fmt.Errorf("%w: %w", ErrUnavailable,
			schemaError(fmt.Sprintf("the schema has version %d, this binary needs %d: run \"ackrail migrate\"", version, SchemaVersion)))
	}
	return nil
}

// columns splits destinations into what the statements take.
func columns(destinations []event.DestinationRef) (namespaces, endpoints, names []string) {
	for _, d := range destinations {
		namespaces = append(namespaces, d.Endpoint.Namespace)
		endpoints = append(endpoints, d.Endpoint.Name)
		names = append(names, d.Name)
	}
	return namespaces, endpoints, names
}

// Register makes destinations and their endpoints known to the database.
// Enqueuing does so by itself; a process that starts may do it ahead, so that
// people find the names before the first event.
func (s *Store) Register(ctx context.Context, destinations []event.DestinationRef) error {
	namespaces, endpoints, names := columns(destinations)
	_, err := s.pool.Exec(ctx, sqlRegisterEndpoints, namespaces, endpoints)
	if err == nil {
		// A statement of its own, which sees endpoints that others were
		// making at the same time.
		_, err = s.pool.Exec(ctx, sqlRegisterNames, namespaces, endpoints, names)
	}
	return classify("registering names", err)
}
