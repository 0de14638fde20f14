package faults

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/invariant"
	"github.com/ackrail/ackrail/internal/rig"
)

const (
	// pace is how long a sender waits between requests.
	pace = 20 * time.Millisecond
	// insistence is how long a sender tries to get a webhook acknowledged.
	insistence = time.Minute
	// Every so many webhooks a sender sends one once more, and a forged one.
	everyDuplicate = 8
	everyForgery   = 16
)

// load is a group of senders. Each sends one webhook after the other, each
// again until it is acknowledged, as those do whose events must not get lost;
// in between it sends some once more, and some with a wrong signature.
type load struct {
	w      *world
	sender *rig.Sender
	// stop ends the senders after their current webhook, abandon at once.
	stop, abandon func()
	stopped       <-chan struct{}
	abandoned     <-chan struct{}
	running       sync.WaitGroup

	mu           sync.Mutex
	acknowledged int
	refused      int
	// slowest is the longest that a refusal took.
	slowest time.Duration
	faults  []string
}

// load starts senders, which send until the row ends.
func (w *world) load(senders int) *load {
	w.t.Helper()
	stopped, stop := context.WithCancel(w.ctx)
	abandoned, abandon := context.WithCancel(w.ctx)
	l := &load{w: w, sender: rig.NewSender(w.t, senders), stop: stop, abandon: abandon, stopped: stopped.Done(), abandoned: abandoned.Done()}
	w.loads = append(w.loads, l)
	name := uuid.NewString()[:8]
	for n := range senders {
		l.start(func() { l.insistOnMany(fmt.Sprintf("%s-%d", name, n)) })
	}
	w.t.Cleanup(func() {
		l.stop()
		l.abandon()
		l.running.Wait()
	})
	return l
}

// start adds a sender.
func (l *load) start(send func()) { l.running.Go(send) }

// end lets the senders get their last 2xx, and fails the row with what they
// have to complain about.
func (l *load) end() {
	l.w.t.Helper()
	l.stop()
	l.running.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fault := range l.faults {
		l.w.t.Error(fault)
	}
	l.w.result.SlowestRefusal = max(l.w.result.SlowestRefusal, l.slowest)
}

// pause waits for a while, and reports false once the load is over.
func (l *load) pause(d time.Duration) bool {
	select {
	case <-l.stopped:
		return false
	case <-time.After(d):
		return true
	}
}

// insistOnMany sends webhooks until the load is over.
func (l *load) insistOnMany(sender string) {
	for i := 0; l.pause(pace); i++ {
		key := fmt.Sprintf("%s-%d", sender, i)
		body := fmt.Appendf(nil, `{"sender":%q,"event":%d}`, sender, i)
		if !l.insistOn(key, body) {
			return
		}
		if i%everyDuplicate == 1 {
			_, _ = l.w.send(l.sender, key, body) // the checker looks at the answer
		}
		if i%everyForgery == 3 {
			_, _ = l.w.forge(l.sender, key+"-forged", body)
		}
	}
}

// insistOn sends a webhook until it is acknowledged.
func (l *load) insistOn(key string, body []byte) bool {
	for deadline := time.Now().Add(insistence); time.Now().Before(deadline); {
		a, err := l.w.send(l.sender, key, body)
		if l.record(a, err) {
			return true
		}
		select {
		case <-l.abandoned:
			return false
		case <-time.After(pace):
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf("no 2xx for %s within %s", key, insistence))
	return false
}

func (l *load) record(a rig.Answer, err error) (done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		return false
	case a.Status/100 == 2:
		l.acknowledged++
		return true
	}
	l.refused++
	l.slowest = max(l.slowest, a.Took)
	if a.Status != http.StatusServiceUnavailable || a.RetryAfter == "" {
		l.faults = append(l.faults, fmt.Sprintf("answered with %d, Retry-After %q", a.Status, a.RetryAfter))
	}
	return false
}

// more waits until a number of further webhooks were acknowledged.
func (l *load) more(n int) {
	l.w.t.Helper()
	l.further(n, "acknowledged", func() int { return l.acknowledged })
}

// refusals waits until a number of further requests were refused.
func (l *load) refusals(n int) {
	l.w.t.Helper()
	l.further(n, "refused", func() int { return l.refused })
}

func (l *load) further(n int, what string, count func() int) {
	l.w.t.Helper()
	now := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return count()
	}
	start := now()
	l.w.until(func() error {
		if got := now() - start; got < n {
			return fmt.Errorf("%d further requests were %s, want %d", got, what, n)
		}
		return nil
	})
}

// returned waits for the first 202 after the database's return, which is now.
func (l *load) returned() {
	l.w.t.Helper()
	start := time.Now()
	l.more(1)
	l.w.result.Return = max(l.w.result.Return, time.Since(start))
}

// send sends a webhook and adds it to the history.
func (w *world) send(s *rig.Sender, key string, body []byte) (rig.Answer, error) {
	return w.record(s.Send, w.hook(), key, body, false)
}

// forge is send with a wrong signature.
func (w *world) forge(s *rig.Sender, key string, body []byte) (rig.Answer, error) {
	return w.record(s.Forge, w.hook(), key, body, true)
}

// record sends a webhook somewhere and adds it to the history.
func (w *world) record(send func(url, id string, body []byte) (rig.Answer, error), hook, key string, body []byte, forged bool) (rig.Answer, error) {
	sent := invariant.Send{
		Namespace: handler.Endpoint.Namespace, Endpoint: handler.Endpoint.Name,
		Key: key, Body: sha256.Sum256(body), At: time.Now(), Forged: forged,
	}
	a, err := send(hook, key, body)
	sent.Answered = time.Now()
	if err != nil {
		sent.Err = err.Error()
	} else {
		sent.Status, sent.EventID, sent.RetryAfter = a.Status, a.EventID, a.RetryAfter
	}
	w.history.Sent(sent)
	return a, err
}
