package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	readTimeout    = 10 * time.Second
	scrapeTimeout  = 20 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	// maxScrapes bounds the scrapes at once; Prometheus does one at a time.
	maxScrapes = 8
	// shutdownTimeout bounds how long a scrape under way holds up the end.
	shutdownTimeout = 5 * time.Second
)

// Server answers GET /healthz, /readyz and /metrics.
type Server struct {
	http  *http.Server
	ready atomic.Bool
}

// New prepares a server for the metrics of a registry, and adds those of the
// Go runtime and of the process to it unless they are there already. The
// server is not ready until SetReady says so.
func New(registry *prometheus.Registry, logger *slog.Logger) (*Server, error) {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		err := registry.Register(c)
		var already prometheus.AlreadyRegisteredError
		if err != nil && !errors.As(err, &already) {
			return nil, fmt.Errorf("registering the metrics of the process: %w", err)
		}
	}
	errorLog := slog.NewLogLogger(logger.Handler(), slog.LevelWarn)
	s := &Server{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            errorLog,
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
		EnableOpenMetrics:   true,
	}))
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
	}
	return s, nil
}

// BuildInfo returns the metric ackrail_build_info, which is always 1 and tells
// by its labels what runs.
func BuildInfo(version string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "ackrail_build_info",
		Help:        "Always 1. The labels tell which version runs, and what it was built with.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}

// SetReady opens or shuts the readiness gate. Shutting it is the first step
// of a drain: load balancers take the process out while it still answers.
func (s *Server) SetReady(ready bool) { s.ready.Store(ready) }

// Serve answers on a listener, which it closes, until the context ends, and
// then returns nil. A server serves once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving operations: %w", err)
	case <-ctx.Done():
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if s.http.Shutdown(bound) != nil {
		_ = s.http.Close() // whoever scrapes so slowly does without
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving operations: %w", err)
	}
	return nil
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if !s.ready.Load() {
		say(w, http.StatusServiceUnavailable, "not ready")
		return
	}
	say(w, http.StatusOK, "ok")
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // a prober that has gone needs no answer
}
