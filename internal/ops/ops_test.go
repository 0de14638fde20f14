package ops_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/ackrail/ackrail/internal/ops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serving is a server under test.
type serving struct {
	*ops.Server
	url    string
	client *http.Client
	stop   context.CancelFunc
	ended  chan error
}

func serve(t *testing.T, registry *prometheus.Registry) *serving {
	t.Helper()
	server, err := ops.New(registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	s := &serving{
		Server: server,
		url:    "http://" + l.Addr().String(),
		client: &http.Client{Transport: transport, Timeout: 10 * time.Second},
		ended:  make(chan error, 1),
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(t.Context())
	go func() { s.ended <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.stop()
	})
	return s
}

func (s *serving) do(t *testing.T, method, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestAnswers(t *testing.T) {
	s := serve(t, prometheus.NewRegistry())
	ready := func(value bool) func() { return func() { s.SetReady(value) } }
	unchanged := func() {}
	for _, c := range []struct {
		name         string
		before       func()
		method, path string
		want         int
	}{
		{"alive before it is ready", unchanged, http.MethodGet, "/healthz", http.StatusOK},
		{"not ready by itself", unchanged, http.MethodGet, "/readyz", http.StatusServiceUnavailable},
		{"ready", ready(true), http.MethodGet, "/readyz", http.StatusOK},
		{"ready, asked with HEAD", unchanged, http.MethodHead, "/readyz", http.StatusOK},
		{"draining", ready(false), http.MethodGet, "/readyz", http.StatusServiceUnavailable},
		{"alive while draining", unchanged, http.MethodGet, "/healthz", http.StatusOK},
		{"metrics while draining", unchanged, http.MethodGet, "/metrics", http.StatusOK},
		{"no profiling", unchanged, http.MethodGet, "/debug/pprof/", http.StatusNotFound},
		{"nothing at the root", unchanged, http.MethodGet, "/", http.StatusNotFound},
		{"no other method", unchanged, http.MethodPost, "/healthz", http.StatusMethodNotAllowed},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.before()
			if got, _ := s.do(t, c.method, c.path); got != c.want {
				t.Errorf("%s %s: status %d, want %d", c.method, c.path, got, c.want)
			}
		})
	}
}

func TestMetricsOfRegistryAndProcess(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "ackrail_test_total", Help: "For this test."})
	registry.MustRegister(counter)
	counter.Add(3)
	// A second server of one process finds the process's collectors there.
	if _, err := ops.New(registry, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	s := serve(t, registry)
	_, text := s.do(t, http.MethodGet, "/metrics")
	for _, want := range []string{"ackrail_test_total 3\n", "\ngo_goroutines ", "\nprocess_start_time_seconds "} {
		if !strings.Contains("\n"+text, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	s := serve(t, prometheus.NewRegistry())
	s.do(t, http.MethodGet, "/healthz") // it serves, and keeps a connection
	s.stop()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Errorf("Serve returned %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Serve did not return")
	}
	response, err := s.client.Get(s.url + "/healthz")
	if err == nil {
		response.Body.Close()
		t.Error("the port is still served")
	}
}

func TestServeReportsABrokenListener(t *testing.T) {
	server, err := ops.New(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := server.Serve(t.Context(), l); err == nil {
		t.Error("Serve returned nil while its context lasts")
	}
}
