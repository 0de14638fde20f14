package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Keep is for how long the rows of one endpoint are kept.
type Keep struct {
	Events, Ledger time.Duration
}

// Maintained says what a call of Maintain did.
type Maintained struct {
	// Created and Dropped are partitions.
	Created, Dropped []string
	// Held counts events copied out of partitions that were dropped.
	Held int64
	// Keys, DeadLetters and HeldEvents count what was deleted because its
	// time was over.
	Keys, DeadLetters, HeldEvents int64
}

// How often the housekeeping of a database is done, by whichever process
// comes first.
const (
	partitionsEvery = time.Hour
	purgeEvery      = time.Minute
	tallyEvery      = 10 * time.Second
	choreRetry      = 30 * time.Second
)

const (
	// daysAhead is how many days of partitions are there before rows come.
	daysAhead = 3
	// purgeBatch bounds the rows that one statement deletes.
	purgeBatch = 5000
	// lockTimeout bounds how long a change of partitions may make writers
	// wait; the change is tried again later.
	lockTimeout = "500ms"
)

// Maintain does the housekeeping that is due: partitions ahead of time and
// the end of old ones, expired keys and dead letters, the counters' sums. Of
// all processes that call it, one does each chore. Call it every ten seconds
// or so; keeps are those of all endpoints that the process knows.
func (s *Store) Maintain(ctx context.Context, keeps []Keep) (Maintained, error) {
	var m Maintained
	chores := []struct {
		name  string
		every time.Duration
		do    func(context.Context) error
	}{
		{"tally", tallyEvery, func(ctx context.Context) error {
			_, err := s.pool.Exec(ctx, sqlFoldTally)
			return err
		}},
		{"partitions", partitionsEvery, func(ctx context.Context) error {
			return errors.Join(s.createPartitions(ctx, keeps, &m), s.retire(ctx, &m))
		}},
		{"purge", purgeEvery, func(ctx context.Context) error { return s.purge(ctx, &m) }},
	}
	var faults []error
	for _, chore := range chores {
		var mine bool
		err := s.pool.QueryRow(ctx, sqlTakeChore, chore.name, chore.every.Milliseconds()).Scan(&mine)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err == nil {
			err = s.do(ctx, chore.name, chore.do)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", chore.name, err))
		}
	}
	return m, classify("maintaining the database", errors.Join(faults...))
}

// do does a chore, and has it done again soon if it fails.
func (s *Store) do(ctx context.Context, name string, chore func(context.Context) error) error {
	err := chore(ctx)
	if err == nil {
		return nil
	}
	_, postponed := s.pool.Exec(ctx, sqlPostponeChore, name, choreRetry.Milliseconds())
	return errors.Join(err, postponed)
}

// EnsurePartitions makes the partitions that rows of these endpoints will
// need in the next days. Without them rows go to default partitions, so
// nothing depends on its success.
func (s *Store) EnsurePartitions(ctx context.Context, keeps []Keep) error {
	return classify("creating partitions", s.createPartitions(ctx, keeps, &Maintained{}))
}

func (s *Store) createPartitions(ctx context.Context, keeps []Keep, m *Maintained) error {
	var parents []string
	var seconds []int32
	for _, k := range keeps {
		events, ledger := wholeSeconds(k.Events), wholeSeconds(k.Ledger)
		parents = append(parents, "event", "settled", "attempt", "outcome")
		seconds = append(seconds, events, events, ledger, ledger)
	}
	rows, err := s.pool.Query(ctx, sqlMissingPartitions, parents, seconds, daysAhead)
	if err != nil {
		return err
	}
	type partition struct {
		Parent string
		Day    time.Time
	}
	missing, err := pgx.CollectRows(rows, pgx.RowToStructByPos[partition])
	if err != nil {
		return err
	}
	for _, p := range missing {
		var created bool
		err := s.changePartition(ctx, func(b *pgx.Batch) {
			b.Queue("SELECT create_partition($1, $2)", p.Parent, p.Day).QueryRow(func(row pgx.Row) error { return row.Scan(&created) })
		})
		if err != nil {
			return fmt.Errorf("creating a partition of %s: %w", p.Parent, err)
		}
		if created {
			m.Created = append(m.Created, p.Parent+"_"+p.Day.Format("20060102"))
		}
	}
	return nil
}

// changePartition runs one change of the set of partitions that gives up
// rather than make writers wait, one at a time.
func (s *Store) changePartition(ctx context.Context, change func(*pgx.Batch)) error {
	b := &pgx.Batch{}
	b.Queue("SELECT set_config('lock_timeout', $1, true)", lockTimeout)
	b.Queue("SELECT pg_advisory_xact_lock(hashtext('ackrail partitions'), hashtext(current_schema()))")
	change(b)
	return s.together(ctx, b)
}

// retire drops the partitions whose day is over. Events that are still
// needed are copied out first, without holding anybody up: what may be needed
// of a day that is over is open or dead already.
func (s *Store) retire(ctx context.Context, m *Maintained) error {
	for _, parent := range []string{"event", "settled", "attempt", "outcome"} {
		rows, err := s.pool.Query(ctx, "SELECT expired_partitions($1)", parent)
		if err != nil {
			return err
		}
		expired, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, child := range expired {
			if err := s.dropPartition(ctx, parent, child, m); err != nil {
				return fmt.Errorf("dropping %s: %w", child, err)
			}
			m.Dropped = append(m.Dropped, child)
		}
		if err := s.emptyDefault(ctx, parent, m); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) dropPartition(ctx context.Context, parent, child string, m *Maintained) error {
	if parent == "event" {
		b := &pgx.Batch{}
		hold(b, child, m)
		if err := s.together(ctx, b); err != nil {
			return err
		}
	}
	return s.changePartition(ctx, func(b *pgx.Batch) { b.Queue("SELECT drop_partition($1)", child) })
}

// hold copies the events that are still needed out of a partition.
func hold(b *pgx.Batch, child string, m *Maintained) {
	b.Queue("SELECT hold_events($1)", child).QueryRow(func(row pgx.Row) error {
		var held int64
		err := row.Scan(&held)
		m.Held += held
		return err
	})
}

// emptyDefault deletes expired rows that came while their day had no
// partition. In one transaction, whose time stands still: what expires after
// it was looked through is not deleted.
func (s *Store) emptyDefault(ctx context.Context, parent string, m *Maintained) error {
	b := &pgx.Batch{}
	if parent == "event" {
		hold(b, "event_default", m)
	}
	b.Queue(statement("purge_" + parent + "_default"))
	return s.together(ctx, b)
}

// purge deletes what expires row by row.
func (s *Store) purge(ctx context.Context, m *Maintained) error {
	var err error
	if m.Keys, err = s.purgeInBatches(ctx, sqlPurgeDedup); err != nil {
		return err
	}
	if m.DeadLetters, err = s.purgeInBatches(ctx, sqlPurgeDeadLetters); err != nil {
		return err
	}
	// A replay may be about to need a copy that nothing needs yet.
	b := &pgx.Batch{}
	lockReplays(b)
	b.Queue(sqlPurgeHeldEvents).Exec(func(tag pgconn.CommandTag) error {
		m.HeldEvents = tag.RowsAffected()
		return nil
	})
	return s.together(ctx, b)
}

// purgeInBatches repeats a statement until it finds less than a batch.
func (s *Store) purgeInBatches(ctx context.Context, statement string) (deleted int64, err error) {
	for {
		tag, err := s.pool.Exec(ctx, statement, purgeBatch)
		deleted += tag.RowsAffected()
		if err != nil || tag.RowsAffected() < purgeBatch {
			return deleted, err
		}
	}
}
