package eventreplay

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// report tells, in events, what has changed from one status to the next.
func (r *Reconciler) report(before, now *v1alpha1.EventReplay) {
	for _, t := range transitions(before, now) {
		r.recorder.Eventf(now, nil, t.kind, t.reason, t.action, "%s", t.note)
	}
}

// transition is what an event tells.
type transition struct {
	kind, reason, action, note string
}

func transitions(before, now *v1alpha1.EventReplay) []transition {
	became := func(kind string) *metav1.Condition {
		c := meta.FindStatusCondition(now.Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionTrue || meta.IsStatusConditionTrue(before.Status.Conditions, kind) {
			return nil
		}
		return c
	}
	var all []transition
	complete := became(v1alpha1.ConditionComplete)
	if c := became(v1alpha1.ConditionPlanned); c != nil && complete == nil {
		all = append(all, transition{corev1.EventTypeNormal, "Planned", "Plan", c.Message})
	}
	if c := became(v1alpha1.ConditionSuspended); c != nil {
		all = append(all, transition{corev1.EventTypeNormal, "Suspended", "Suspend", c.Message})
	}
	if meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.ConditionSuspended) && !now.Spec.Suspend {
		all = append(all, transition{corev1.EventTypeNormal, "Resumed", "Resume", "spec.suspend is false: further runs are started"})
	}
	if c := newObstacle(before, now); c != nil {
		all = append(all, transition{corev1.EventTypeWarning, c.Reason, "Wait", c.Message})
	}
	if c := became(v1alpha1.ConditionFailed); c != nil {
		all = append(all, transition{corev1.EventTypeWarning, "Failed", "Fail", c.Message})
	}
	switch {
	case complete == nil:
	case complete.Reason == v1alpha1.ReasonCompletedWithFailures:
		all = append(all, transition{corev1.EventTypeWarning, complete.Reason, "Complete", complete.Message})
	default:
		all = append(all, transition{corev1.EventTypeNormal, "Complete", "Complete", complete.Message})
	}
	return all
}

// newObstacle returns the condition that names what a replay has begun to wait
// for, nil if it does not wait or did so before. Messages are not compared:
// the same trouble may have a different text each time.
func newObstacle(before, now *v1alpha1.EventReplay) *metav1.Condition {
	c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionComplete)
	old := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionComplete)
	if c == nil || c.Reason != v1alpha1.ReasonWaiting || old != nil && old.Reason == v1alpha1.ReasonWaiting {
		return nil
	}
	return c
}
