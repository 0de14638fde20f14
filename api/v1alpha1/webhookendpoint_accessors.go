package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Path returns the URL path at which the endpoint takes requests:
// spec.source.path, or DefaultPath where it is empty.
func (e *WebhookEndpoint) Path() string {
	if e.Spec.Source.Path != "" {
		return e.Spec.Source.Path
	}
	return DefaultPath(e.Namespace, e.Name)
}

// IdempotencyKeyHeader returns the header that carries the idempotency key,
// or "" where the provider's own one holds.
func (s *Source) IdempotencyKeyHeader() string {
	if s.Identity == nil || s.Identity.IdempotencyKey == nil {
		return ""
	}
	return s.Identity.IdempotencyKey.Header
}

// TypeHeader returns the header that carries the event's type, or "" where
// the provider's own one holds.
func (s *Source) TypeHeader() string {
	if s.Identity == nil || s.Identity.Type == nil {
		return ""
	}
	return s.Identity.Type.Header
}

// defaultRequests and defaultLimits are what pods get where the spec says
// nothing. They cannot stand in the schema, where a given map replaces the
// whole default.
var (
	defaultRequests = ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	defaultLimits   = ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
)

// Requirements returns the resources of a pod's only container, complete with
// the defaults. A default request gives way to a lower limit, and a default
// limit to a higher request.
func (r *Resources) Requirements() corev1.ResourceRequirements {
	requests := complete(r.Requests, defaultRequests, r.Limits, func(wanted, limit resource.Quantity) bool { return wanted.Cmp(limit) > 0 })
	limits := complete(r.Limits, defaultLimits, r.Requests, func(wanted, request resource.Quantity) bool { return wanted.Cmp(request) < 0 })
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// complete adds to what was given the defaults, each replaced by its bound if
// it is beyond it.
func complete(given, defaults, bounds ResourceList, beyond func(wanted, bound resource.Quantity) bool) corev1.ResourceList {
	all := corev1.ResourceList{}
	for name, quantity := range defaults {
		if bound, ok := bounds[name]; ok && beyond(quantity, bound) {
			quantity = bound
		}
		all[name] = quantity.DeepCopy()
	}
	for name, quantity := range given {
		all[name] = quantity.DeepCopy()
	}
	return all
}
