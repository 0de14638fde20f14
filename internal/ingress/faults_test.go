package ingress_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/ingress"
	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// within is a second, and half of one for a machine that is busy.
const within = 1500 * time.Millisecond

// refusedInTime sends what must be refused for now, in time.
func (r *rig) refusedInTime(t *testing.T, q *request, text string) {
	t.Helper()
	began := time.Now()
	got := r.send(t, q)
	if took := time.Since(began); took > within {
		t.Errorf("answered after %s", took)
	}
	if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "1" || got.Body != refusal(text) {
		t.Errorf("answer %+v, want 503 with Retry-After", got)
	}
}

func TestDatabaseThatIsNotThere(t *testing.T) {
	port, err := postgres.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	r := start(t, "postgres://nobody:hidden@"+address+"/nothing?sslmode=disable", nil)
	r.refusedInTime(t, signed(t, "github", []byte("{}")), "unavailable")
	if n := r.requests(t, "github", "unavailable"); n != 1 {
		t.Errorf("counted %v times, want once", n)
	}
	if n := r.metric(t, "ackrail_ingress_ack_seconds", "github", "test"); n != 0 {
		t.Errorf("%v acks observed, want none", n)
	}
	if n := len(r.logs.with(t, "Could not take a request")); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
	if strings.Contains(r.logs.String(), "hidden") {
		t.Error("the log has the database's password")
	}
}

func TestDatabaseThatDiesAndReturns(t *testing.T) {
	server := testenv.Server(t, map[string]string{"fsync": "off"})
	migrate(t, server.URL())
	r := start(t, server.URL(), nil)
	r.accept(t, signed(t, "github", []byte("{}")))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	lost := signed(t, "github", []byte("{}"))
	for range 3 {
		r.refusedInTime(t, lost, "unavailable")
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.eventually(t, lost, http.StatusAccepted)
}

func TestReadOnlyDatabase(t *testing.T) {
	url := database(t)
	r := start(t, url+"&default_transaction_read_only=on", nil)
	r.refusedInTime(t, signed(t, "github", []byte("{}")), "unavailable")
}

func TestDatabaseWithoutASchema(t *testing.T) {
	r := start(t, testenv.Schema(t), nil)
	r.refusedInTime(t, signed(t, "github", []byte("{}")), "unavailable")
}

func TestDatabaseThatHangs(t *testing.T) {
	proxy := testenv.NewProxy(t, database(t))
	r := start(t, proxy.URL(), func(s *setup) { s.enqueuer.FlushTimeout = 2 * time.Second })
	r.accept(t, signed(t, "github", []byte("{}")))
	proxy.Freeze(testenv.ToServer, testenv.ToClient)
	q := signed(t, "github", []byte("{}"))
	r.refusedInTime(t, q, "unavailable")
	proxy.Thaw()
	// It may have been stored after all: the sender cannot know, and its
	// next try says so.
	testenv.Eventually(t, 10*time.Second, func() error {
		if got := r.send(t, q); got.Status != http.StatusAccepted && got.Status != http.StatusOK {
			return fmt.Errorf("answer %+v", got)
		}
		return nil
	})
	if n := r.stored(t); n != 2 {
		t.Errorf("%d deliveries, want 2", n)
	}
}

// An answer that is lost with its connection is no reason to promise anything.
func TestConnectionCutDuringCommit(t *testing.T) {
	proxy := testenv.NewProxy(t, database(t))
	r := start(t, proxy.URL(), nil)
	r.accept(t, signed(t, "github", []byte("{}")))
	q := signed(t, "github", []byte("{}"))
	hit := proxy.OnReply(q.header.Get("X-GitHub-Delivery"), testenv.Cut)
	r.refusedInTime(t, q, "unavailable")
	<-hit
	testenv.Eventually(t, 10*time.Second, func() error {
		if got := r.send(t, q); got.Status != http.StatusOK {
			return fmt.Errorf("answer %+v, want 200: it was committed", got)
		}
		return nil
	})
}

func TestFullQueue(t *testing.T) {
	proxy := testenv.NewProxy(t, database(t))
	r := start(t, proxy.URL(), func(s *setup) {
		s.enqueuer.Flushers, s.enqueuer.MaxWaiting, s.enqueuer.FlushTimeout = 1, 1, 2*time.Second
	})
	r.accept(t, signed(t, "none", []byte("x")))
	proxy.Freeze(testenv.ToServer, testenv.ToClient)
	// One is with the flusher, one waits, the third finds no room.
	replies := make(chan reply, 3)
	for range 3 {
		q := signed(t, "none", []byte("x"))
		go func() {
			got, err := r.try(context.Background(), q)
			if err != nil {
				got.Body = err.Error()
			}
			replies <- got
		}()
	}
	overloaded := 0
	for range 3 {
		got := <-replies
		if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "1" {
			t.Errorf("answer %+v, want 503 with Retry-After", got)
		}
		if got.Body == refusal("overloaded") {
			overloaded++
		}
	}
	if overloaded == 0 {
		t.Error("nobody was told that the queue is full")
	}
	if n := r.requests(t, "none", "overloaded"); n != float64(overloaded) {
		t.Errorf("counted %v times, want %d", n, overloaded)
	}
	proxy.Thaw()
	r.eventually(t, signed(t, "none", []byte("x")), http.StatusAccepted)
}

// What has arrived in full is stored also if its sender does not wait: not
// all of them come again.
func TestSenderThatHangsUp(t *testing.T) {
	proxy := testenv.NewProxy(t, database(t))
	r := start(t, proxy.URL(), func(s *setup) {
		s.options.AckTimeout, s.enqueuer.Flushers = 10*time.Second, 1
	})
	r.accept(t, signed(t, "none", []byte("x")))
	proxy.Freeze(testenv.ToServer, testenv.ToClient)
	// The first keeps the flusher busy; the second waits when it hangs up.
	for i, size := range []float64{1, 2} {
		w := r.dial(t)
		w.write(t, header(signed(t, "none", nil), "Content-Length: 1")+"x")
		testenv.Eventually(t, 5*time.Second, func() error {
			if r.metric(t, "ackrail_ingress_inflight_bytes") != size {
				return fmt.Errorf("request %d has not arrived", i)
			}
			return nil
		})
		w.Close()
	}
	r.send(t, &request{method: http.MethodGet, path: "/"}) // time for the hang-up to be noticed
	proxy.Thaw()
	testenv.Eventually(t, 10*time.Second, func() error {
		if n := r.stored(t); n != 3 {
			return fmt.Errorf("%d deliveries, want 3", n)
		}
		return nil
	})
}

// However many copies race, the first is new and the others know its id.
func TestIdenticalRequestsAtOnce(t *testing.T) {
	r := start(t, database(t), nil)
	const copies = 200
	q := signed(t, "github", []byte(`{"a":1}`))
	replies := make(chan reply, copies)
	begin := make(chan struct{})
	for range copies {
		go func() {
			<-begin
			got, err := r.try(context.Background(), q)
			if err != nil {
				got.Body = err.Error()
			}
			replies <- got
		}()
	}
	close(begin)
	statuses := map[int]int{}
	ids := map[event.ID]int{}
	for range copies {
		got := <-replies
		statuses[got.Status]++
		if got.Status != http.StatusAccepted && got.Status != http.StatusOK {
			t.Errorf("answer %+v", got)
			continue
		}
		_, id := receipt(t, got)
		ids[id]++
	}
	if statuses[http.StatusAccepted] != 1 || statuses[http.StatusOK] != copies-1 {
		t.Errorf("statuses %v, want one 202 and %d times 200", statuses, copies-1)
	}
	if len(ids) != 1 {
		t.Errorf("%d ids, want 1", len(ids))
	}
	if n := r.stored(t); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
	if n := r.metric(t, "ackrail_ingress_inflight_bytes"); n != 0 {
		t.Errorf("%v bytes in flight after all answers", n)
	}
}

// panicking stands for a mistake in this program.
type panicking struct{}

func (panicking) Enqueue(context.Context, store.Submission) (store.Receipt, error) {
	panic("mistake")
}

func TestPanicIsUnavailable(t *testing.T) {
	r := start(t, testenv.Schema(t), func(s *setup) { s.options.Enqueuer = panicking{} })
	for range 2 {
		r.refusedInTime(t, signed(t, "github", []byte("{}")), "unavailable")
	}
	if n := len(r.logs.with(t, "Recovered from a panic")); n != 2 {
		t.Errorf("%d panics logged, want 2", n)
	}
	if n := r.metric(t, "ackrail_ingress_inflight_bytes"); n != 0 {
		t.Errorf("%v bytes stay in flight", n)
	}
}

var _ ingress.Enqueuer = (*store.Enqueuer)(nil)
