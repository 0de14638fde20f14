package rig

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
)

// Look is the database as a test sees it, whatever it does to its server: a
// connection that broke is replaced.
type Look struct {
	// Pool runs what has no method here.
	Pool *pgxpool.Pool

	t     testing.TB
	store *store.Store
}

// Look prepares a look at the database, past any proxy.
func (r *Rig) Look() *Look {
	r.T.Helper()
	config, err := pgxpool.ParseConfig(r.URL)
	if err != nil {
		r.T.Fatal(err)
	}
	config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) { return conn.Ping(ctx) == nil, nil }
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		r.T.Fatal(err)
	}
	s, err := store.Open(r.URL, store.Options{})
	if err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() {
		s.Close()
		pool.Close()
	})
	return &Look{Pool: pool, t: r.T, store: s}
}

// Number runs a query that returns one number.
func (l *Look) Number(query string, args ...any) int {
	l.t.Helper()
	n, err := l.TryNumber(query, args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// TryNumber is Number for a database that may be away, and gives up after 30 s.
func (l *Look) TryNumber(query string, args ...any) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err = l.Pool.QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}

// Event returns everything about an event.
func (l *Look) Event(id string) *store.EventRecord {
	l.t.Helper()
	var parsed event.ID
	if err := parsed.UnmarshalText([]byte(id)); err != nil {
		l.t.Fatal(err)
	}
	record, err := l.store.ShowEvent(context.Background(), parsed)
	if err != nil {
		l.t.Fatal(err)
	}
	return record
}

// Drained reports an error until no delivery is open any more.
func (l *Look) Drained() error {
	n, err := l.TryNumber("SELECT count(*) FROM delivery")
	if err == nil && n > 0 {
		err = fmt.Errorf("%d deliveries are open", n)
	}
	return err
}

// Results are the results of an event's attempts, in order.
func Results(r *store.EventRecord) []string {
	var all []string
	for _, a := range r.Attempts {
		all = append(all, string(a.Result))
	}
	return all
}

// States are the states of an event's deliveries.
func States(r *store.EventRecord) []event.State {
	var all []event.State
	for _, d := range r.Deliveries {
		all = append(all, d.State)
	}
	return all
}
