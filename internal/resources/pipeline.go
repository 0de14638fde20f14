package resources

import (
	"path"
	"slices"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/pipeline"
)

// SecretFile returns the path below the secrets folder of one key of a
// Secret: NAMESPACE/NAME/KEY.
func SecretFile(namespace string, ref v1alpha1.SecretKeyRef) string {
	return path.Join(namespace, ref.Name, ref.Key)
}

// SecretRefs returns the Secrets that an endpoint's pods need, in the order
// of the spec. The database's is not among them.
func SecretRefs(e *v1alpha1.WebhookEndpoint) []v1alpha1.SecretKeyRef {
	return append(slices.Clone(e.Spec.Source.SecretRefs), signingSecretRefs(e)...)
}

// signingSecretRefs returns the Secrets that deliveries are signed with, in
// the order of the destinations.
func signingSecretRefs(e *v1alpha1.WebhookEndpoint) []v1alpha1.SecretKeyRef {
	var refs []v1alpha1.SecretKeyRef
	for i := range e.Spec.Destinations {
		if ref := e.Spec.Destinations[i].HTTP.SigningSecretRef; ref != nil {
			refs = append(refs, *ref)
		}
	}
	return refs
}

// Pipeline renders endpoints, complete with their defaults, as the document
// that ingress and worker processes run.
func Pipeline(endpoints []v1alpha1.WebhookEndpoint) *pipeline.Config {
	c := &pipeline.Config{Version: pipeline.Version, Endpoints: []pipeline.Endpoint{}}
	for i := range endpoints {
		c.Endpoints = append(c.Endpoints, endpoint(&endpoints[i]))
	}
	return c
}

func endpoint(e *v1alpha1.WebhookEndpoint) pipeline.Endpoint {
	spec := &e.Spec
	p := pipeline.Endpoint{
		Namespace:    e.Namespace,
		Name:         e.Name,
		Path:         e.Path(),
		Verification: verification(e),
		Identity: pipeline.Identity{
			IdempotencyKeyHeader: spec.Source.IdempotencyKeyHeader(),
			TypeHeader:           spec.Source.TypeHeader(),
		},
		MaxBodyBytes: int64(spec.Source.MaxBodyBytes),
		LeaseSeconds: int(spec.Worker.LeaseSeconds),
		Retention: pipeline.Retention{
			EventsSeconds:      int(spec.Retention.EventsSeconds),
			DeadLettersSeconds: int(spec.Retention.DeadLettersSeconds),
			DedupSeconds:       int(spec.Retention.DedupSeconds),
		},
	}
	if spec.Suspend != v1alpha1.SuspendNone { // else left out, for pods that do not know the field
		p.Suspend = pipeline.Suspend(spec.Suspend)
	}
	for i := range spec.Destinations {
		p.Destinations = append(p.Destinations, destination(e.Namespace, &spec.Destinations[i]))
	}
	return p
}

func verification(e *v1alpha1.WebhookEndpoint) pipeline.Verification {
	source := &e.Spec.Source
	v := pipeline.Verification{Provider: pipeline.Provider(source.Provider)}
	for _, ref := range source.SecretRefs {
		v.SecretFiles = append(v.SecretFiles, SecretFile(e.Namespace, ref))
	}
	if h := source.HMAC; h != nil {
		v.HMAC = &pipeline.HMAC{Header: h.Header, Algorithm: string(h.Algorithm), Encoding: string(h.Encoding), Prefix: h.Prefix}
	}
	return v
}

func destination(namespace string, d *v1alpha1.Destination) pipeline.Destination {
	p := pipeline.Destination{
		Name: d.Name,
		HTTP: pipeline.HTTP{URL: d.HTTP.URL, TimeoutSeconds: int(d.HTTP.TimeoutSeconds)},
		Retry: pipeline.Retry{
			MaxAttempts:       int(d.Retry.MaxAttempts),
			MinBackoffSeconds: int(d.Retry.MinBackoffSeconds),
			MaxBackoffSeconds: int(d.Retry.MaxBackoffSeconds),
		},
		MaxConcurrency: int(d.MaxConcurrency),
	}
	if ref := d.HTTP.SigningSecretRef; ref != nil {
		p.HTTP.SigningSecretFile = SecretFile(namespace, *ref)
	}
	return p
}
