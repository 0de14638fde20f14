package v1alpha1

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
