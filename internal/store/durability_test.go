package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
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
