package faults

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

var _ = Describe("the network", func() {
	row("database 200 ms away",
		"each way between the processes and the database took 200 ms more",
		func(w *world) {
			w.run(setting{})
			l := w.load(64)
			l.more(100)
			w.slow(testenv.Speed{Latency: 200 * time.Millisecond})
			l.more(500)
			w.slow(testenv.Speed{})
			l.more(100)
		})

	row("database behind 1 KB/s",
		"each connection to the database passed 1,000 bytes a second each way for 20 s",
		func(w *world) {
			w.run(setting{})
			l := w.load(16)
			l.more(100)
			w.slow(testenv.Speed{BytesPerSecond: 1000})
			w.last(20 * time.Second)
			w.slow(testenv.Speed{})
			l.returned()
			l.more(100)
		})

	row("worker cut off from the database",
		"the worker ran in a network of its own that lost all packets between it and the database, and none to the destination, for two leases; another worker took over",
		func(w *world) {
			w.begin(setting{})
			n := testenv.NewNetwork(w.t)
			toDatabase, toSink := n.Proxy(w.URL), n.Proxy(w.sink.URL())
			w.ingress()
			l := w.load(16)
			// The worker elsewhere has a configuration of its own.
			w.destination(toSink.URL())
			inside := w.PodAt(rig.Place{Host: n.Inside(), Command: n.Command}, toDatabase.URL(), "worker")
			w.pods = append(w.pods, inside)
			w.destination(w.sink.URL())
			l.more(200)
			n.Drop(toDatabase)
			w.did("worker cut off")
			w.last(lease)
			w.worker() // before that nobody could
			w.last(lease)
			n.Heal()
			l.more(200)
			if !inside.Running() {
				w.t.Error("the worker that was cut off has ended")
			}
		})
})

// slow gives the connections of all processes to the database a speed.
func (w *world) slow(s testenv.Speed) {
	w.t.Helper()
	w.toIngress.Slow(s)
	w.toWorker.Slow(s)
	if s != (testenv.Speed{}) {
		w.did("connections to the database: %s", fmt.Sprintf("%+v", s))
	}
}

// destination writes another address of the destination into the
// configuration, for the processes that begin from now on.
func (w *world) destination(url string) {
	w.t.Helper()
	w.Config.Endpoints[0].Destinations[0].HTTP.URL = url
	w.Write()
}
