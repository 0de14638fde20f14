package webhookendpoint

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// item is what one event tells.
type item struct {
	kind, reason, action, note string
}

// news is what has changed from the status that was read to the one after it,
// as far as people want to be told.
func news(s *scope, after *v1alpha1.WebhookEndpointStatus) []item {
	before := s.endpoint.Status.Conditions
	var all []item
	if len(s.created) > 0 {
		all = append(all, item{corev1.EventTypeNormal, "Created", "Apply", "Created " + list(s.created)})
	}
	if old := meta.FindStatusCondition(before, v1alpha1.ConditionReady); old != nil && old.Reason == v1alpha1.ReasonSuspended && s.endpoint.Spec.Suspend == v1alpha1.SuspendNone {
		all = append(all, item{corev1.EventTypeNormal, "Resumed", "Resume", "spec.suspend is None: requests are taken and delivered again"})
	}
	told := map[string]bool{}
	for _, kind := range []string{v1alpha1.ConditionSecretsResolved, v1alpha1.ConditionStoreReady, v1alpha1.ConditionReady} {
		old, now := meta.FindStatusCondition(before, kind), meta.FindStatusCondition(after.Conditions, kind)
		if i, ok := turn(old, now); ok && !told[i.reason] {
			told[i.reason] = true
			all = append(all, i)
		}
	}
	if i, ok := warn(s.endpoint, after); ok {
		all = append(all, i)
	}
	return all
}

// turn tells of a condition that has become true again, or has ceased to be
// for a reason that somebody should look into. What begins well is told by
// Ready alone, and what is under way not at all.
func turn(old, now *metav1.Condition) (item, bool) {
	if old != nil && old.Status == now.Status && old.Reason == now.Reason {
		return item{}, false
	}
	first := old == nil || old.Status == metav1.ConditionUnknown
	note := now.Message
	switch {
	case now.Reason == v1alpha1.ReasonSuspended:
		return item{corev1.EventTypeNormal, now.Reason, "Suspend", note}, true
	case now.Status == metav1.ConditionTrue && (now.Type == v1alpha1.ConditionReady || !first):
		return item{corev1.EventTypeNormal, now.Type, "Reconcile", note}, true
	case now.Status == metav1.ConditionFalse && now.Reason != v1alpha1.ReasonRollingOut && now.Reason != v1alpha1.ReasonNotApplied:
		return item{corev1.EventTypeWarning, now.Reason, "Reconcile", note}, true
	}
	return item{}, false
}

// farewell is what to tell of an endpoint that was deleted, false if nothing
// of it is left to deliver. Nothing is lost: rows stay in the database, by the
// endpoint's name.
func farewell(e *v1alpha1.WebhookEndpoint) (item, bool) {
	d := e.Status.Deliveries
	if d == nil || d.Pending+d.Failed+d.Dead == 0 {
		return item{}, false
	}
	note := fmt.Sprintf("Deleted while %d deliveries were not made and %d were dead, by the last count: they stay in the database; "+
		"apply the endpoint again to deliver them", d.Pending+d.Failed, d.Dead)
	return item{corev1.EventTypeWarning, "DeliveriesKept", "Delete", note}, true
}

// list writes words, each once, as in "A, B and C".
func list(words []string) string {
	var unique []string
	seen := map[string]bool{}
	for _, word := range words {
		if !seen[word] {
			seen[word] = true
			unique = append(unique, word)
		}
	}
	last := len(unique) - 1
	if last == 0 {
		return unique[0]
	}
	return strings.Join(unique[:last], ", ") + " and " + unique[last]
}
