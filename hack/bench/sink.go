package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// sink is a destination on this machine.
type sink struct {
	url      string
	requests atomic.Int64
	// arrived, if set, is told each request's event, from several goroutines.
	arrived func(event string)
	// hang: no request is answered before the row ends.
	hang bool

	server  *http.Server
	stopped chan struct{}
}

// sink starts a sink that answers everything with 204.
func (e *env) sink() (*sink, error) { return e.listen(&sink{}) }

// listen starts a sink that ends with the row.
func (e *env) listen(s *sink) (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.url = "http://" + l.Addr().String() + "/"
	s.stopped = make(chan struct{})
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(l) }()
	e.onEnd(func() {
		close(s.stopped)
		_ = s.server.Close()
	})
	return s, nil
}

// ServeHTTP takes a request.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.requests.Add(1)
	if s.arrived != nil {
		s.arrived(r.Header.Get("Webhook-Id"))
	}
	if s.hang {
		select {
		case <-s.stopped:
		case <-r.Context().Done():
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// wait waits until the sink has got so many requests.
func (s *sink) wait(ctx context.Context, n int64, limit time.Duration) error {
	for deadline := time.Now().Add(limit); s.requests.Load() < n; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return errors.New("what is due does not arrive")
		}
	}
	return nil
}
