package faults

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/rig"
)

var _ = Describe("the idempotency key", func() {
	row("duplicate storm",
		"1,000 copies of one webhook at once to two ingresses: one 202, 200 with the same id for all others, one event, one delivery",
		func(w *world) {
			const copies = 1000
			w.run(setting{})
			answers := w.storm(copies, func(int) (key string, body []byte) { return "one-and-the-same", []byte(`{"zen":"Half measures"}`) })
			w.oneOf(answers)
			w.until(w.Drained)
			for what, query := range map[string]string{"events": "SELECT count(*) FROM event", "deliveries": "SELECT count(*) FROM settled"} {
				if n := w.Number(query); n != 1 {
					w.t.Errorf("%d %s, want 1", n, what)
				}
			}
			if n := len(w.sink.Requests()); n != 1 {
				w.t.Errorf("the destination got %d requests, want 1", n)
			}
		}, short)

	row("key reused with other bodies",
		"100 keys, each sent at once with ten bodies, to two ingresses: one 202 a key, 200 with the same id for the others, and the body that was accepted is the one that is delivered",
		func(w *world) {
			const keys, bodies = 100, 10
			w.run(setting{})
			prefix := uuid.NewString()
			answers := w.storm(keys*bodies, func(i int) (key string, body []byte) {
				return fmt.Sprintf("%s-%d", prefix, i%keys), fmt.Appendf(nil, `{"variant":%d}`, i/keys)
			})
			accepted := map[string][sha256.Size]byte{}
			for k := range keys {
				var copies []rig.Answer
				for b := range bodies {
					a := answers[b*keys+k]
					copies = append(copies, a)
					if a.Status == http.StatusAccepted {
						accepted[a.EventID] = sha256.Sum256(fmt.Appendf(nil, `{"variant":%d}`, b))
					}
				}
				w.oneOf(copies)
			}
			w.until(w.Drained)
			requests := w.sink.Requests()
			if len(requests) != keys {
				w.t.Errorf("the destination got %d requests, want %d", len(requests), keys)
			}
			for _, r := range requests {
				if want, known := accepted[r.ID()]; known && want != sha256.Sum256(r.Body) {
					w.t.Errorf("%s was delivered with the body %s, which is not the one that was accepted", r.ID(), r.Body)
				}
			}
		})
})

// storm sends webhooks at once, alternately to the ingress and to a second
// one, each again until it is acknowledged, and returns the last answers in the
// order of the webhooks.
func (w *world) storm(n int, webhook func(i int) (key string, body []byte)) []rig.Answer {
	w.t.Helper()
	second := w.Ingress(0, w.toIngress.URL())
	w.pods = append(w.pods, second)
	s := rig.NewSender(w.t, n)
	answers := make([]rig.Answer, n)
	var senders sync.WaitGroup
	for i := range n {
		key, body := webhook(i)
		hook := w.hook()
		if i%2 == 1 {
			hook = second.URL + hookPath
		}
		senders.Go(func() {
			for deadline := time.Now().Add(insistence); time.Now().Before(deadline); <-time.After(pace) {
				answers[i], _ = w.record(s.Send, hook, key, body, false)
				if answers[i].Status/100 == 2 {
					return
				}
			}
		})
	}
	senders.Wait()
	w.did("storm of %d webhooks", n)
	return answers
}

// oneOf checks that of webhooks with one key one was accepted as new. Nobody
// knows which if its answer came too late on a busy machine.
func (w *world) oneOf(answers []rig.Answer) {
	w.t.Helper()
	statuses, ids := map[int]int{}, map[string]bool{}
	for _, a := range answers {
		statuses[a.Status]++
		ids[a.EventID] = true
	}
	if statuses[http.StatusAccepted] > 1 || statuses[http.StatusAccepted]+statuses[http.StatusOK] != len(answers) || len(ids) != 1 {
		w.t.Errorf("answers %v with %d event ids, want one 202, 200 for the others, one id", statuses, len(ids))
	}
}
