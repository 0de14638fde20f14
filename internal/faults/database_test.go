package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/testenv"
)

var _ = Describe("the database in the hands of others", func() {
	row("snapshot held for long",
		"a session idle in a transaction held a snapshot while 3,000 events went through, so that no dead row could be cleaned up",
		func(w *world) {
			w.run(setting{})
			l := w.load(64)
			tx := w.transaction(pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			w.in(tx, "SELECT count(*) FROM delivery")
			w.did("a snapshot is held")
			l.more(3000)
			w.commit(tx)
			l.more(200)
		})

	row("autovacuum off",
		"3,000 events went through a server that never cleans up",
		func(w *world) {
			w.run(setting{postgres: map[string]string{"autovacuum": "off"}})
			w.did("autovacuum is off")
			w.load(64).more(3000)
		})

	row("hot tables locked by DDL",
		"ALTER TABLE on delivery, and then on event, held its lock for 7 s under load: requests were refused with 503 until it was given up",
		func(w *world) {
			w.run(setting{})
			l := w.load(64)
			l.more(100)
			for _, table := range []string{"delivery", "event"} {
				tx := w.transaction(pgx.TxOptions{})
				w.in(tx, "ALTER TABLE "+table+" ADD COLUMN added int")
				w.did("DDL holds %s", table)
				l.refusals(32)
				w.last(7 * time.Second)
				w.rollback(tx)
				l.returned()
				l.more(100)
			}
		})

	row("deadlocks with a writer that does not sort",
		"another program updated pairs of deliveries in the order opposite to that of the workers until the server had ended ten deadlocks",
		func(w *world) {
			w.begin(setting{postgres: map[string]string{"deadlock_timeout": "50ms"}})
			w.answer(testenv.After(200*time.Millisecond, testenv.Status(http.StatusNoContent)))
			w.ingress()
			w.worker()
			w.load(64)
			w.deadlock(10)
			w.answer(testenv.Status(http.StatusNoContent))
		})

	row("partitions missing",
		"the partitions of the coming days were dropped: rows went to the default partitions, and were moved by the next housekeeping under load",
		func(w *world) {
			w.begin(setting{})
			w.ingress()
			w.dropPartitions()
			l := w.load(64)
			w.worker()
			l.more(500)
			if n := w.Number("SELECT count(*) FROM ONLY event_default"); n == 0 {
				w.t.Error("no event is in the default partition")
			}
			w.housekeeping()
			w.until(func() error {
				if n, err := w.TryNumber("SELECT count(*) FROM ONLY event_default"); n > 0 || err != nil {
					w.housekeeping() // it gives up rather than make writers wait
					return fmt.Errorf("%d events are in the default partition (%w)", n, err)
				}
				return nil
			})
			l.more(200)
		})

	row("partition dropped under load",
		"the day of open events was made to be over: housekeeping copied them out and dropped their partition under load, and they were delivered all the same",
		func(w *world) {
			w.begin(setting{})
			hold, release := testenv.Block(testenv.Status(http.StatusNoContent))
			defer release()
			w.ingress()
			l := w.load(16)
			l.more(200)
			over := w.expire()
			w.did("the partition of open events is over")
			w.answer(hold)
			w.worker()
			w.until(func() error {
				n, err := w.TryNumber("SELECT count(*) FROM pg_class WHERE relname = $1", over)
				if err == nil && n > 0 {
					w.housekeeping()
					err = errors.New("the partition is there")
				}
				return err
			})
			if n := w.Number("SELECT count(*) FROM held_event"); n < 200 {
				w.t.Errorf("%d events are held, want 200 and more", n)
			}
			l.more(100)
			release()
			l.more(100)
		})

	row("notifications lost",
		"workers never got to LISTEN: their polls alone found everything",
		func(w *world) {
			w.begin(setting{})
			w.toWorker.Hook(func(c testenv.Chunk) testenv.Action {
				if c.Direction == testenv.ToServer && containsFold(c.Data, "listen ") {
					return testenv.Hold
				}
				return testenv.Forward
			})
			w.did("LISTEN is held back")
			w.ingress()
			w.worker()
			l := w.load(16)
			l.more(1000)
			l.end()
			w.until(w.Drained)
			if n := w.Number("SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen%'"); n > 0 {
				w.t.Errorf("%d sessions listen", n)
			}
		})
})

// last lets a fault last for a while.
func (w *world) last(d time.Duration) {
	w.t.Helper()
	select {
	case <-time.After(d):
	case <-w.ctx.Done():
		w.t.Fatal("the row's time is over")
	}
}

// transaction begins one in a session of its own.
func (w *world) transaction(o pgx.TxOptions) pgx.Tx {
	w.t.Helper()
	conn, err := pgx.Connect(w.ctx, w.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.BeginTx(w.ctx, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return tx
}

// in runs a statement in a transaction.
func (w *world) in(tx pgx.Tx, sql string, args ...any) {
	w.t.Helper()
	if _, err := tx.Exec(w.ctx, sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) commit(tx pgx.Tx) {
	w.t.Helper()
	if err := tx.Commit(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) rollback(tx pgx.Tx) {
	w.t.Helper()
	if err := tx.Rollback(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

// atomically runs statements in one transaction.
func (w *world) atomically(sql ...string) {
	w.t.Helper()
	tx := w.transaction(pgx.TxOptions{})
	for _, s := range sql {
		w.in(tx, s)
	}
	w.commit(tx)
}

// deadlock updates deliveries that workers have in their hands, the greatest
// key first, until the server has ended a number of deadlocks.
func (w *world) deadlock(times int) {
	w.t.Helper()
	const count = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
	victims := 0
	for before := w.Number(count); ; {
		err := pgx.BeginFunc(w.ctx, w.Pool, func(tx pgx.Tx) error {
			rows, err := tx.Query(w.ctx, "SELECT event_id FROM delivery WHERE state = 'claimed' ORDER BY event_id DESC")
			if err != nil {
				return err
			}
			claimed, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			if err != nil {
				return err
			}
			for _, id := range claimed {
				if _, err := tx.Exec(w.ctx, "UPDATE delivery SET size = size WHERE event_id = $1", id); err != nil {
					return err
				}
			}
			return nil
		})
		var pg *pgconn.PgError
		switch {
		case errors.As(err, &pg) && pg.Code == "40P01":
			victims++
		case err != nil:
			w.t.Fatal(err)
		}
		n := w.Number(count) - before
		w.result.Faults = n
		if n >= times {
			w.history.Did("%d deadlocks, in %d of which the other program was the victim", n, victims)
			return
		}
		w.last(rand.N(20 * time.Millisecond))
	}
}

// parents are the tables with partitions.
var parents = []string{"event", "settled", "attempt", "outcome"}

// dropPartitions drops all empty daily partitions, once they are there.
func (w *world) dropPartitions() {
	w.t.Helper()
	const daily = `SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '^(event|settled|attempt|outcome)_\d{8}$'`
	w.until(func() error {
		n, err := w.TryNumber(daily)
		if err == nil && n < 4*len(parents) {
			err = fmt.Errorf("%d partitions", n)
		}
		return err
	})
	w.atomically(`DO $$
		DECLARE child text;
		BEGIN
			FOR child IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^(event|settled|attempt|outcome)_\d{8}$' LOOP
				EXECUTE format('DROP TABLE %I', child);
			END LOOP;
		END $$`,
		// The workers that begin now have made them already, for all they know.
		"UPDATE chore SET due_at = now() + interval '1 hour' WHERE name = 'partitions'")
	w.did("partitions dropped")
}

// housekeeping makes the chore of the partitions due.
func (w *world) housekeeping() {
	w.t.Helper()
	w.execute("UPDATE chore SET due_at = '-infinity' WHERE name = 'partitions'")
}

// expire makes all events that are there such whose time was over the day
// before yesterday, and returns their partition.
func (w *world) expire() (partition string) {
	w.t.Helper()
	w.expect.Since = time.Time{} // they are older than the row now
	day := time.Now().UTC().AddDate(0, 0, -2)
	at := day.Format("'2006-01-02 00:00:00+00'")
	w.atomically(
		"SELECT create_partition('event', "+day.Format("'2006-01-02'")+")",
		"CREATE TEMP TABLE over ON COMMIT DROP AS SELECT id FROM event",
		"UPDATE event SET expires_at = "+at+", received_at = "+at+"::timestamptz - interval '1 day' WHERE id IN (SELECT id FROM over)",
		"UPDATE delivery SET event_expires_at = "+at+" WHERE event_id IN (SELECT id FROM over)",
	)
	return "event_" + day.Format("20060102")
}

func containsFold(data []byte, text string) bool {
	return bytes.Contains(bytes.ToLower(data), []byte(text))
}
