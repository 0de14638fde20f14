package eventreplay

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// setHealth sets the conditions by which kstatus, and so Argo CD and Flux,
// tells work in progress and failure; both are absent unless true. A replay
// that is suspended is what its spec says.
func setHealth(r *v1alpha1.EventReplay, seen Seen, at time.Time) {
	kind, reason, message := "", "", ""
	o := seen.Obstacle
	switch {
	case o != nil && o.Final:
		kind, reason, message = v1alpha1.ConditionStalled, o.Reason, o.Message
	case Finished(r), r.Spec.Suspend:
	case o != nil:
		kind, reason, message = v1alpha1.ConditionReconciling, v1alpha1.ReasonWaiting, o.Message
	default:
		kind, reason, message = v1alpha1.ConditionReconciling, v1alpha1.ReasonProgressing, workingMessage
	}
	for _, other := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if other != kind {
			meta.RemoveStatusCondition(&r.Status.Conditions, other)
		}
	}
	if kind != "" {
		set(r, kind, metav1.ConditionTrue, reason, message, at)
	}
}

// observe marks the status of a finished replay as that of the present
// generation: nothing in the spec can make a difference to it.
func observe(r *v1alpha1.EventReplay) {
	r.Status.ObservedGeneration = r.Generation
	for i := range r.Status.Conditions {
		r.Status.Conditions[i].ObservedGeneration = r.Generation
	}
}
