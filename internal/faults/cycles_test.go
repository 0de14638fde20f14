package faults

import (
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/rig"
)

var _ = Describe("everything", func() {
	row("100 kills of everything",
		"SIGKILL to the ingress 40 times, to a worker 40 times and to the postmaster 20 times, in random order and back at once, under the load of 32 senders, with two workers",
		func(w *world) {
			in, first := w.run(setting{})
			workers := []*rig.Pod{first, w.worker()}
			l := w.load(32)
			random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
			w.history.Did("order of kills from the seed %d", GinkgoRandomSeed())
			for _, kill := range random.Perm(100) {
				l.more(20)
				switch {
				case kill < 40:
					in.Kill()
					w.did("ingress killed")
					in = w.ingress()
				case kill < 80:
					i := kill % 2
					w.killWorker(workers[i])
					workers[i] = w.worker()
				default:
					w.killPostmaster(workers)
					l.returned()
				}
			}
			l.more(20)
			w.redelivered = false // the database was away as well
		}, NodeTimeout(12*time.Minute))
})

// killPostmaster kills the server and brings it back. What the workers hold
// meanwhile is in flight too.
func (w *world) killPostmaster(workers []*rig.Pod) {
	w.t.Helper()
	if err := w.server.Kill(); err != nil {
		w.t.Fatal(err)
	}
	w.did("postmaster killed")
	w.restart()
	for _, worker := range workers {
		w.result.InFlight += w.heldBy(worker)
	}
}
