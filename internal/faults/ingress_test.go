package faults

import (
	"bytes"
	"fmt"
	"net/http"
	"syscall"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

var _ = Describe("the ingress", func() {
	row("ingress killed in the middle of a batch",
		"SIGKILL to the ingress under the load of 64 senders, five times while a batch was on its way to the database and five times whenever; then another one on the same port",
		func(w *world) {
			in, _ := w.run(setting{})
			l := w.load(64)
			for i := range 10 {
				l.more(40)
				if i%2 == 0 {
					w.await(w.holdBatch(w.toIngress), "a batch of several events")
				}
				in.Kill()
				w.did("ingress killed")
				w.toIngress.Release()
				in = w.ingress()
			}
			l.more(40)
		}, short)

	row("ingress killed between COMMIT and answer",
		"the reply to a commit was held back and the ingress killed; the sender's next try found the event",
		func(w *world) {
			in, _ := w.run(setting{})
			s := rig.NewSender(w.t, 1)
			w.accept(s, uuid.NewString()) // names are known now
			for range 5 {
				key := uuid.NewString()
				held := w.toIngress.OnReply(key, testenv.Hold)
				unanswered := make(chan error, 1)
				go func() {
					_, err := w.send(s, key, body(key))
					unanswered <- err
				}()
				w.await(held, "the commit's reply")
				in.Kill()
				w.did("ingress killed with %s committed and not answered", key)
				w.toIngress.Release()
				if err := <-unanswered; err == nil {
					w.t.Error("it was answered all the same")
				}
				in = w.ingress()
				w.want(s, key, http.StatusOK)
			}
		}, short)

	row("ingress told to end under load",
		"SIGTERM to the ingress under the load of 64 senders five times: it answered what it had and ended with code 0",
		func(w *world) {
			in, _ := w.run(setting{})
			l := w.load(64)
			for range 5 {
				l.more(100)
				w.did("SIGTERM to the ingress")
				if code := in.Stop(); code != 0 {
					w.t.Errorf("it ended with code %d", code)
				}
				in = w.ingress()
			}
			l.more(100)
		})

	row("second SIGTERM to the ingress",
		"SIGTERM twice while the reply to a commit was held back: it ended at once, and the sender's next try found the event",
		func(w *world) {
			in, _ := w.run(setting{})
			s := rig.NewSender(w.t, 1)
			w.accept(s, uuid.NewString())
			key := uuid.NewString()
			held := w.toIngress.OnReply(key, testenv.Hold)
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				_, _ = w.send(s, key, body(key)) // 503 or nothing, whichever came first
			}()
			w.await(held, "the commit's reply")
			in.Signal(syscall.SIGTERM)
			in.Unready()
			in.Signal(syscall.SIGTERM)
			w.did("SIGTERM twice to the ingress")
			w.await(in.Ended(), "the end of the ingress")
			w.await(answered, "the answer")
			w.toIngress.Release()
			w.ingress()
			w.want(s, key, http.StatusOK)
		})
})

// body is the body of a webhook, which repeats its key.
func body(key string) []byte { return fmt.Appendf(nil, `{"key":%q}`, key) }

// want sends a webhook and wants it to be answered with a status.
func (w *world) want(s *rig.Sender, key string, status int) rig.Answer {
	w.t.Helper()
	a, err := w.send(s, key, body(key))
	if err != nil {
		w.t.Fatal(err)
	}
	if a.Status != status {
		w.t.Fatalf("%s was answered with %d, want %d", key, a.Status, status)
	}
	return a
}

// accept sends a webhook, which must be accepted as new, and returns the
// event's id.
func (w *world) accept(s *rig.Sender, key string) string {
	w.t.Helper()
	return w.want(s, key, http.StatusAccepted).EventID
}

// holdBatch has a proxy keep the next statement that brings several events to
// the database from arriving, and closes the channel when it does.
func (w *world) holdBatch(p *testenv.Proxy) <-chan struct{} {
	held := make(chan struct{})
	done := false
	p.Hook(func(c testenv.Chunk) testenv.Action {
		if done || c.Direction != testenv.ToServer || bytes.Count(c.Data, []byte(`{"sender":`)) < 2 {
			return testenv.Forward
		}
		done = true
		close(held)
		return testenv.Hold
	})
	return held
}
