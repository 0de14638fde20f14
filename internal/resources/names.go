package resources

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// Labels that every child of an endpoint carries.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelInstance  = "app.kubernetes.io/instance"
	LabelComponent = "app.kubernetes.io/component"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelPartOf    = "app.kubernetes.io/part-of"

	// ManagedBy is the value of LabelManagedBy: the manager's cache holds
	// children that carry it, and no others.
	ManagedBy = "ackrail"
)

// AnnotationConfigHash on a pod template changes with the configuration that
// the pods read when they start, so that they are replaced.
const AnnotationConfigHash = "ackrail.io/config-hash"

// Component is one of the two kinds of pods that serve an endpoint.
type Component string

// The components. Their values stand in selectors, which cannot be changed.
const (
	ComponentIngress Component = "ingress"
	ComponentWorker  Component = "worker"
)

// maxBase leaves room, behind a child's suffix, for what Deployments append to
// the names of pods: a pod's name of more than 63 characters would be cut off
// to become its host name, and lose the part that tells it from the others.
const maxBase = 63 - len("-ingress") - len("-0123456789") - len("-01234")

var (
	label   = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	unclean = regexp.MustCompile(`[^a-z0-9]+`)
)

// InstanceName is what the names of an endpoint's children begin with, and
// the value of LabelInstance: the endpoint's name, or, where that is too long
// or no DNS label that starts with a letter, as much as possible of it and a
// hash. At most 38 characters.
func InstanceName(endpoint string) string {
	if len(endpoint) <= maxBase && label.MatchString(endpoint) {
		return endpoint
	}
	sum := sha256.Sum256([]byte(endpoint))
	hash := "-" + hex.EncodeToString(sum[:4])
	base := unclean.ReplaceAllString(endpoint, "-")
	if base[0] < 'a' || base[0] > 'z' {
		base = "e-" + strings.TrimLeft(base, "-")
	}
	base = base[:min(len(base), maxBase-len(hash))]
	return strings.TrimRight(base, "-") + hash
}

// Name returns the name of a component's Deployment, and of what belongs to
// it: of the ingress also the Service, of both the PodDisruptionBudget and
// the NetworkPolicy.
func Name(endpoint string, component Component) string {
	return InstanceName(endpoint) + "-" + string(component)
}

// PipelineName returns the name of an endpoint's ConfigMap and ServiceAccount.
func PipelineName(endpoint string) string { return InstanceName(endpoint) + "-pipeline" }

// URL returns where an endpoint takes requests from within the cluster.
func URL(e *v1alpha1.WebhookEndpoint) string {
	return "http://" + Name(e.Name, ComponentIngress) + "." + e.Namespace + ".svc" + e.Path()
}

// selector selects the pods of a component. It must never change: those of
// Deployments cannot, and pods of an earlier version must stay selected.
func selector(e *v1alpha1.WebhookEndpoint, component Component) map[string]string {
	return map[string]string{
		LabelInstance:  InstanceName(e.Name),
		LabelComponent: string(component),
	}
}

// labels are those of every child.
func labels(e *v1alpha1.WebhookEndpoint) map[string]string {
	return map[string]string{
		LabelName:      "ackrail",
		LabelInstance:  InstanceName(e.Name),
		LabelManagedBy: ManagedBy,
		LabelPartOf:    "ackrail",
	}
}

// componentLabels are those of what belongs to a component.
func componentLabels(e *v1alpha1.WebhookEndpoint, component Component) map[string]string {
	all := labels(e)
	all[LabelComponent] = string(component)
	return all
}
