package webhookendpoint

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/conditions"
)

// Words of Deployments' conditions that the API has no constants for.
const (
	deploymentComplete = "NewReplicaSetAvailable"
	deploymentOverdue  = "ProgressDeadlineExceeded"
)

// rollout says how far a Deployment is.
type rollout struct {
	// condition says whether enough pods are available.
	condition metav1.Condition
	// rolling: pods are being started or replaced.
	rolling bool
	// failed: new pods cannot be made, or have not become available in time.
	failed bool
}

// observe tells how far a Deployment is. There may be none, and then the fault
// says why.
func observe(kind string, d *appsv1.Deployment, why *fault) rollout {
	if d == nil {
		reason, message := v1alpha1.ReasonNotApplied, "Nothing was applied yet"
		if why != nil {
			reason, message = why.reason, why.message
		}
		return rollout{condition: conditions.New(kind, metav1.ConditionFalse, reason, message)}
	}
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	enough := metav1.ConditionFalse
	// One may be missing, as the PodDisruptionBudget has it: draining a node
	// is no outage.
	if d.Status.AvailableReplicas >= max(1, replicas-1) {
		enough = metav1.ConditionTrue
	}
	available := fmt.Sprintf("%d of %d pods are available", d.Status.AvailableReplicas, replicas)
	switch {
	case failure(d) != "":
		message := fmt.Sprintf("%s; %s; see kubectl describe pods -n %s -l %s",
			available, failure(d), d.Namespace, metav1.FormatLabelSelector(d.Spec.Selector))
		return rollout{condition: conditions.New(kind, enough, v1alpha1.ReasonRolloutFailed, message), failed: true}
	case isRolling(d, replicas):
		message := fmt.Sprintf("%d of %d pods are up to date, %d are available",
			min(updated(d), replicas), replicas, d.Status.AvailableReplicas)
		if n := ptr.Deref(d.Status.TerminatingReplicas, 0); n > 0 {
			message += fmt.Sprintf(", %d on their way out", n)
		}
		return rollout{condition: conditions.New(kind, enough, v1alpha1.ReasonRollingOut, message), rolling: true}
	case enough == metav1.ConditionFalse:
		return rollout{condition: conditions.New(kind, enough, v1alpha1.ReasonUnavailable, available)}
	}
	return rollout{condition: conditions.New(kind, enough, v1alpha1.ReasonAvailable, available)}
}

// seen reports whether the Deployment's status is of its present spec.
func seen(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration >= d.Generation }

// updated is how many pods are of the present template.
func updated(d *appsv1.Deployment) int32 {
	if !seen(d) {
		return 0
	}
	return d.Status.UpdatedReplicas
}

func isRolling(d *appsv1.Deployment, replicas int32) bool {
	if updated(d) < replicas || d.Status.Replicas > d.Status.UpdatedReplicas {
		return true
	}
	// Former pods take and deliver as the former spec says until they have
	// gone. Clusters before 1.35 may not tell.
	if ptr.Deref(d.Status.TerminatingReplicas, 0) > 0 {
		return true
	}
	progress := deploymentCondition(d, appsv1.DeploymentProgressing)
	return progress == nil || progress.Reason != deploymentComplete
}

// failure says why new pods do not come up, "" if they do or may yet.
func failure(d *appsv1.Deployment) string {
	if !seen(d) {
		return ""
	}
	if c := deploymentCondition(d, appsv1.DeploymentReplicaFailure); c != nil && c.Status == corev1.ConditionTrue {
		return c.Message
	}
	if c := deploymentCondition(d, appsv1.DeploymentProgressing); c != nil && c.Reason == deploymentOverdue {
		return c.Message
	}
	return ""
}

func deploymentCondition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range d.Status.Conditions {
		if d.Status.Conditions[i].Type == kind {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}
