package worker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// running is a worker that runs until the test ends, or stops it.
type running struct {
	*Worker
	t        testing.TB
	registry *prometheus.Registry
	logs     *logs
	stop     context.CancelFunc
	ended    chan struct{}
}

// worker starts a worker that polls often and drains briefly.
func (r *rig) worker(c *pipeline.Config, change ...func(*Options)) *running {
	r.t.Helper()
	w := r.prepare(c, change...)
	w.start(r.t)
	return w
}

// prepare makes a worker on connections of its own that does not run yet. It
// sends over HTTP.
func (r *rig) prepare(c *pipeline.Config, change ...func(*Options)) *running {
	r.t.Helper()
	sender, err := deliver.New("", "test")
	if err != nil {
		r.t.Fatal(err)
	}
	w := &running{t: r.t, registry: prometheus.NewRegistry(), logs: &logs{}, ended: make(chan struct{})}
	o := Options{
		Name:         "worker",
		Store:        r.open(r.url),
		Sender:       func(d pipeline.Destination) (Sender, error) { return sender.Destination(d) },
		Logger:       slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registerer:   w.registry,
		PollInterval: 50 * time.Millisecond,
		DrainTimeout: 50 * time.Millisecond,
	}
	for _, c := range change {
		c(&o)
	}
	if w.Worker, err = New(c, o); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(sender.CloseIdleConnections)
	return w
}

// open returns a store of a worker's own, with as few connections as the
// product gives it.
func (r *rig) open(url string) *store.Store {
	r.t.Helper()
	s, err := store.Open(url, store.Options{MaxConns: 5, Name: "worker of " + r.t.Name()})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	return s
}

func (w *running) start(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	go func() {
		defer close(w.ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		w.stopAndWait()
		if t.Failed() {
			t.Logf("the worker's log:\n%s", w.logs)
		}
	})
}

// stopAndWait stops the worker and returns how long that took.
func (w *running) stopAndWait() time.Duration {
	w.t.Helper()
	start := time.Now()
	w.stop()
	select {
	case <-w.ended:
	case <-time.After(patience):
		w.t.Error("the worker does not stop")
	}
	return time.Since(start)
}

// name sets the worker's name.
func name(s string) func(*Options) { return func(o *Options) { o.Name = s } }

func poll(d time.Duration) func(*Options) { return func(o *Options) { o.PollInterval = d } }

func drain(d time.Duration) func(*Options) { return func(o *Options) { o.DrainTimeout = d } }

// never is an interval that no test lives to see the end of.
const never = time.Hour

// by has the worker reach the database by another way.
func (r *rig) by(url string) func(*Options) {
	return func(o *Options) { o.Store = r.open(url) }
}

// sending has the worker send with f, whatever the destination.
func sending(f sendFunc) func(*Options) {
	return func(o *Options) {
		o.Sender = func(pipeline.Destination) (Sender, error) { return f, nil }
	}
}

type sendFunc func(context.Context, *deliver.Request) deliver.Outcome

func (f sendFunc) Send(ctx context.Context, r *deliver.Request) deliver.Outcome { return f(ctx, r) }

// logs is what a worker logged.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logs) count(message string) int {
	return strings.Count(l.String(), "msg="+fmt.Sprintf("%q", message))
}

// series returns the series of a metric that have these labels, as pairs of
// name and value.
func (w *running) series(metric string, labels ...string) []*dto.Metric {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	var all []*dto.Metric
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			if matches(m, labels) {
				all = append(all, m)
			}
		}
	}
	return all
}

func matches(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

// metric returns the sum of a metric's series: values, or counts of a
// histogram.
func (w *running) metric(metric string, labels ...string) float64 {
	w.t.Helper()
	var sum float64
	for _, m := range w.series(metric, labels...) {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

// fenced returns the refused writes that were counted, without the zeros.
func (w *running) fenced() map[string]float64 {
	w.t.Helper()
	all := map[string]float64{}
	for _, m := range w.series("ackrail_fenced_total") {
		if n := m.GetCounter().GetValue(); n != 0 {
			all[m.GetLabel()[0].GetValue()] = n
		}
	}
	return all
}

// waitForMetric waits until a metric is at least n.
func (w *running) waitForMetric(n float64, metric string, labels ...string) {
	w.t.Helper()
	testenv.Eventually(w.t, patience, func() error {
		if got := w.metric(metric, labels...); got < n {
			return fmt.Errorf("%s %v is %v, want %v", metric, labels, got, n)
		}
		return nil
	})
}

// waitForLog waits until a message was logged n times.
func (w *running) waitForLog(n int, message string) {
	w.t.Helper()
	testenv.Eventually(w.t, patience, func() error {
		if got := w.logs.count(message); got < n {
			return fmt.Errorf("logged %d times, want %d: %s", got, n, message)
		}
		return nil
	})
}
