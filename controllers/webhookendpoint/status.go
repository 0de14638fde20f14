package webhookendpoint

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/conditions"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/resources"
)

// oldestTolerance is by how much the time of the oldest delivery may move
// without being written: it is reckoned from two clocks that are read one
// after the other.
const oldestTolerance = 3 * time.Second

// status turns what the phases have found into a status. What they could not
// find out stays as it was.
func status(s *scope, now time.Time) v1alpha1.WebhookEndpointStatus {
	e := s.endpoint
	after := v1alpha1.WebhookEndpointStatus{
		ObservedGeneration: e.Generation,
		URL:                e.Status.URL,
		Deliveries:         e.Status.Deliveries,
		DeadLetters:        e.Status.DeadLetters,
		Conditions:         conditions.Replace(e.Status.Conditions, summary(s), e.Generation, now),
	}
	if s.applied {
		after.URL = resources.URL(e)
	}
	if s.counts != nil {
		after.Deliveries = deliveries(s.counts, e.Status.Deliveries, now)
		after.DeadLetters = deadLetters(s.dead, e.Status.DeadLetters, now)
	}
	return after
}

// summary returns the conditions, Ready first.
func summary(s *scope) []metav1.Condition {
	ingress := observe(v1alpha1.ConditionIngressAvailable, s.ingress, s.absence())
	worker := observe(v1alpha1.ConditionWorkerAvailable, s.worker, s.absence())
	parts := []metav1.Condition{secretsResolved(s), storeReady(s), ingress.condition, worker.condition}
	all := append([]metav1.Condition{ready(s, parts, ingress, worker)}, parts...)
	if f := obstacle(s, ingress, worker); f != nil {
		return append(all, conditions.New(v1alpha1.ConditionStalled, metav1.ConditionTrue, f.reason, f.message))
	}
	switch trouble := working(s); {
	case trouble != nil:
		return append(all, conditions.New(v1alpha1.ConditionReconciling, metav1.ConditionTrue, trouble.reason, trouble.message))
	case ingress.rolling || worker.rolling:
		return append(all, conditions.New(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonRollingOut, rollingMessage))
	}
	return all
}

const rollingMessage = "Pods are being started or replaced"

// absence says why there is no Deployment, if there is none.
func (s *scope) absence() *fault {
	switch {
	case s.apply != nil:
		return s.apply
	case s.databaseURL == "":
		return &fault{reason: v1alpha1.ReasonNotApplied, message: "Nothing is applied without the database's URL"}
	case s.store != nil && s.store.final:
		return &fault{reason: v1alpha1.ReasonNotApplied, message: "Nothing is applied without a valid URL of the database"}
	}
	return nil
}

func secretsResolved(s *scope) metav1.Condition {
	const kind = v1alpha1.ConditionSecretsResolved
	if s.secrets != nil {
		return conditions.New(kind, metav1.ConditionFalse, s.secrets.reason, s.secrets.message)
	}
	return conditions.New(kind, metav1.ConditionTrue, v1alpha1.ReasonResolved, "Every Secret that the spec names is there")
}

func storeReady(s *scope) metav1.Condition {
	const kind = v1alpha1.ConditionStoreReady
	switch {
	case s.databaseURL == "":
		return conditions.New(kind, metav1.ConditionUnknown, v1alpha1.ReasonNotApplied, "The database's URL is not known")
	case s.store != nil:
		return conditions.New(kind, metav1.ConditionFalse, s.store.reason, s.store.message)
	}
	return conditions.New(kind, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "The database answers and has the schema of this version")
}

// ready sums up. The first thing that is not as it should be gives the reason;
// pods come last, since they are unavailable because of the others.
func ready(s *scope, parts []metav1.Condition, workloads ...rollout) metav1.Condition {
	const kind = v1alpha1.ConditionReady
	if c, ok := conditions.FirstNotTrue(parts[:2]); ok {
		return conditions.New(kind, metav1.ConditionFalse, c.Reason, c.Message)
	}
	if s.apply != nil {
		return conditions.New(kind, metav1.ConditionFalse, s.apply.reason, s.apply.message)
	}
	for _, w := range workloads {
		if w.failed || w.rolling || w.condition.Status != metav1.ConditionTrue {
			return conditions.New(kind, metav1.ConditionFalse, w.condition.Reason, component(w)+": "+w.condition.Message)
		}
	}
	switch s.endpoint.Spec.Suspend {
	case v1alpha1.SuspendAll:
		return conditions.New(kind, metav1.ConditionFalse, v1alpha1.ReasonSuspended, "spec.suspend is All: every request is answered with 503, and nothing is delivered")
	case v1alpha1.SuspendDeliveries:
		return conditions.New(kind, metav1.ConditionTrue, v1alpha1.ReasonSuspended, "spec.suspend is Deliveries: events are accepted and held")
	}
	return conditions.New(kind, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "Requests are taken and delivered")
}

func component(w rollout) string {
	if w.condition.Type == v1alpha1.ConditionIngressAvailable {
		return "Ingress"
	}
	return "Worker"
}

// obstacle is what stands until somebody changes something, nil if nothing
// does.
func obstacle(s *scope, workloads ...rollout) *fault {
	for _, f := range []*fault{s.store, s.apply} {
		if f != nil && f.final {
			return f
		}
	}
	for _, w := range workloads {
		if w.failed {
			return &fault{reason: w.condition.Reason, message: component(w) + ": " + w.condition.Message}
		}
	}
	return nil
}

// working is what the controller tries again by itself, nil if there is
// nothing.
func working(s *scope) *fault {
	for _, f := range []*fault{s.secrets, s.apply} {
		if f != nil && f.working {
			return f
		}
	}
	return nil
}

// deliveries adds the counts up.
func deliveries(counts []event.Counts, before *v1alpha1.DeliveryCounts, now time.Time) *v1alpha1.DeliveryCounts {
	sum := &v1alpha1.DeliveryCounts{}
	var oldest time.Duration
	for _, c := range counts {
		sum.Pending += c.Pending + c.Claimed
		sum.Failed += c.Failed
		sum.Dead += c.Dead
		oldest = max(oldest, c.OldestDue)
	}
	if oldest == 0 {
		return sum
	}
	since := metav1.NewTime(now.Add(-oldest).Truncate(time.Second))
	if before != nil && before.OldestDueTime != nil && before.OldestDueTime.Sub(since.Time).Abs() <= oldestTolerance {
		since = *before.OldestDueTime
	}
	sum.OldestDueTime = &since
	return sum
}
