package databases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ackrail/ackrail/internal/store"
)

// database is one database, with what is known of it.
type database struct {
	stores *Stores
	url    string
	store  *store.Store
	// replays holds one for each call that a replay is making.
	replays chan struct{}

	// Guarded by the stores' lock:

	users int
	used  time.Time

	// mu guards what follows.
	mu sync.Mutex
	// fault is why the database could not be reached last, nil if it could.
	fault error
	// retryAt is when the next call may try, and probing says that one does.
	retryAt time.Time
	probing bool

	migrated bool
	// migration is the one that runs, or the last one that failed.
	migration *migration
}

// migration is one try to migrate.
type migration struct {
	done chan struct{}
	// Below: set before done is closed.

	err     error
	retryAt time.Time
}

// call makes a call of the store, unless the database is known not to be
// there. A limit bounds the call, if it is not zero. That the caller's own
// context ended says nothing about the database.
func (d *database) call(ctx context.Context, limit time.Duration, call func(context.Context, *store.Store) error) error {
	if fault := d.enter(); fault != nil {
		return fault
	}
	bound := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	err := call(bound, d.store)
	fault := err
	switch {
	case err != nil && ctx.Err() != nil:
		fault = ctx.Err()
	case transient(err):
		fault = describe(err, "the database cannot be reached")
	}
	d.leave(err, fault, ctx.Err() != nil)
	return fault
}

// enter reports why a call should not be made now. Of a database that could
// not be reached, one caller at a time tries whether it can again.
func (d *database) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault == nil {
		return nil
	}
	if d.probing || time.Now().Before(d.retryAt) {
		return d.fault
	}
	d.probing = true
	return nil
}

// leave learns from how a call ended, unless its caller gave up.
func (d *database) leave(err, fault error, gaveUp bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.probing = false
	switch {
	case gaveUp:
	case errors.Is(fault, errNotMigrated):
		d.fault, d.migrated = nil, false
	case transient(err) && !answered(err):
		d.fault, d.retryAt = fault, time.Now().Add(d.stores.retryAfter)
	default:
		d.fault = nil
	}
}

var errMigrating = errors.New("the migration of the database's schema is still running")

// migrate migrates, or waits for whoever does, as long as a call may take.
func (d *database) migrate(ctx context.Context) error {
	d.mu.Lock()
	fault := d.fault
	d.mu.Unlock()
	if fault != nil {
		return fault // until a call has found that it is back
	}
	m := d.startMigration()
	if m == nil {
		return nil
	}
	overdue := time.NewTimer(d.stores.callTimeout)
	defer overdue.Stop()
	select {
	case <-m.done:
		return m.err
	case <-overdue.C:
		return errMigrating
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startMigration returns the migration to wait for, nil if none is needed.
func (d *database) startMigration() *migration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.migrated {
		return nil
	}
	if m := d.migration; m != nil && !m.over() {
		return m
	}
	m := &migration{done: make(chan struct{})}
	if err := d.stores.background(d, func() { d.runMigration(m) }); err != nil {
		m.err = err
		close(m.done)
		return m
	}
	d.migration = m
	return m
}

// over reports whether a migration failed long enough ago to try another.
func (m *migration) over() bool {
	select {
	case <-m.done:
		return !time.Now().Before(m.retryAt)
	default:
		return false
	}
}

func (d *database) runMigration(m *migration) {
	ctx, cancel := context.WithTimeout(d.stores.running, migrationTimeout)
	defer cancel()
	err := store.Migrate(ctx, d.url, func(format string, args ...any) {
		d.stores.log.Info("Migrating a database", "step", fmt.Sprintf(format, args...))
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		m.err, m.retryAt = describe(err, "the migration was not completed"), time.Now().Add(d.stores.retryAfter)
	} else {
		d.migrated, d.migration = true, nil
	}
	close(m.done)
}
