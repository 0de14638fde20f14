package faults

import (
	"net/http"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

var _ = Describe("the connection", func() {
	row("connection cut during COMMIT",
		"the ingress' connection was cut before a statement arrived, and after its commit before the reply: the answer was 503, and the next try was accepted as new, or found the event",
		func(w *world) {
			w.run(setting{})
			s := rig.NewSender(w.t, 1)
			w.accept(s, uuid.NewString()) // names are known now
			for range 5 {
				key := uuid.NewString()
				cut := w.toIngress.OnRequest(key, testenv.Cut)
				w.refuseAll(s, []string{key})
				w.await(cut, "the cut of a statement")
				w.did("connection cut before the statement arrived")
				w.want(s, key, http.StatusAccepted)

				key = uuid.NewString()
				cut = w.toIngress.OnReply(key, testenv.Cut)
				w.refuseAll(s, []string{key})
				w.await(cut, "the cut of a reply")
				w.did("connection cut after the commit")
				w.want(s, key, http.StatusOK)
			}
		}, short)

	row("connections cut under load",
		"all connections of ingress and worker were reset under the load of 64 senders, forty times",
		func(w *world) {
			in, worker := w.run(setting{})
			l := w.load(64)
			for range 40 {
				l.more(20)
				w.toIngress.Cut()
				w.toWorker.Cut()
				w.did("connections cut")
			}
			l.more(50)
			w.alive(in, worker)
		})

	row("database falls silent",
		"packets between the product and the database were lost without a reset, for 3 s under the load of 16 senders: 503 within a second or so, never a hang",
		func(w *world) {
			in, worker := w.run(setting{})
			l := w.load(16)
			l.more(50)
			w.toIngress.Freeze()
			w.toWorker.Freeze()
			w.did("connections silent")
			l.refusals(16)
			<-time.After(3 * time.Second) // the fault itself
			w.toIngress.Thaw()
			w.toWorker.Thaw()
			l.returned()
			l.more(50)
			w.alive(in, worker)
		}, short)

	row("worker cut off from the database past its lease",
		"packets between a worker and the database were lost with eight or more deliveries answered and not recorded, until the leases were over and another worker had delivered; what the first one had to say arrived then, and was refused",
		func(w *world) {
			_, first := w.run(setting{})
			l := w.load(16)
			l.more(50)
			w.holdOutcomes()
			w.holding(8)
			w.toWorker.Freeze()
			w.did("worker cut off")
			w.result.InFlight += w.heldBy(first)
			second := w.Pod(w.URL, "worker")
			w.pods = append(w.pods, second)
			l.more(50)
			l.end()
			w.until(w.Drained)
			w.toWorker.Hook(nil)
			w.toWorker.Release()
			w.toWorker.Thaw()
			w.did("worker back")
			w.alive(first, second)
		})
})
