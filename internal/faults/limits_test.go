package faults

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

var _ = Describe("limits", func() {
	row("ingress out of file descriptors",
		"the ingress could open no file and no connection more than it had for 5 s, while 200 further senders tried: it went on answering, and with 2xx again afterwards",
		func(w *world) {
			in, _ := w.run(setting{})
			l := w.load(16)
			l.more(100)
			lift := testenv.LimitFiles(w.t, in.PID(), testenv.OpenFiles(w.t, in.PID()))
			w.did("the ingress has no file descriptor left")
			late := w.load(200)
			w.last(5 * time.Second)
			lift()
			l.returned()
			l.more(100)
			late.more(400)
			if !in.Running() {
				w.t.Error("the ingress has ended")
			}
		})

	row("worker out of file descriptors",
		"the worker could open no more connections than it had, those to the database and the destination were cut, and new ones were refused it for 5 s",
		func(w *world) {
			_, worker := w.run(setting{})
			l := w.load(32)
			l.more(200)
			lift := testenv.LimitFiles(w.t, worker.PID(), 5) // fewer than it has
			w.toWorker.Cut()
			w.did("the worker has no file descriptor left")
			w.last(5 * time.Second)
			lift()
			l.more(100)
			if !worker.Running() {
				w.t.Error("the worker has ended")
			}
		})

	row("bursts of maximal bodies in little memory",
		"ingress and worker in a container of 256 MiB each got 2 bursts of 70 bodies of 1 MiB at once: they refused what did not fit with 503, and neither was killed",
		func(w *world) {
			w.begin(setting{endpoint: func(e *pipeline.Endpoint) {
				e.LeaseSeconds, e.Destinations[0].HTTP.TimeoutSeconds = 20, 10
			}})
			inMemory := testenv.NewMemory(w.t, 256<<20)
			workerMemory := testenv.NewMemory(w.t, 256<<20)
			in := w.PodAt(rig.Place{Command: inMemory.Command}, w.toIngress.URL(), "ingress",
				"--listen", fmt.Sprintf("127.0.0.1:%d", w.port), "--drain-delay", "0s")
			worker := w.PodAt(rig.Place{Command: workerMemory.Command}, w.toWorker.URL(), "worker")
			w.pods = append(w.pods, in, worker)
			l := w.load(4)
			for range 2 {
				w.burst(70)
				w.did("70 bodies of 1 MiB at once")
			}
			l.more(20)
			w.until(func() error {
				if n, err := w.TryNumber("SELECT count(*) FROM delivery WHERE size > 1000000"); n > 0 || err != nil {
					return fmt.Errorf("%d large deliveries are open (%w)", n, err)
				}
				return nil
			})
			for _, p := range []*rig.Pod{in, worker} {
				if !p.Running() {
					w.t.Errorf("the %s has ended", p.Role)
				}
			}
			AddReportEntry("memory", fmt.Sprintf("at most %d MiB of the ingress, %d MiB of the worker", inMemory.Peak()>>20, workerMemory.Peak()>>20))
		}, NodeTimeout(6*time.Minute)) // a slow disk has much to write
})

// burst has a number of senders each send a webhook with a body of 1 MiB, and
// again after a second, as Retry-After says, until it is acknowledged.
func (w *world) burst(n int) {
	w.t.Helper()
	s := rig.NewSender(w.t, n)
	s.Client.Timeout = 30 * time.Second
	var senders sync.WaitGroup
	filler := strings.Repeat("x", 1<<20-64)
	for range n {
		senders.Go(func() {
			key := uuid.NewString()
			body := fmt.Appendf(nil, `{"key":%q,"filler":"%s"}`, key, filler)
			for w.ctx.Err() == nil {
				if a, err := w.send(s, key, body); err == nil && a.Status/100 == 2 {
					return
				}
				<-time.After(time.Second)
			}
		})
	}
	senders.Wait()
}
