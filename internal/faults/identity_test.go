package faults

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/rig"
)

var _ = Describe("the idempotency key", func() {
	row("duplicate storm",
		"1,000 copies of one webhook at once to two ingresses: one 202, 999 times 200 with the same id, one event, one delivery",
		func(w *world) {
			const copies = 1000
			w.run(setting{})
			answers := w.storm(copies, func(int) (key string, body []byte) { return "one-and-the-same", []byte(`{"zen":"Half measures"}`) })
			statuses, ids := tally(answers)
			if statuses[http.StatusAccepted] != 1 || statuses[http.StatusOK] != copies-1 || len(ids) != 1 {
				w.t.Errorf("answers %v with %d event ids, want one 202, %d times 200, one id", statuses, len(ids), copies-1)
			}
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
		"100 keys, each sent at once with ten bodies, to two ingresses: one 202 a key, nine times 200 with the same id, and the body that was accepted is the one that is delivered",
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
				if statuses, ids := tally(copies); statuses[http.StatusAccepted] != 1 || statuses[http.StatusOK] != bodies-1 || len(ids) != 1 {
					w.t.Errorf("key %d: answers %v with %d event ids, want one 202, %d times 200, one id", k, statuses, len(ids), bodies-1)
				}
			}
			w.until(w.Drained)
			requests := w.sink.Requests()
			if len(requests) != keys {
				w.t.Errorf("the destination got %d requests, want %d", len(requests), keys)
			}
			for _, r := range requests {
				if accepted[r.ID()] != sha256.Sum256(r.Body) {
					w.t.Errorf("%s was delivered with the body %s, which is not the one that was accepted", r.ID(), r.Body)
				}
			}
		})
})

// storm sends webhooks at once, alternately to the ingress and to a second
// one, and returns the answers in their order.
func (w *world) storm(n int, webhook func(i int) (key string, body []byte)) []rig.Answer {
	w.t.Helper()
	second := w.Ingress(0, w.toIngress.URL())
	w.pods = append(w.pods, second)
	s := rig.NewSender(w.t, n)
	answers, errs := make([]rig.Answer, n), make([]error, n)
	var senders sync.WaitGroup
	for i := range n {
		key, body := webhook(i)
		hook := w.hook()
		if i%2 == 1 {
			hook = second.URL + hookPath
		}
		senders.Go(func() { answers[i], errs[i] = w.record(s.Send, hook, key, body, false) })
	}
	senders.Wait()
	w.did("storm of %d webhooks", n)
	for i, err := range errs {
		if err != nil {
			w.t.Errorf("webhook %d: %v", i, err)
		}
	}
	return answers
}

func tally(answers []rig.Answer) (statuses map[int]int, ids map[string]bool) {
	statuses, ids = map[int]int{}, map[string]bool{}
	for _, a := range answers {
		statuses[a.Status]++
		ids[a.EventID] = true
	}
	return statuses, ids
}
