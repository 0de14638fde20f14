package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	defaultMaxConnections = 10_000
	defaultRequestTimeout = 30 * time.Second

	readHeaderTimeout = 5 * time.Second
	// answerTimeout is what is left to write an answer when a request used
	// up all its time: room for the 408.
	answerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 32 << 10
)

// ServerOptions bound a Server. Zero values take the defaults.
type ServerOptions struct {
	// MaxConnections is how many connections may be open at once, 10,000 by
	// default. Further ones wait in the system's backlog until one closes;
	// an idle one does so after two minutes.
	MaxConnections int
	// RequestTimeout bounds the arrival of a whole request, 30 s by default.
	// One that is slower gets 408 and its connection is closed.
	RequestTimeout time.Duration
	// Logger gets what net/http has to say; required.
	Logger *slog.Logger
}

// Server serves a Handler over HTTP/1.1, with bounds on time, headers and
// connections.
type Server struct {
	http     *http.Server
	slots    chan struct{}
	draining atomic.Bool
}

// NewServer prepares a server for a handler.
func NewServer(h *Handler, o ServerOptions) *Server {
	if o.MaxConnections == 0 {
		o.MaxConnections = defaultMaxConnections
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = defaultRequestTimeout
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	slots := make(chan struct{}, o.MaxConnections)
	s := &Server{slots: slots}
	s.http = &http.Server{
		Handler:                      s.parting(h),
		Protocols:                    protocols,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            min(readHeaderTimeout, o.RequestTimeout),
		ReadTimeout:                  o.RequestTimeout,
		// Counted from the end of the header, so it covers the body.
		WriteTimeout:   o.RequestTimeout + answerTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ConnState:      release(slots),
		ErrorLog:       slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}
	return s
}

// Drain has each further answer end its connection, so that senders move to
// other servers one request at a time. Shutdown would close connections that
// are idle, and lose what a sender is just putting on one: a POST, which
// clients do not repeat by themselves. It should be called when readiness goes
// off, and may be called more than once.
func (s *Server) Drain() { s.draining.Store(true) }

func (s *Server) parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Serve answers on a listener, which it closes, until Shutdown, and then
// returns nil. Errors of accepting that pass, such as too many open files,
// are waited out. A server serves once.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(newLimiter(l, s.slots))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving webhooks: %w", err)
}

// Shutdown ends the server: it takes no more connections, closes those that
// are idle, and has the requests under way answered, each with the word that
// its connection closes. Those that are not done when the context ends are
// cut off, which is the error. Drain should have come first, long enough ago
// that no new requests are sent here and no connection is in use.
func (s *Server) Shutdown(ctx context.Context) error {
	s.http.SetKeepAlivesEnabled(false)
	err := s.http.Shutdown(ctx)
	if err == nil {
		return nil
	}
	_ = s.http.Close() // its error would be about a socket that is gone anyway
	return fmt.Errorf("shutting down with requests under way: %w", err)
}
