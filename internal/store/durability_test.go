package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/testenv"
)

// What is promised or sent next must survive the server (I1), whatever the
// session's default is. A stricter default is left alone.
func TestSynchronousCommitIsRaised(t *testing.T) {
	url := migrated(t)
	enqueueNew(t, openStore(t, url), 1, "a")
	sub, r := submission(t, "k"), result{}
	p, err := prepare(&sub, &r)
	if err != nil {
		t.Fatal(err)
	}
	none := []string{}
	statements := map[string]struct {
		sql  string
		args []any
	}{
		"enqueue": {sqlEnqueue, columnsOf([]prepared{p}).args()},
		"enqueue with unknown names": {sqlEnqueue, columnsOf([]prepared{func() prepared {
			unknown := submission(t, "k", to("unknown"))
			p := p
			p.Submission = &unknown
			return p
		}()}).args()},
		"claim": {sqlClaim, []any{
			"worker", []string{endpoint.Namespace}, []string{endpoint.Name}, []string{"a"},
			[]int32{1}, []int64{1}, []int64{1}, []int32{1}, []int32{1}, []time.Time{{}}, []time.Time{{}}, []int32{0}, true,
		}},
		"claim of nothing": {sqlClaim, []any{"worker", none, none, none, []int32{}, []int64{}, []int64{}, []int32{}, []int32{}, []time.Time{}, []time.Time{}, []int32{}, true}},
		"complete": {sqlComplete, []any{
			[]uuid.UUID{sub.Event.ID}, []int32{1}, []int32{1}, []int32{1}, []int32{1}, []string{"done"}, []int64{0}, []string{""}, []*int32{nil},
			[]int32{0}, []string{""}, []string{""}, []string{""}, []int32{0}, []int32{0},
		}},
	}
	for _, level := range []struct{ session, want string }{
		{"off", "on"}, {"local", "on"}, {"on", "on"}, {"remote_write", "remote_write"}, {"remote_apply", "remote_apply"},
	} {
		s := openStore(t, with(t, url, "synchronous_commit", level.session))
		for name, statement := range statements {
			t.Run(level.session+"/"+name, func(t *testing.T) {
				tx, err := s.pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(t.Context()) }()
				rows, err := tx.Query(t.Context(), statement.sql, statement.args...)
				if err != nil {
					t.Fatal(err)
				}
				rows.Close()
				if err := rows.Err(); err != nil {
					t.Fatal(err)
				}
				var got string
				if err := tx.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&got); err != nil {
					t.Fatal(err)
				}
				same(t, "synchronous_commit at the commit", level.want, got)
			})
		}
	}
}

// The write-ahead log has left the server's buffers when the calls return.
func TestCommitsAreFlushed(t *testing.T) {
	url := migrated(t)
	s, admin := openStore(t, with(t, url, "synchronous_commit", "off")), openStore(t, url)
	enqueueNew(t, s, 1, "a") // the names
	flushed := func(what string, f func()) {
		t.Helper()
		before := value[string](t, admin, "SELECT pg_current_wal_insert_lsn()::text")
		f()
		if !value[bool](t, admin, "SELECT pg_current_wal_flush_lsn() > $1::text::pg_lsn", before) {
			t.Errorf("%s: not flushed", what)
		}
	}
	for i := range 10 {
		var c *Claim
		flushed("enqueue", func() { enqueue(t, s, submission(t, digits(i))) })
		flushed("claim", func() { c = claim(t, s, want("a", most(1)))[0] })
		flushed("complete", func() { finish(t, s, "done", c) })
	}
}

// Where standbys count, an answer says that one has the event: also a repeated
// one, and also if somebody cancels the wait.
func TestAnswersWaitForTheStandby(t *testing.T) {
	settings := map[string]string{"fsync": "off"}
	primary := testenv.Primary(t, settings)
	if err := Migrate(t.Context(), primary.URL(), t.Logf); err != nil {
		t.Fatal(err)
	}
	standby := testenv.Standby(t, primary, settings)
	s, admin := openStore(t, primary.URL()), openStore(t, primary.URL())
	enqueueNew(t, s, 1, "a") // the names
	testenv.Configure(t, primary, "synchronous_standby_names", "standby")
	if err := standby.Kill(); err != nil {
		t.Fatal(err)
	}

	sub := submission(t, "k")
	for _, what := range []string{"the event", "the event again", "the event a third time"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		answered := make(chan result, 1)
		go func() {
			r := result{}
			p, err := prepare(&sub, &r)
			if err != nil {
				t.Error(err)
			}
			s.enqueue(ctx, []prepared{p})
			answered <- r
		}()
		testenv.Eventually(t, patience, func() error {
			if n := value[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"); n != 1 {
				return fmt.Errorf("%d sessions wait for the standby", n)
			}
			select {
			case r := <-answered:
				t.Fatalf("%s was answered with %v without the standby", what, r)
			default:
			}
			return nil
		})
		execute(t, admin, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		if r := <-answered; !errors.Is(r.err, ErrUnavailable) || !errors.Is(r.err, errUnreplicated) {
			t.Errorf("%s, with the wait cancelled: %v", what, r)
		}
		cancel()
	}

	if err := standby.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := enqueue(t, s, sub)[0]; !r.Duplicate {
		t.Error("the event is new")
	}
	same(t, "events", 1, value[int](t, openStore(t, standby.URL()), "SELECT count(*) FROM event WHERE idempotency_key = 'k'"))
}
