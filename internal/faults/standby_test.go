package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/testenv"
)

var _ = Describe("standbys", func() {
	row("synchronous standby promoted",
		"the primary was killed under load, its synchronous standby promoted, and the file with the database's URL changed: nothing acknowledged was lost",
		func(w *world) {
			p := w.pair(true)
			l := w.load(32)
			l.more(300)
			w.kill(p.primary)
			p.failOver()
			l.returned()
			l.more(300)
		})

	row("synchronous standby lost",
		"the standby went away under load: nothing was acknowledged, nor repeated with a 2xx, before it was back; then the primary was lost and the standby promoted, with all that had been acknowledged",
		func(w *world) {
			p := w.pair(true)
			l := w.load(16)
			l.more(200)
			w.kill(p.standby)
			l.refusals(100) // commits wait, are given up, and are tried again
			w.last(7 * time.Second)
			w.kill(p.primary)
			if err := p.standby.Restart(w.ctx); err != nil {
				w.t.Fatal(err)
			}
			p.failOver()
			l.returned()
			l.more(200)
		})

	row("asynchronous standby promoted",
		"the standby of a primary that does not wait for it lost its connection, fell behind, and was promoted after the primary's death: what was lost is counted, and everything else held",
		func(w *world) {
			p := w.pair(false)
			l := w.load(32)
			l.more(300)
			testenv.Configure(w.t, p.standby, "primary_conninfo", "")
			w.did("the standby hears of nothing")
			l.more(200)
			before := w.Number("SELECT count(*) FROM event")
			w.kill(p.primary)
			p.promote()
			if after := w.Number("SELECT count(*) FROM event"); after > before-200 {
				w.t.Errorf("of %d events %d are there, want 200 to be lost", before, after)
			}
			p.point(p.standby)
			l.returned()
			l.more(200)
			// What the primary's death took with it was to be expected.
			w.expect.LossAnnounced = true
		})

	row("former primary back",
		"a primary hung under load, its synchronous standby was promoted, and it went on with the processes' connections still open: nothing was acknowledged that only it had",
		func(w *world) {
			p := w.pair(true)
			l := w.load(32)
			l.more(300)
			resume := testenv.Pause(w.t, p.primary)
			w.did("primary hangs")
			p.failOver()
			resume()
			w.did("former primary goes on")
			// The database is back elsewhere: what was sent here is given up
			// after five seconds.
			l.more(1000)
		})
})

// pair is a primary and its standby, with an ingress and a worker that find
// the database's URL in a file.
type pair struct {
	w                *world
	primary, standby *postgres.Server
	file             string
}

func (w *world) pair(synchronous bool) *pair {
	w.t.Helper()
	p := &pair{w: w, primary: testenv.Primary(w.t, nil), file: filepath.Join(w.t.TempDir(), "url")}
	w.begin(setting{url: p.primary.URL()})
	p.standby = testenv.Standby(w.t, p.primary, nil)
	if synchronous {
		testenv.Configure(w.t, p.primary, "synchronous_standby_names", "standby")
	}
	p.point(p.primary)
	for _, args := range [][]string{
		{"ingress", "--listen", fmt.Sprintf("127.0.0.1:%d", w.port), "--drain-delay", "0s"},
		{"worker"},
	} {
		w.pods = append(w.pods, w.Pod("", args[0], append(args[1:], "--database-url-file", p.file)...))
	}
	return p
}

// point changes the URL that the processes find.
func (p *pair) point(s *postgres.Server) {
	p.w.t.Helper()
	if err := os.WriteFile(p.file+".new", []byte(s.URL()+"\n"), 0o600); err != nil {
		p.w.t.Fatal(err)
	}
	if err := os.Rename(p.file+".new", p.file); err != nil {
		p.w.t.Fatal(err)
	}
}

// failOver makes the standby the database.
func (p *pair) failOver() {
	p.w.t.Helper()
	p.promote()
	p.point(p.standby)
}

// promote makes the standby the database that the row looks at, and not yet
// that of the processes.
func (p *pair) promote() {
	w := p.w
	w.t.Helper()
	testenv.Promote(w.t, p.standby)
	w.did("standby promoted")
	w.URL = p.standby.URL()
	w.Look = w.Rig.Look()
}

// kill kills a server.
func (w *world) kill(s *postgres.Server) {
	w.t.Helper()
	if err := s.Kill(); err != nil {
		w.t.Fatal(err)
	}
	w.did("a server was killed")
}
