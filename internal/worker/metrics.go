package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
)

// destinationLabels name a destination. Their values come from the
// configuration and not from senders, so their number is bounded.
var destinationLabels = []string{"namespace", "endpoint", "destination"}

// metrics are the worker's, all with the prefix ackrail_.
type metrics struct {
	deliveries *prometheus.CounterVec
	exchange   *prometheus.HistogramVec
	latency    *prometheus.HistogramVec
	attempts   *prometheus.HistogramVec
	inFlight   *prometheus.GaugeVec
	depth      *prometheus.GaugeVec
	oldest     *prometheus.GaugeVec
	dead       *prometheus.GaugeVec
	deadAge    *prometheus.GaugeVec
	expiring   *prometheus.GaugeVec
	fenced     *prometheus.CounterVec
	claims     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	with := func(more ...string) []string { return append(append([]string(nil), destinationLabels...), more...) }
	seconds := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	m := &metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ackrail_deliveries_total",
			Help: "Attempts that ended, by outcome (done, failed, dead, released) and reason: why a delivery died, or the class of error of an attempt that will be repeated.",
		}, with("outcome", "reason")),
		exchange: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ackrail_delivery_exchange_seconds", Help: "How long the exchange with the destination took.", Buckets: seconds,
		}, destinationLabels),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ackrail_delivery_latency_seconds",
			Help: "From the event's acceptance to the destination's success, first runs only.", Buckets: append(seconds, 300, 3600, 86400),
		}, destinationLabels),
		attempts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ackrail_delivery_attempts", Help: "Attempts that a delivery had when it ended (done or dead).", Buckets: []float64{1, 2, 3, 5, 10, 20, 50, 100},
		}, destinationLabels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ackrail_deliveries_in_flight", Help: "Exchanges under way.",
		}, destinationLabels),
		depth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ackrail_queue_deliveries", Help: "Deliveries in the database by state (pending, claimed, failed, dead), the same from every worker.",
		}, with("state")),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ackrail_queue_oldest_due_seconds", Help: "For how long the delivery that is due the longest has been waiting.",
		}, destinationLabels),
		dead: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ackrail_dead_letters", Help: "Dead letters that no replay has taken up, by reason, the same from every worker.",
		}, with("reason")),
		deadAge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ackrail_dead_letters_oldest_age_seconds", Help: "How long ago the oldest of these died; 0 if there are none.",
		}, destinationLabels),
		expiring: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ackrail_dead_letters_expiring",
			Help: "How many of these are purged soon: in the last tenth of their retention, at least an hour and at most a day.",
		}, destinationLabels),
		fenced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ackrail_fenced_total", Help: "Writes that were refused because the delivery had another owner, by what was to be written (done, failed, dead, released, renewed).",
		}, []string{"write"}),
		claims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ackrail_claim_deliveries", Help: "Deliveries that a claim returned.", Buckets: []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500},
		}),
	}
	r.MustRegister(m.deliveries, m.exchange, m.latency, m.attempts, m.inFlight, m.depth, m.oldest, m.dead, m.deadAge, m.expiring, m.fenced, m.claims)
	for _, write := range []string{"done", "failed", "dead", "released", "renewed"} {
		m.fenced.WithLabelValues(write)
	}
	return m
}

// laneMetrics are the series of one destination.
type laneMetrics struct {
	deliveries                            *prometheus.CounterVec
	exchange, latency, attempts           prometheus.Observer
	inFlight, oldest                      prometheus.Gauge
	pending, claimed, failed, deadLetters prometheus.Gauge
	deadAge, expiring                     prometheus.Gauge
	dead                                  *prometheus.GaugeVec
}

func (m *metrics) lane(ref event.DestinationRef) laneMetrics {
	labels := prometheus.Labels{"namespace": ref.Endpoint.Namespace, "endpoint": ref.Endpoint.Name, "destination": ref.Name}
	values := []string{ref.Endpoint.Namespace, ref.Endpoint.Name, ref.Name}
	depth := m.depth.MustCurryWith(labels)
	return laneMetrics{
		deliveries:  m.deliveries.MustCurryWith(labels),
		exchange:    m.exchange.WithLabelValues(values...),
		latency:     m.latency.WithLabelValues(values...),
		attempts:    m.attempts.WithLabelValues(values...),
		inFlight:    m.inFlight.WithLabelValues(values...),
		oldest:      m.oldest.WithLabelValues(values...),
		dead:        m.dead.MustCurryWith(labels),
		deadAge:     m.deadAge.WithLabelValues(values...),
		expiring:    m.expiring.WithLabelValues(values...),
		pending:     depth.WithLabelValues(string(event.StatePending)),
		claimed:     depth.WithLabelValues(string(event.StateClaimed)),
		failed:      depth.WithLabelValues(string(event.StateFailed)),
		deadLetters: depth.WithLabelValues(string(event.StateDead)),
	}
}

// observe counts an attempt that ended.
func (m *laneMetrics) observe(h *held, o *store.Outcome) {
	reason := string(o.ErrorClass)
	if o.Verdict == event.VerdictDead {
		reason = string(o.Reason)
	}
	m.deliveries.WithLabelValues(string(o.Verdict), reason).Inc()
	if o.Verdict != event.VerdictReleased && !o.Claim.Exhausted && !o.Claim.PayloadMissing {
		m.exchange.Observe(o.Latency.Seconds())
	}
	if o.Verdict == event.VerdictDone || o.Verdict == event.VerdictDead {
		m.attempts.Observe(float64(o.Claim.Attempts))
	}
	// A replay may start a first run, of an event that is old by then.
	if o.Verdict == event.VerdictDone && o.Claim.Token.Delivery.Run == 1 && o.Claim.Replay == nil {
		m.latency.Observe((o.Claim.Age + time.Since(h.claimed)).Seconds())
	}
}

// queue sets the gauges of what is in the database.
func (m *laneMetrics) queue(c *store.Counts) {
	m.pending.Set(float64(c.Pending))
	m.claimed.Set(float64(c.Claimed))
	m.failed.Set(float64(c.Failed))
	m.deadLetters.Set(float64(c.Dead))
	m.oldest.Set(c.OldestDue.Seconds())
}

// reasons are those of dead letters that have a series each.
var reasons = []event.Reason{event.ReasonPermanentStatus, event.ReasonAttemptsExhausted, event.ReasonOutcomeUnknown, event.ReasonPayloadMissing}

// graves sets the gauges of what is dead.
func (m *laneMetrics) graves(c *event.DeadCounts) {
	for _, reason := range reasons {
		m.dead.WithLabelValues(string(reason)).Set(float64(c.Reasons[reason]))
	}
	m.deadAge.Set(c.OldestAge.Seconds())
	m.expiring.Set(float64(c.Expiring))
}
