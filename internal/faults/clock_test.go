package faults

import (
	"fmt"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

var _ = Describe("clocks", func() {
	row("clocks of the processes wrong and jumping",
		"under load, one worker's wall clock was an hour ahead and another's an hour behind, the ingress' too, and all of them jumped twenty times",
		func(w *world) {
			w.begin(setting{})
			program := testenv.BuildSkewed(w.t, "github.com/ackrail/ackrail")
			ingressClock, first, second := program.Clock(), program.Clock(), program.Clock()
			in := w.PodAt(rig.Place{Command: ingressClock.Command}, w.toIngress.URL(), "ingress",
				"--listen", fmt.Sprintf("127.0.0.1:%d", w.port), "--drain-delay", "0s")
			w.pods = append(w.pods, in,
				w.PodAt(rig.Place{Command: first.Command}, w.toWorker.URL(), "worker"),
				w.PodAt(rig.Place{Command: second.Command}, w.toWorker.URL(), "worker"))
			l := w.load(32)
			ahead := time.Hour
			for range 20 {
				ingressClock.Set(-ahead)
				first.Set(ahead)
				second.Set(-ahead)
				w.did("clocks jump to %s ahead and behind", ahead)
				l.more(50)
				ahead = -ahead
			}
			w.wrongBy(time.Hour)
			w.wrongBy(-time.Hour)
		}, NodeTimeout(20*time.Minute)) // the first build takes some of them

	row("database clock stepping back",
		"under load the database's clock stepped back by an hour: new events were delivered meanwhile, and the rest when it was right again",
		func(w *world) {
			w.server = testenv.Server(w.t, nil)
			clock := testenv.FakeClock(w.t, w.server)
			w.run(setting{url: w.server.URL()})
			w.expect.Skew = 2 * time.Hour
			w.expect.Slack = 2 * time.Hour
			l := w.load(32)
			l.more(300)
			clock.Set(-time.Hour)
			w.did("the database's clock steps back by an hour")
			w.delivered(300)
			l.more(300)
			clock.Set(0)
			w.did("the database's clock is right again")
			w.delivered(300)
		})
})

// wrongBy reports that no request to the destination tells a time that was
// about as wrong.
func (w *world) wrongBy(ahead time.Duration) {
	w.t.Helper()
	for _, r := range w.sink.Requests() {
		seconds, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		if off := time.Unix(seconds, 0).Sub(r.Time) - ahead; off.Abs() < time.Minute {
			return
		}
	}
	w.t.Errorf("no worker's clock was wrong by %s", ahead)
}

// delivered waits until the destination has got further requests.
func (w *world) delivered(n int) {
	w.t.Helper()
	start := w.history.Receipts()
	w.until(func() error {
		if got := w.history.Receipts() - start; got < n {
			return fmt.Errorf("%d further requests came, want %d", got, n)
		}
		return nil
	})
}
