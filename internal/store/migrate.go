package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// SchemaVersion is the version of the schema that this binary works with. A
// newer schema is fine: migrations keep binaries one version back working.
const SchemaVersion = 3

// versionTable is where the applied migrations are recorded.
const versionTable = "schema_version"

// Migrate brings the database at a URL to SchemaVersion, creating the first
// schema of the connection's search_path if it is not there, and tells through
// logf what it does. Several migrators at once are safe: they take turns by a row
// in a lock table, which works through any pooler. If a migrator is killed,
// the next one waits until its lock lapses (half a minute).
func Migrate(ctx context.Context, url string, logf func(format string, args ...any)) error {
	config, err := Options{Name: "ackrail migrate"}.parse(url)
	if err != nil {
		return err
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*config.ConnConfig)
	defer func() { _ = db.Close() }()

	if err := createSchema(ctx, db); err != nil {
		return classify("creating the schema", err)
	}
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return classify("migrating", err)
	}
	for _, r := range results {
		logf("Applied migration %s in %s", r.Source.Path, r.Duration.Round(time.Millisecond))
	}
	if len(results) == 0 {
		logf("The schema is up to date")
	}
	return nil
}

// newProvider returns what applies the migrations, one migrator at a time.
func newProvider(db *sql.DB) (*goose.Provider, error) {
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableName("schema_lock"),
		lock.WithTableLockTimeout(200*time.Millisecond, 600),
	)
	if err != nil {
		return nil, fmt.Errorf("preparing the migration lock: %w", err)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("reading the migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable), goose.WithLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("preparing the migrations: %w", err)
	}
	return provider, nil
}

// createSchema makes the first schema of the connection's search path.
func createSchema(ctx context.Context, db *sql.DB) error {
	var name string
	err := db.QueryRowContext(ctx, sqlMissingSchema).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{name}.Sanitize())
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "23505" || pg.Code == "42P06") {
		return nil // somebody else made it in the same moment
	}
	return err
}
