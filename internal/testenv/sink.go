package testenv

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// Request is what a Sink received.
type Request struct {
	Time   time.Time // when its body had arrived
	Method string
	URI    string // path and query
	Header http.Header
	Body   []byte
}

// ID is the webhook-id, the identity that stays the same when an event is delivered again.
func (r Request) ID() string { return r.Header.Get("webhook-id") }

// Sink is an HTTP destination on loopback that records what it gets and behaves as a test wants it to. Like a good
// consumer it keeps a table of processed ids: a success for an id that is in there has no second effect. Its methods
// may be called from several goroutines.
type Sink struct {
	url string

	mu        sync.Mutex
	handler   http.Handler
	requests  []Request
	processed map[string]int
	closed    bool
	handlers  sync.WaitGroup // added to unless closed
}

// NewSink starts a sink that answers 204. It is closed when the test ends, and the requests that it then still holds
// are cut off.
func NewSink(t testing.TB) *Sink {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	s := &Sink{
		url:       "http://" + listener.Addr().String(),
		handler:   Status(http.StatusNoContent),
		processed: map[string]int{},
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // clients that break off are what tests do
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		if err := server.Close(); err != nil {
			t.Errorf("testenv: %v", err)
		}
		serving.Wait()
		s.handlers.Wait()
	})
	return s
}

// URL is the sink's address, without a path.
func (s *Sink) URL() string { return s.url }

// Handle makes h answer the requests that come from now on. h can read the body.
func (s *Sink) Handle(h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = h
}

// Requests returns what has arrived so far, in order. A request whose body did not arrive whole is not there.
func (s *Sink) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Processed returns, by webhook-id, how often a 2xx was answered. The number of ids is the number of effects; a count
// above 1 means that an event arrived again and was recognised.
func (s *Sink) Processed() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.processed)
}

// WaitFor waits until cond is content with the requests so far, and fails the test with cond's last error after the
// timeout. It must be called from the test's own goroutine.
func (s *Sink) WaitFor(t testing.TB, timeout time.Duration, cond func([]Request) error) {
	t.Helper()
	Eventually(t, timeout, func() error { return cond(s.Requests()) })
}

func (s *Sink) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request := Request{Time: time.Now(), Method: r.Method, URI: r.RequestURI, Header: r.Header.Clone(), Body: body}
	handler := s.record(request)
	if handler == nil {
		panic(http.ErrAbortHandler)
	}
	defer s.handlers.Done()
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := &answer{ResponseWriter: w, success: func() { s.process(request.ID()) }}
	handler.ServeHTTP(answer, r)
	answer.begin(http.StatusOK) // what net/http answers for a handler that did not
}

// record returns the handler for a request, which must tell s.handlers when it is done; nil when the sink is closed.
func (s *Sink) record(request Request) http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.handlers.Add(1)
	s.requests = append(s.requests, request)
	return s.handler
}

func (s *Sink) process(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processed[id]++
}

// answer notices success before the client can.
type answer struct {
	http.ResponseWriter
	begun   bool
	success func()
}

func (a *answer) begin(code int) {
	if a.begun || code < 200 { // 1xx are not the answer yet
		return
	}
	a.begun = true
	if code < 300 {
		a.success()
	}
}

func (a *answer) WriteHeader(code int) {
	a.begin(code)
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(p []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush, and set deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Status answers with a status and an empty body.
func Status(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}

// After has next answer when d has passed. If the client goes away before, there is no answer.
func After(d time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// Block has next answer once release was called, which may be called more than once. If the client goes away before,
// there is no answer.
func Block(next http.Handler) (handler http.Handler, release func()) {
	released := make(chan struct{})
	handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-released:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
	return handler, sync.OnceFunc(func() { close(released) })
}
