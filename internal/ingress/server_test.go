package ingress_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ackrail/ackrail/internal/ingress"
	"github.com/ackrail/ackrail/internal/testenv"
)

// wire is a connection on which a test writes what a client would not.
type wire struct {
	net.Conn
	in *bufio.Reader
}

func (r *rig) dial(t *testing.T) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &wire{conn, bufio.NewReader(conn)}
}

// header returns the head of a request as it goes over the wire.
func header(q *request, extra ...string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: test\r\n", q.method, q.path)
	_ = q.header.Write(&b)
	for _, line := range extra {
		b.WriteString(line + "\r\n")
	}
	return b.String() + "\r\n"
}

func (w *wire) write(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

func (w *wire) read(t *testing.T) reply {
	t.Helper()
	in, err := http.ReadResponse(w.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Body.Close()
	body, err := io.ReadAll(in.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{in.StatusCode, in.Header, string(body), in.Close}
}

// ended asserts that the server closed the connection.
func (w *wire) ended(t *testing.T) {
	t.Helper()
	if b, err := w.in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %q, %v: the connection is open", b, err)
	}
}

func TestSlowBody(t *testing.T) {
	r := start(t, database(t), func(s *setup) { s.server.RequestTimeout = 300 * time.Millisecond })
	for _, c := range []struct {
		name, head, part string
	}{
		{"declared", "Content-Length: 100", "x"},
		{"chunked", "Transfer-Encoding: chunked", "5\r\nxx"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := r.dial(t)
			w.write(t, header(signed(t, "none", nil), c.head)+c.part)
			got := w.read(t)
			if got.Status != http.StatusRequestTimeout || got.Body != refusal("request timeout") || !got.Close {
				t.Errorf("answer %+v, want 408 and the end of the connection", got)
			}
			w.ended(t)
		})
	}
	if n := r.requests(t, "none", "timeout"); n != 2 {
		t.Errorf("counted %v times, want 2", n)
	}
	if n := r.stored(t); n != 0 {
		t.Errorf("%d events stored", n)
	}
}

func TestSlowHeader(t *testing.T) {
	r := start(t, database(t), func(s *setup) { s.server.RequestTimeout = 300 * time.Millisecond })
	w := r.dial(t)
	w.write(t, "POST /hooks/none HTTP/1.1\r\nHost: test\r\nX-Slow: ")
	w.ended(t)
}

func TestBodyThatBreaksOff(t *testing.T) {
	r := start(t, database(t), nil)
	for _, c := range []struct {
		name, head, part string
		cut              bool
	}{
		{"declared, cut", "Content-Length: 100", "x", true},
		{"chunked, cut", "Transfer-Encoding: chunked", "5\r\nxx", true},
		{"chunked, malformed", "Transfer-Encoding: chunked", "zz\r\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			counted := r.requests(t, "none", "bad_request")
			w := r.dial(t)
			w.write(t, header(signed(t, "none", nil), c.head)+c.part)
			if c.cut {
				if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			if got := w.read(t); got.Status != http.StatusBadRequest || got.Body != refusal("incomplete body") || !got.Close {
				t.Errorf("answer %+v, want 400 and the end of the connection", got)
			}
			if n := r.requests(t, "none", "bad_request"); n != counted+1 {
				t.Errorf("counted %v times, want once", n-counted)
			}
		})
	}
	if n := r.stored(t); n != 0 {
		t.Errorf("%d events stored", n)
	}
}

// A refusal that does not need the body does not wait for it.
func TestRefusedBeforeTheBodyArrives(t *testing.T) {
	r := start(t, database(t), nil)
	for _, c := range []struct {
		name   string
		change func(*testing.T, *request)
		length int
		want   int
	}{
		{"unknown path", func(_ *testing.T, q *request) { q.path = "/" }, 10, 404},
		{"method", func(_ *testing.T, q *request) { q.method = http.MethodPut }, 10, 405},
		{"media type", set("Content-Type", "text/plain"), 10, 415},
		{"size", func(*testing.T, *request) {}, maxBody + 1, 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := signed(t, "github", nil)
			c.change(t, q)
			w := r.dial(t)
			w.write(t, header(q, fmt.Sprintf("Content-Length: %d", c.length)))
			if got := w.read(t); got.Status != c.want || !got.Close {
				t.Errorf("answer %+v, want %d and the end of the connection", got, c.want)
			}
		})
	}
}

func TestExpectContinue(t *testing.T) {
	r := start(t, database(t), nil)
	q := signed(t, "none", nil)
	w := r.dial(t)
	w.write(t, header(q, fmt.Sprintf("Content-Length: %d", maxBody+1), "Expect: 100-continue"))
	if got := w.read(t); got.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("answer %+v to an overlarge body, want 413 at once", got)
	}
	w = r.dial(t)
	w.write(t, header(q, "Content-Length: 1", "Expect: 100-continue"))
	if got := w.read(t); got.Status != http.StatusContinue {
		t.Fatalf("answer %+v, want 100", got)
	}
	w.write(t, "x")
	if got := w.read(t); got.Status != http.StatusAccepted {
		t.Errorf("answer %+v, want 202", got)
	}
}

func TestHeaderLimit(t *testing.T) {
	r := start(t, database(t), nil)
	q := signed(t, "none", []byte("x"))
	q.header.Set("X-Large", strings.Repeat("v", 40<<10))
	if got := r.send(t, q); got.Status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answer %+v, want 431", got)
	}
}

// Bodies that are under way may take so much memory and no more.
func TestInflightBudget(t *testing.T) {
	r := start(t, database(t), func(s *setup) { s.options.MaxInflightBytes = 2 * maxBody })
	reserved := func(want float64) {
		t.Helper()
		testenv.Eventually(t, 10*time.Second, func() error {
			if n := r.metric(t, "ackrail_ingress_inflight_bytes"); n != want {
				return fmt.Errorf("%v bytes in flight, want %v", n, want)
			}
			return nil
		})
	}
	const half = maxBody / 2
	declared, chunked := r.dial(t), r.dial(t)
	declared.write(t, header(signed(t, "none", nil), fmt.Sprintf("Content-Length: %d", maxBody))+strings.Repeat("x", half))
	reserved(maxBody)
	chunked.write(t, header(signed(t, "none", nil), "Transfer-Encoding: chunked")+fmt.Sprintf("%x\r\n", maxBody)+strings.Repeat("x", half))
	reserved(2 * maxBody)

	r.refusedInTime(t, signed(t, "github", []byte("{}")), "overloaded")
	if n := r.requests(t, "github", "overloaded"); n != 1 {
		t.Errorf("counted %v times, want once", n)
	}
	r.accept(t, signed(t, "none", nil)) // needs no memory

	declared.write(t, strings.Repeat("x", half))
	if got := declared.read(t); got.Status != http.StatusAccepted {
		t.Errorf("answer %+v, want 202", got)
	}
	reserved(maxBody)
	r.accept(t, signed(t, "github", []byte("{}")))
	chunked.Close()
	reserved(0)
}

// A body that grows out of the room that is left is refused in the middle,
// and gives back what it had.
func TestBodyOutgrowsTheBudget(t *testing.T) {
	r := start(t, database(t), func(s *setup) { s.options.MaxInflightBytes = maxBody })
	first := r.unfinished(t) // holds 2 bytes, so that a largest body has no room
	r.refusedInTime(t, signed(t, "none", make([]byte, maxBody)), "overloaded")
	first.write(t, "x")
	if got := first.read(t); got.Status != http.StatusAccepted {
		t.Errorf("answer %+v, want 202", got)
	}
	r.accept(t, signed(t, "none", make([]byte, maxBody)))
}

// Senders that declare large bodies and send nothing hold next to nothing, so
// they keep nobody out.
func TestSilentSendersKeepNobodyOut(t *testing.T) {
	r := start(t, database(t), func(s *setup) { s.options.MaxInflightBytes = 2 * maxBody })
	const silent = 8
	for range silent {
		w := r.dial(t)
		w.write(t, header(signed(t, "none", nil), fmt.Sprintf("Content-Length: %d", maxBody)))
	}
	testenv.Eventually(t, 10*time.Second, func() error {
		if n := r.metric(t, "ackrail_ingress_inflight_bytes"); n == 0 || n > silent*4096 {
			return fmt.Errorf("%v bytes are set aside", n)
		} else if n < silent*4096 {
			return fmt.Errorf("not all have arrived: %v bytes", n)
		}
		return nil
	})
	r.accept(t, signed(t, "github", []byte(`"`+strings.Repeat("x", maxBody-2)+`"`)))
}

// The budget is never less than what one request may take.
func TestBudgetFitsTheLargestBody(t *testing.T) {
	r := start(t, database(t), func(s *setup) { s.options.MaxInflightBytes = 1 })
	q := signed(t, "none", make([]byte, maxBody))
	q.chunked = true
	r.accept(t, q)
}

func TestConnectionLimit(t *testing.T) {
	r := start(t, database(t), func(s *setup) { s.server.MaxConnections = 1 })
	first, second := r.dial(t), r.dial(t)
	q := signed(t, "none", nil)
	first.write(t, header(q, "Content-Length: 0"))
	if got := first.read(t); got.Status != http.StatusAccepted {
		t.Fatalf("answer %+v, want 202", got)
	}
	second.write(t, header(q, "Content-Length: 0"))
	if err := second.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := second.in.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the second connection was served beside the first: %v", err)
	}
	if err := second.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if got := second.read(t); got.Status != http.StatusOK {
		t.Errorf("answer %+v, want 200", got)
	}
}

// A server at its limit stops serving when it is told to, and not only when
// some connection closes.
func TestShutdownAtTheConnectionLimit(t *testing.T) {
	r := start(t, database(t), func(s *setup) { s.server.MaxConnections = 1 })
	w := r.unfinished(t)
	down := make(chan error, 1)
	go func() { down <- r.server.Shutdown(context.Background()) }()
	select {
	case err := <-r.served:
		r.served <- err // for the cleanup
	case <-time.After(10 * time.Second):
		t.Error("Serve waits for room while the server shuts down")
	}
	w.write(t, "x")
	if got := w.read(t); got.Status != http.StatusAccepted {
		t.Errorf("answer %+v, want 202", got)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown returned %v", err)
	}
}

// exhausted is a listener that fails at first, as one does when the process
// has no file descriptors left.
type exhausted struct {
	net.Listener
	failures int
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestAcceptErrorsPass(t *testing.T) {
	with := unserved(t)
	handler, err := ingress.New(with.config, with.options)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{served: make(chan error, 1)}
	server := ingress.NewServer(handler, ingress.ServerOptions{Logger: with.options.Logger, MaxConnections: 1})
	r.serve(t, server, &exhausted{Listener: l, failures: 3})
	r.accepted(t, signed(t, "none", nil))
}

// unfinished sends a request but for the last byte of its body, and returns
// when the server is reading it.
func (r *rig) unfinished(t *testing.T) *wire {
	t.Helper()
	w := r.dial(t)
	w.write(t, header(signed(t, "none", nil), "Content-Length: 2")+"x")
	testenv.Eventually(t, 10*time.Second, func() error {
		if r.metric(t, "ackrail_ingress_inflight_bytes") != 2 {
			return errors.New("the request has not arrived")
		}
		return nil
	})
	return w
}

func TestDrain(t *testing.T) {
	r := start(t, database(t), nil)
	w := r.dial(t)
	again := func(closes bool) {
		t.Helper()
		w.write(t, header(signed(t, "none", nil), "Content-Length: 0"))
		if got := w.read(t); got.Status != http.StatusAccepted || got.Close != closes {
			t.Fatalf("answer %+v, want 202 and %v for the connection's end", got, closes)
		}
	}
	again(false)
	r.server.Drain()
	again(true)
	w.ended(t)
	w = r.dial(t)
	again(true)
}

func TestShutdown(t *testing.T) {
	r := start(t, database(t), nil)
	idle := r.dial(t)
	idle.write(t, header(signed(t, "none", nil), "Content-Length: 0"))
	if got := idle.read(t); got.Status != http.StatusAccepted {
		t.Fatalf("answer %+v, want 202", got)
	}
	w := r.unfinished(t)
	down := make(chan error, 1)
	go func() { down <- r.server.Shutdown(context.Background()) }()
	idle.ended(t)
	testenv.Eventually(t, 10*time.Second, func() error {
		conn, err := net.Dial("tcp", r.addr)
		if err == nil {
			conn.Close()
			return errors.New("new connections are taken")
		}
		return nil
	})
	select {
	case err := <-down:
		t.Fatalf("Shutdown returned %v before the request was answered", err)
	default:
	}
	w.write(t, "x")
	if got := w.read(t); got.Status != http.StatusAccepted || !got.Close {
		t.Errorf("answer %+v, want 202 and the end of the connection", got)
	}
	w.ended(t)
	if err := <-down; err != nil {
		t.Errorf("Shutdown returned %v", err)
	}
}

func TestShutdownIsBounded(t *testing.T) {
	r := start(t, database(t), nil)
	w := r.unfinished(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v, want its context's error", err)
	}
	w.ended(t)
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*setup)
	}{
		{"no secrets folder", "endpoint test/github: no folder for secrets is set", func(s *setup) { s.options.SecretsDir = "" }},
		{"unknown provider", `endpoint test/none: unknown provider "Other"`, func(s *setup) {
			s.config.Endpoints[3].Verification.Provider = "Other"
		}},
		{"prefix that no header can have", `endpoint test/hmac: prefix: "sha256 " has a character other than visible ASCII`, func(s *setup) {
			s.config.Endpoints[2].Verification.HMAC.Prefix = "sha256 "
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			with := unserved(t)
			c.change(with)
			_, err := ingress.New(with.config, with.options)
			if diff := cmp.Diff(c.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}
