package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/store"
)

// env is what rows measure in.
type env struct {
	*options
	// dir is for files that end with the run.
	dir string
	// url is that of the server's first database, in which nothing is
	// measured.
	url string

	// refused counts requests that the product refused for the time being.
	refused atomic.Int64

	databases int
	cleanups  []func()
}

// onEnd has something done when the row has been measured, the last thing
// first.
func (e *env) onEnd(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *env) cleanUp() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
	e.cleanups = nil
}

// scaled returns a number of rows, or a fraction of it where a first look is
// enough.
func (e *env) scaled(n, fraction int) int {
	if e.short {
		return n / fraction
	}
	return n
}

// empty makes a database for this row.
func (e *env) empty(ctx context.Context) (string, error) {
	e.databases++
	name := fmt.Sprintf("row%d", e.databases)
	if err := e.administer(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	e.onEnd(func() {
		if err := e.administer(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			progress("Dropping the database of a row: %v", err)
		}
	})
	u, err := url.Parse(e.url)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

// migrated makes a database for this row with the product's schema.
func (e *env) migrated(ctx context.Context) (string, error) {
	url, err := e.empty(ctx)
	if err != nil {
		return "", err
	}
	return url, store.Migrate(ctx, url, func(string, ...any) {})
}

// open makes a database for this row and opens it as a store.
func (e *env) open(ctx context.Context, connections int) (*store.Store, string, error) {
	url, err := e.migrated(ctx)
	if err != nil {
		return nil, "", err
	}
	s, err := store.Open(url, store.Options{MaxConns: connections, Name: "ackrail bench"})
	if err != nil {
		return nil, "", err
	}
	e.onEnd(s.Close)
	return s, url, nil
}

func (e *env) administer(ctx context.Context, sql string) error { return execute(ctx, e.url, sql) }

// execute runs statements in a database, on a connection of their own.
func execute(ctx context.Context, url string, statements ...string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// query reads one value from a database.
func query[T any](ctx context.Context, url, sql string, args ...any) (value T, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return value, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return value, conn.QueryRow(ctx, sql, args...).Scan(&value)
}

// A turn measures one side once.
type turn func(context.Context) (float64, error)

// interleave lets product and reference take turns.
func (e *env) interleave(ctx context.Context, f *figure, product, reference turn) error {
	for round := range e.rounds {
		r, err := reference(ctx)
		if err != nil {
			return fmt.Errorf("reference: %w", err)
		}
		p, err := product(ctx)
		if err != nil {
			return err
		}
		progress("  %s, round %d of %d: %s against %s, %.2f", f.Name, round+1, e.rounds, amount(p, f.Unit), amount(r, f.Unit), p/r)
		f.add(p, r)
	}
	return nil
}
