package ingress

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/signature"
)

// Metrics are what the ingress tells about itself. Labels are bounded: by the
// endpoints of the configuration and by fixed sets of words.
type Metrics struct {
	requests          *prometheus.CounterVec
	ackSeconds        *prometheus.HistogramVec
	signatureFailures *prometheus.CounterVec
	inflightBytes     prometheus.Gauge
	batchEvents       prometheus.Histogram
	batchSeconds      *prometheus.HistogramVec
}

// NewMetrics makes the metrics and registers them; it fails if they are
// there already.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	latencies := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	endpoint := []string{"namespace", "endpoint"}
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ackrail_ingress_requests_total",
			Help: "Requests by what became of them. Unknown paths have an empty namespace and endpoint.",
		}, append(endpoint, "result")),
		ackSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ackrail_ingress_ack_seconds",
			Help:    "Time from a request's header to its answer, of committed events and their duplicates.",
			Buckets: latencies,
		}, endpoint),
		signatureFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ackrail_ingress_signature_failures_total",
			Help: "Requests that could not be verified, by reason.",
		}, append(endpoint, "reason")),
		inflightBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ackrail_ingress_inflight_bytes",
			Help: "Bytes set aside for the bodies of requests that are not answered yet.",
		}),
		batchEvents: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ackrail_ingress_batch_events",
			Help:    "Events in one commit.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500},
		}),
		batchSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ackrail_ingress_batch_seconds",
			Help:    "Time to commit one batch. Outcome failed: at least one event of it was not committed.",
			Buckets: append(latencies, 5),
		}, []string{"outcome"}),
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.ackSeconds, m.signatureFailures, m.inflightBytes, m.batchEvents, m.batchSeconds,
	} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of the ingress: %w", err)
		}
	}
	return m, nil
}

// ObserveBatch records a batch. It fits store.EnqueuerOptions.OnBatch.
func (m *Metrics) ObserveBatch(events int, took time.Duration, err error) {
	outcome := "committed"
	if err != nil {
		outcome = "failed"
	}
	m.batchEvents.Observe(float64(events))
	m.batchSeconds.WithLabelValues(outcome).Observe(took.Seconds())
}

// endpointMetrics are the metrics with an endpoint's labels already on them.
type endpointMetrics struct {
	requests          *prometheus.CounterVec
	ackSeconds        prometheus.Observer
	signatureFailures *prometheus.CounterVec
}

func (m *Metrics) of(ref event.EndpointRef) endpointMetrics {
	labels := prometheus.Labels{"namespace": ref.Namespace, "endpoint": ref.Name}
	return endpointMetrics{
		requests:          m.requests.MustCurryWith(labels),
		ackSeconds:        m.ackSeconds.With(labels),
		signatureFailures: m.signatureFailures.MustCurryWith(labels),
	}
}

func (m *endpointMetrics) answered(r result, took time.Duration) {
	m.requests.WithLabelValues(string(r)).Inc()
	if r == resultAccepted || r == resultDuplicate || r == resultConflict {
		m.ackSeconds.Observe(took.Seconds())
	}
}

func (m *endpointMetrics) unverified(r signature.Reason) {
	m.signatureFailures.WithLabelValues(string(r)).Inc()
}
