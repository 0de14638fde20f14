package faults

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	. "github.com/onsi/ginkgo/v2"
	"github.com/pressly/goose/v3"

	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

var _ = Describe("rows that are no good", func() {
	row("event that the database refuses",
		"a constraint forbade some of the events that 64 senders sent: each of them was answered with 422, alone, whatever else was in its batch",
		func(w *world) {
			w.run(setting{})
			l := w.load(64)
			l.more(100)
			w.execute("ALTER TABLE event ADD CONSTRAINT poison CHECK (idempotency_key NOT LIKE 'poison%') NOT VALID")
			s := rig.NewSender(w.t, 1)
			for range 50 {
				w.want(s, "poison-"+uuid.NewString(), http.StatusUnprocessableEntity)
				w.did("poisoned event sent")
			}
			l.more(100)
		})

	row("outcomes that the database refuses",
		"a constraint forbade to record that some deliveries are done: the others were recorded, and these were once it had gone",
		func(w *world) {
			w.run(setting{})
			l := w.load(64)
			l.more(100)
			w.execute("ALTER TABLE settled ADD CONSTRAINT poison CHECK (get_byte(uuid_send(event_id), 15) > 1) NOT VALID")
			w.did("outcomes are poisoned")
			l.more(1500) // of which a dozen
			l.end()
			w.until(func() error {
				// All that is left is what cannot be recorded.
				n, err := w.TryNumber("SELECT count(*) FROM delivery WHERE get_byte(uuid_send(event_id), 15) > 1")
				if err == nil && n > 0 {
					err = fmt.Errorf("%d others are open", n)
				}
				return err
			})
			if n := w.claimed(); n == 0 {
				w.t.Error("nothing was refused")
			}
			w.execute("ALTER TABLE settled DROP CONSTRAINT poison")
		})

	row("events that cannot be read",
		"a page of events was damaged on disk: its deliveries died, with a reason, and none of the others was held up; in the end the page was restored",
		func(w *world) {
			w.begin(setting{})
			w.ingress()
			l := w.load(16)
			l.more(500)
			var table string
			if err := w.Pool.QueryRow(w.ctx, "SELECT tableoid::regclass::text FROM event GROUP BY 1 ORDER BY count(*) DESC LIMIT 1").Scan(&table); err != nil {
				w.t.Fatal(err)
			}
			restore := testenv.Damage(w.t, w.server, table, 1)
			w.did("a page of %s damaged", table)
			l.returned()
			w.worker()
			l.more(200)
			l.end()
			w.until(w.Drained)
			dead := w.Number("SELECT count(*) FROM dead_letter WHERE reason = 'PayloadMissing'")
			if all := w.Number("SELECT count(*) FROM dead_letter"); dead == 0 || dead > 100 || all != dead {
				w.t.Errorf("%d deliveries of damaged events died, %d in all", dead, all)
			}
			restore()
		})
})

var _ = Describe("the schema", func() {
	row("schema missing, then made",
		"ingress and worker began before the schema was there: requests were refused with 503 until ackrail migrate had run",
		func(w *world) {
			w.begin(setting{})
			w.atomically("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
			in, worker := w.ingress(), w.worker()
			w.did("no schema")
			l := w.load(16)
			l.refusals(50)
			for _, p := range []*rig.Pod{in, worker} {
				testenv.Eventually(w.t, patience, func() error { return says(p, "ackrail migrate") })
			}
			w.migrate(1)
			l.returned()
			l.more(200)
		})

	row("schema older than the processes",
		"ingress and worker began on the first version of the schema: they said what they need, and went on all the same, before and after ackrail migrate",
		func(w *world) {
			w.begin(setting{})
			w.atomically("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
			w.firstSchema()
			in := w.ingress()
			w.worker()
			w.did("schema of the first version")
			l := w.load(16)
			l.more(200)
			w.until(func() error { return says(in, "ackrail migrate") })
			w.migrate(1)
			if n := w.Number("SELECT max(version_id) FROM schema_version"); n != store.SchemaVersion {
				w.t.Errorf("the schema has version %d", n)
			}
			l.more(200)
		})

	row("schema newer than the processes",
		"a later version's migration, which only adds, went over a running pipeline: it went on, and began anew, and ackrail migrate of the older version left everything as it was",
		func(w *world) {
			in, worker := w.run(setting{})
			l := w.load(16)
			l.more(100)
			for _, change := range []string{
				"ALTER TABLE event ADD COLUMN later text NOT NULL DEFAULT ''",
				"ALTER TABLE held_event ADD COLUMN later text NOT NULL DEFAULT ''",
				"ALTER TABLE delivery ADD COLUMN later int",
				"ALTER TABLE settled ADD COLUMN later int",
				"ALTER TABLE attempt ADD COLUMN later int",
				"ALTER TABLE dead_letter ADD COLUMN later int",
				"INSERT INTO schema_version (version_id, is_applied) VALUES (1000, true)",
			} {
				w.execute(change) // alone, or it would deadlock with the traffic
			}
			w.did("schema of a later version")
			l.more(200)
			w.migrate(1)
			if n := w.Number("SELECT max(version_id) FROM schema_version"); n != 1000 {
				w.t.Errorf("the schema has version %d", n)
			}
			in.Stop()
			worker.Stop()
			w.ingress()
			w.worker()
			l.more(200)
		})

	row("several migrators at once",
		"eight ackrail migrate began at once where there was nothing, twice: each ended with success, and one of them had made the tables",
		func(w *world) {
			w.begin(setting{})
			w.atomically("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
			for _, schema := range []string{"beside", "public"} { // one that they have to make first, and one that is there
				w.migrate(8, "search_path="+schema)
				w.did("8 migrators at once")
				if n := w.Number("SELECT count(*) FROM " + schema + ".schema_version WHERE version_id = 1"); n != 1 {
					w.t.Errorf("the migration was applied %d times", n)
				}
			}
			w.ingress()
			w.worker()
			w.load(16).more(100)
		})
})

// migrate runs a number of migrators at the same time, which must succeed,
// with further settings of the database's URL.
func (w *world) migrate(n int, settings ...string) {
	w.t.Helper()
	url := strings.Join(append([]string{w.URL}, settings...), "&")
	finished := make(chan rig.Finished, n)
	for range n {
		go func() { finished <- rig.Run(w.t, "", "migrate", "--database-url", url) }()
	}
	for range n {
		if f := <-finished; f.Code != 0 {
			w.t.Errorf("ackrail migrate ended with %d: %s%s", f.Code, f.Stdout, f.Stderr)
		}
	}
}

// firstSchema makes the schema as the first version of the product had it.
func (w *world) firstSchema() {
	w.t.Helper()
	db, err := sql.Open("pgx", w.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS("../store/migrations"),
		goose.WithTableName("schema_version"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := provider.UpTo(w.ctx, 1); err != nil {
		w.t.Fatal(err)
	}
}

// says reports an error until a process has printed something.
func says(p *rig.Pod, text string) error {
	if out := p.Output(); !containsFold([]byte(out), text) {
		return fmt.Errorf("it does not say %q: %s", text, out)
	}
	return nil
}
