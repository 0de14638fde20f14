package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

// node is what EXPLAIN tells of one step of a plan.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Hit      float64 `json:"Shared Hit Blocks"`
	Read     float64 `json:"Shared Read Blocks"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Unjoined float64 `json:"Rows Removed by Join Filter"`
	Plans    []node  `json:"Plans"`
}

// busiest returns the step that looks at most rows, and how many.
func (n *node) busiest() (step string, rows float64) {
	n.walk(func(n *node) {
		if looked := (n.Rows + n.Filtered + n.Unjoined) * n.Loops; looked > rows {
			step, rows = n.Type, looked
		}
	})
	return step, rows
}

func (n *node) walk(visit func(*node)) {
	visit(n)
	for i := range n.Plans {
		n.Plans[i].walk(visit)
	}
}

// scans returns how a table is reached, and by which indexes, whose names
// start with its own.
func (n *node) scans(table string) (types, indexes []string) {
	n.walk(func(n *node) {
		if n.Relation == table && n.Type != "ModifyTable" {
			types = append(types, n.Type)
		}
		if strings.HasPrefix(n.Index, table+"_") {
			indexes = append(indexes, n.Index)
		}
	})
	slices.Sort(types)
	slices.Sort(indexes)
	return slices.Compact(types), slices.Compact(indexes)
}

// A call is a statement with its arguments.
type call struct {
	sql  string
	args []any
}

// in runs a function in a transaction that is taken back.
func in(t *testing.T, s *Store, f func(pgx.Tx)) {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	f(tx)
}

const explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "

// plan carries a call out and returns its plan.
func (c call) plan(t *testing.T, s *Store) *node {
	t.Helper()
	var plan *node
	in(t, s, func(tx pgx.Tx) { plan = planOf(t, tx, explain+c.sql, c.args...) })
	return plan
}

// genericPlan carries a call out as a prepared statement that the planner may
// not look into the arguments of, and returns its plan.
func (c call) genericPlan(t *testing.T, s *Store) *node {
	t.Helper()
	var plan *node
	in(t, s, func(tx pgx.Tx) {
		for _, sql := range []string{"SET LOCAL plan_cache_mode = force_generic_plan", "PREPARE hot AS " + c.sql} {
			if _, err := tx.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
		}
		parameters := make([]string, len(c.args))
		for i := range parameters {
			parameters[i] = fmt.Sprintf("$%d", i+1)
		}
		plan = planOf(t, tx, explain+"EXECUTE hot("+strings.Join(parameters, ", ")+")", append([]any{pgx.QueryExecModeSimpleProtocol}, c.args...)...)
		if _, err := tx.Exec(t.Context(), "DEALLOCATE hot"); err != nil {
			t.Fatal(err)
		}
	})
	return plan
}

func planOf(t *testing.T, tx pgx.Tx, sql string, args ...any) *node {
	t.Helper()
	var text []byte
	if err := tx.QueryRow(t.Context(), sql, args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans []struct{ Plan node }
	if err := json.Unmarshal(text, &plans); err != nil {
		t.Fatal(err)
	}
	return &plans[0].Plan
}

const backlog = 20_000

// drifts are ways in which the planner may know too little about a backlog of
// two destinations.
var drifts = map[string]func(*testing.T, *Store){
	"never analyzed": func(t *testing.T, s *Store) { fill(t, s, backlog) },
	"analyzed when idle": func(t *testing.T, s *Store) {
		execute(t, s, "VACUUM ANALYZE delivery")
		fill(t, s, backlog)
	},
	"analyzed with few": func(t *testing.T, s *Store) {
		fill(t, s, 50)
		execute(t, s, "VACUUM ANALYZE delivery")
		fill(t, s, backlog)
	},
	"analyzed with many destinations": func(t *testing.T, s *Store) {
		execute(t, s, `INSERT INTO destination (endpoint_id, name) SELECT 1, 'd' || n FROM generate_series(1, 2000) AS n`)
		fill(t, s, 1)
		execute(t, s, "VACUUM ANALYZE delivery")
		execute(t, s, "DELETE FROM destination WHERE name LIKE 'd%'")
		fill(t, s, backlog)
	},
	"analyzed with a backlog": func(t *testing.T, s *Store) {
		fill(t, s, backlog)
		execute(t, s, "VACUUM ANALYZE delivery")
	},
	"analyzed with nothing due": func(t *testing.T, s *Store) {
		fill(t, s, backlog)
		execute(t, s, "UPDATE delivery SET next_at = now() + interval '1 day'")
		execute(t, s, "VACUUM ANALYZE delivery")
		execute(t, s, "UPDATE delivery SET next_at = now()")
	},
}

// fill owes n events to "a" and as many to "b", claimed long ago, with their
// intents in the ledger.
func fill(t *testing.T, s *Store, n int) {
	t.Helper()
	execute(t, s, `WITH owed AS (
			INSERT INTO delivery (event_id, destination_id, run, attempt, size, next_at, event_expires_at, state)
			SELECT gen_random_uuid(), d.id, 1, 1, 100, now() - n * interval '1 millisecond', now() + interval '1 hour', 'claimed'
			FROM generate_series(1, $1) AS n, destination d
			RETURNING *
		)
		INSERT INTO attempt (event_id, destination_id, run, attempt, started_at, expires_at, worker)
		SELECT event_id, destination_id, run, attempt, now(), event_expires_at, 'worker' FROM owed`, n)
}

// calls are what a worker does again and again, for some events that were
// claimed for destination 1, and by which index of delivery it may do so.
func calls(events []string, replay uuid.UUID) map[string]struct {
	call
	index string
} {
	n := len(events)
	ones := slices.Repeat([]int32{1}, n)
	zeros := make([]int64, n)
	texts := func(text string) []string { return slices.Repeat([]string{text}, n) }
	complete := func(verdict string) call {
		return call{sqlComplete, []any{
			events, ones, ones, ones, ones, texts(verdict), zeros, texts("reason"), make([]*int32, n), ones, texts(""), texts(""), texts(""), ones, ones,
		}}
	}
	namespaces, endpoints := []string{endpoint.Namespace, endpoint.Namespace}, []string{endpoint.Name, endpoint.Name}
	return map[string]struct {
		call
		index string
	}{
		"claim": {call{sqlClaim, []any{
			"worker", namespaces, endpoints, []string{"a", "b"}, []int32{200, 200}, []int64{1 << 20, 1 << 20}, []int64{1000, 1000},
			[]int32{9, 9}, []int32{9, 9}, make([]time.Time, 2), make([]time.Time, 2), []int32{0, 0}, true,
		}}, "delivery_lane"},
		"complete failed": {complete("failed"), "delivery_pkey"},
		"complete dead":   {complete("dead"), "delivery_pkey"},
		"complete done":   {complete("done"), "delivery_pkey"},
		"renew":           {call{sqlRenew, []any{events, ones, ones, ones, zeros}}, "delivery_pkey"},
		"counts":          {call{sqlCounts, []any{namespaces, endpoints, []string{"a", "b"}}}, "delivery_due"},
		"run_replay":      {call{sqlRunReplay, []any{replay, 10, []string{"handler"}}}, "delivery_pkey"},
		"replay_status":   {call{sqlReplayStatus, []any{replay}}, "delivery_replay"},
		"finish_replay":   {call{sqlFinishReplay, []any{replay}}, "delivery_replay"},
	}
}

// Nothing that a worker does again and again may read the table, whatever the
// planner knows: autovacuum lags exactly when there is a backlog.
func TestPlansOnABacklog(t *testing.T) {
	const batch = 200
	for name, drift := range drifts {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			execute(t, s, "ALTER TABLE delivery SET (autovacuum_enabled = false)")
			enqueueNew(t, s, 1, "b")
			replay := plan(t, s, newReplay(t, replay.Selector{States: selectDead, Events: newDead(t, s, 1)}))
			drift(t, s)
			events := column[string](t, s, `SELECT event_id::text FROM delivery
				WHERE state = 'claimed' AND destination_id = 1 ORDER BY 1 LIMIT $1`, batch)
			for what, c := range calls(events, replay.ID) {
				custom := c.plan(t, s)
				checkPlan(t, what, c.index, custom, batch)
				checkWork(t, what, custom, batch)
				checkPlan(t, what+" with a generic plan", c.index, c.genericPlan(t, s), batch)
			}
		})
	}
}

// A statement that has a name keeps the plan that was good when the session
// was young. None has one whose plan could become bad.
func TestNamedStatements(t *testing.T) {
	s, err := Open(migrated(t), Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	execute(t, s, "VACUUM ANALYZE")
	for range 10 {
		id := enqueueNew(t, s, 1, "a")[0]
		enqueue(t, s, submission(t, id.String())) // a duplicate
		c := claimOne(t, s)
		renew(t, s, time.Minute, c)
		finish(t, s, event.VerdictDone, c)
		counts(t, s, "a")
	}
	same(t, "named statements", []string{sqlEnqueue}, column[string](t, s, "SELECT statement FROM pg_prepared_statements"))

	execute(t, s, "INSERT INTO dedup SELECT 1, n::text::bytea, gen_random_uuid(), 0, now() FROM generate_series(1, $1) AS n", backlog)
	fill(t, s, backlog)
	sub, r := submission(t, "new"), result{}
	p, err := prepare(&sub, &r)
	if err != nil {
		t.Fatal(err)
	}
	in(t, s, func(tx pgx.Tx) {
		read := func() (rows int) {
			if err := tx.QueryRow(t.Context(), `SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables
				WHERE schemaname = current_schema() AND relname IN ('dedup', 'delivery', 'event_default')`).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			return rows
		}
		before := read()
		var resolved bool
		var fresh [][16]byte
		args := append([]any{s.mayName()}, columnsOf([]prepared{p}).args()...)
		if err := tx.QueryRow(t.Context(), sqlEnqueue, args...).Scan(&resolved, &fresh); err != nil || len(fresh) != 1 {
			t.Fatalf("%d events, %v", len(fresh), err)
		}
		if rows := read() - before; rows != 0 {
			t.Errorf("for one new event, %d rows of growing tables are read", rows)
		}
	})
}

func checkPlan(t *testing.T, what, index string, plan *node, batch int) {
	t.Helper()
	types, indexes := plan.scans("delivery")
	if slices.Contains(types, "Seq Scan") {
		t.Errorf("%s reads the table", what)
	}
	if strings.HasPrefix(what, "claim") && !slices.Contains(types, "Tid Scan") {
		t.Errorf("%s reaches what it locked by a %v", what, types)
	}
	same(t, what+": indexes", strings.Fields(index), indexes)
	// A plan of nothing says nothing.
	if slices.Contains([]string{"claim", "complete", "renew"}, strings.Fields(what)[0]) && plan.Rows < float64(batch) {
		t.Errorf("%s takes effect on %v of %d deliveries", what, plan.Rows, batch)
	}
	if pages := plan.Hit + plan.Read; pages > 50*float64(batch) {
		t.Errorf("%s reads %v pages for %d deliveries", what, pages, batch)
	}
}

// checkWork fails where a plan compares each row of a batch with each other
// one, or with a table's: hundreds of times as many as the batch has.
func checkWork(t *testing.T, what string, plan *node, batch int) {
	t.Helper()
	if step, rows := plan.busiest(); rows > 20*float64(batch) {
		t.Errorf("%s looks at %v rows for %d in a step of type %s", what, rows, batch, step)
	}
}

// What the counts cost does not depend on the backlog.
func TestCountsDoNotReadTheBacklog(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 1, "a", "b")
	cost := func() float64 {
		t.Helper()
		maintain(t, s)
		execute(t, s, "VACUUM delivery, tally, tally_delta")
		plan := calls(nil, uuid.Nil)["counts"].plan(t, s)
		return plan.Hit + plan.Read
	}
	fill(t, s, 10)
	few := cost()
	fill(t, s, backlog)
	if many := cost(); many > few+20 {
		t.Errorf("counting reads %v pages with a backlog, %v without", many, few)
	}
}

// What a claim and a duplicate need of events and keys is found by an index,
// of tables that nobody has analyzed since they were empty.
func TestPlansOnManyEvents(t *testing.T) {
	const batch = 200
	s := newStore(t)
	execute(t, s, "ALTER TABLE event_default SET (autovacuum_enabled = false)")
	execute(t, s, "ALTER TABLE dedup SET (autovacuum_enabled = false)")
	enqueueNew(t, s, 1, "a", "b")
	execute(t, s, "VACUUM ANALYZE")
	fill(t, s, backlog)
	execute(t, s, `INSERT INTO event SELECT event_id, event_expires_at, now(), 1, 'push', event_id::text, '', '', '{}', '' FROM delivery`)
	execute(t, s, "INSERT INTO dedup SELECT 1, n::text::bytea, gen_random_uuid(), 0, now() FROM generate_series(1, $1) AS n", backlog)
	digests := make([][]byte, batch)
	for i := range digests {
		digests[i] = fmt.Append(nil, i+1)
	}
	texts := func(text string) []string { return slices.Repeat([]string{text}, batch) }
	for _, tc := range []struct {
		what, table string
		call
	}{
		{"claim", "event_default", calls(nil, uuid.Nil)["claim"].call},
		{"look up keys", "dedup", call{sqlLookupKeys, []any{texts(endpoint.Namespace), texts(endpoint.Name), digests}}},
	} {
		for kind, plan := range map[string]*node{"custom": tc.plan(t, s), "generic": tc.genericPlan(t, s)} {
			types, indexes := plan.scans(tc.table)
			if slices.Contains(types, "Seq Scan") || len(indexes) == 0 {
				t.Errorf("%s with a %s plan reaches %s by %v with indexes %v", tc.what, kind, tc.table, types, indexes)
			}
			checkWork(t, tc.what+" with a "+kind+" plan", plan, batch)
		}
	}
}
