package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

// history is what a group of senders did: every webhook is sent again until
// there is a 2xx for it.
type history struct {
	mu sync.Mutex
	// acknowledged maps idempotency keys to the event ids in their 2xx.
	acknowledged map[string]string
	// refused counts answers by status, broken those that never came.
	refused map[int]int
	broken  int
	// slowest is the longest that a refusal took.
	slowest time.Duration
	faults  []string
}

// accepted counts 2xx answers so far.
func (h *history) accepted() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acknowledged)
}

func (h *history) record(key string, a rig.Answer, err error) (done bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.broken++
		return false
	case a.Status/100 == 2:
		h.acknowledged[key] = a.EventID
		return true
	}
	h.refused[a.Status]++
	h.slowest = max(h.slowest, a.Took)
	if a.Status != http.StatusServiceUnavailable || a.RetryAfter == "" {
		h.faults = append(h.faults, fmt.Sprintf("answered with %d, Retry-After %q", a.Status, a.RetryAfter))
	}
	return false
}

// load runs senders until stop is closed and returns once each has a 2xx for
// its last webhook, or failed to get one in a minute.
func load(t *testing.T, senders int, url string, stop <-chan struct{}) (*history, *sync.WaitGroup) {
	t.Helper()
	h := &history{acknowledged: map[string]string{}, refused: map[int]int{}}
	s := rig.NewSender(t, senders)
	var running sync.WaitGroup
	for n := range senders {
		running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("%d-%d", n, i)
				body := fmt.Appendf(nil, `{"sender":%d,"event":%d}`, n, i)
				if !insist(h, s, url, key, body) {
					t.Errorf("no 2xx for %s within a minute", key)
					return
				}
			}
		})
	}
	return h, &running
}

// insist sends a webhook until it is acknowledged.
func insist(h *history, s *rig.Sender, url, key string, body []byte) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		a, err := s.Send(url, key, body)
		if h.record(key, a, err) {
			return true
		}
		<-time.After(20 * time.Millisecond)
	}
	return false
}

// verify checks that every acknowledged webhook is in the database once, under
// the id that was answered, and that no answer broke the contract.
func (h *history) verify(t *testing.T, l *rig.Look) {
	t.Helper()
	rows, err := l.Pool.Query(t.Context(), "SELECT idempotency_key, id::text FROM event")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	stored := map[string]string{}
	for rows.Next() {
		var key, id string
		if err := rows.Scan(&key, &id); err != nil {
			t.Fatal(err)
		}
		if other, twice := stored[key]; twice {
			t.Errorf("%s is stored twice, as %s and %s", key, other, id)
		}
		stored[key] = id
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for key, id := range h.acknowledged {
		if stored[key] != id {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d acknowledged events are not in the database under the id that was answered", lost, len(h.acknowledged))
	}
	for _, fault := range h.faults {
		t.Error(fault)
	}
	t.Logf("%d acknowledged, refused %v (the slowest after %s), %d answers never came", len(h.acknowledged), h.refused, h.slowest, h.broken)
}

// more waits until a number of further events were acknowledged.
func (h *history) more(t *testing.T, n int) {
	t.Helper()
	want := h.accepted() + n
	testenv.Eventually(t, time.Minute, func() error {
		if got := h.accepted(); got < want {
			return fmt.Errorf("%d events acknowledged, want %d", got, want)
		}
		return nil
	})
}

func TestIngressKilledTwentyTimesUnderLoad(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	r := rig.New(t, testenv.Schema(t), rig.Secrets(), rig.GitHub("github", sink.URL()))
	in := r.Ingress(0, r.URL)
	address, err := url.Parse(in.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	h, senders := load(t, 64, in.URL+"/hooks/test/github", stop)
	for range 20 {
		h.more(t, 50)
		in.Kill()
		in = r.Ingress(port, r.URL)
	}
	h.more(t, 50)
	close(stop)
	senders.Wait()
	h.verify(t, r.Look())
}

func TestPostgresKilledFiveTimesUnderLoad(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	server := testenv.Server(t, nil)
	r := rig.New(t, server.URL(), rig.Secrets(), rig.GitHub("github", sink.URL()))
	in, w := r.Ingress(0, r.URL), r.Worker(r.URL)
	stop := make(chan struct{})
	h, senders := load(t, 64, in.URL+"/hooks/test/github", stop)
	var slowest time.Duration
	for range 5 {
		h.more(t, 50)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		// Down long enough for every sender to be refused.
		testenv.Eventually(t, time.Minute, refusedFurther(h, 200))
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		h.more(t, 1)
		slowest = max(slowest, time.Since(back))
	}
	h.more(t, 50)
	close(stop)
	senders.Wait()
	if !in.Running() || !w.Running() {
		t.Errorf("ingress running: %v, worker running: %v", in.Running(), w.Running())
	}
	l := r.Look()
	h.verify(t, l)
	testenv.Eventually(t, time.Minute, l.Drained)
	delivered := sink.Processed()
	for key, id := range h.acknowledged {
		if delivered[id] == 0 {
			t.Errorf("%s was acknowledged as %s and never delivered", key, id)
		}
	}
	// The bounds are those of the contract with room for a loaded machine;
	// the figures are in the log.
	t.Logf("the slowest first 202 after the database's return took %s", slowest)
	if slowest > 10*time.Second {
		t.Errorf("the first 202 came %s after the database's return", slowest)
	}
	if h.slowest > 5*time.Second {
		t.Errorf("a refusal took %s", h.slowest)
	}
}

// refusedFurther returns a check for a number of further refusals.
func refusedFurther(h *history, n int) func() error {
	count := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.refused[http.StatusServiceUnavailable]
	}
	start := count()
	return func() error {
		if got := count() - start; got < n {
			return fmt.Errorf("%d refusals, want %d", got, n)
		}
		return nil
	}
}

func TestConnectionCutDuringCommit(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	r := rig.New(t, testenv.Schema(t), rig.Secrets(), rig.GitHub("github", sink.URL()))
	proxy := testenv.NewProxy(t, r.URL)
	in := r.Ingress(0, proxy.URL())
	target := in.URL + "/hooks/test/github"
	s := rig.NewSender(t, 1)
	s.Accepted(t, target, uuid.NewString(), []byte(`{}`)) // names are known now
	l := r.Look()
	for _, c := range []struct {
		name string
		// cut ends the connection around the commit of a key.
		cut func(key string) <-chan struct{}
		// committed: the database did its part.
		committed bool
	}{
		{"before the statement arrives", func(key string) <-chan struct{} { return proxy.OnRequest(key, testenv.Cut) }, false},
		{"after the commit, before its reply", func(key string) <-chan struct{} { return proxy.OnReply(key, testenv.Cut) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := uuid.NewString()
			happened := c.cut(key)
			a, err := s.Send(target, key, []byte(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			<-happened
			if a.Status != http.StatusServiceUnavailable || a.RetryAfter == "" {
				t.Errorf("answered with %d, Retry-After %q, want 503 with one: the outcome is unknown", a.Status, a.RetryAfter)
			}
			want := http.StatusAccepted
			if c.committed {
				want = http.StatusOK
			}
			again, err := s.Send(target, key, []byte(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			if again.Status != want {
				t.Errorf("sent again: answered with %d, want %d", again.Status, want)
			}
			if n := l.Number("SELECT count(*) FROM event WHERE idempotency_key = $1", key); n != 1 {
				t.Errorf("stored %d times, want once", n)
			}
		})
	}
}

// A database that stops answering without closing anything must not make a
// sender wait.
func TestDatabaseThatFallsSilent(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	r := rig.New(t, testenv.Schema(t), rig.Secrets(), rig.GitHub("github", sink.URL()))
	proxy := testenv.NewProxy(t, r.URL)
	in := r.Ingress(0, proxy.URL())
	target := in.URL + "/hooks/test/github"
	s := rig.NewSender(t, 8)
	s.Accepted(t, target, uuid.NewString(), []byte(`{}`))
	proxy.Freeze()
	var refused atomic.Int32
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			a, err := s.Send(target, uuid.NewString(), []byte(`{}`))
			switch {
			case err != nil:
				t.Error(err)
			case a.Status != http.StatusServiceUnavailable || a.RetryAfter == "":
				t.Errorf("answered with %d, want 503", a.Status)
			default:
				refused.Add(1)
				t.Logf("refused after %s", a.Took)
			}
		})
	}
	senders.Wait()
	proxy.Thaw()
	testenv.Eventually(t, time.Minute, func() error {
		a, err := s.Send(target, uuid.NewString(), []byte(`{}`))
		if err == nil && a.Status != http.StatusAccepted {
			err = fmt.Errorf("answered with %d", a.Status)
		}
		return err
	})
}
