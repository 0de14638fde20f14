package v1alpha1

import "testing"

func TestPath(t *testing.T) {
	e := WebhookEndpoint{}
	e.Namespace, e.Name = "payments", "github"
	if got, want := e.Path(), "/hooks/payments/github"; got != want {
		t.Errorf("path without spec.source.path: %q, want %q", got, want)
	}
	e.Spec.Source.Path = "/in"
	if got, want := e.Path(), "/in"; got != want {
		t.Errorf("path: %q, want %q", got, want)
	}
}

func TestIdentityHeaders(t *testing.T) {
	for _, tc := range []struct {
		name           string
		identity       *Identity
		wantKey, wantT string
	}{
		{"no identity", nil, "", ""},
		{"key", &Identity{IdempotencyKey: &RequestField{Header: "X-Id"}}, "X-Id", ""},
		{"type", &Identity{Type: &RequestField{Header: "X-Type"}}, "", "X-Type"},
	} {
		s := Source{Identity: tc.identity}
		if got := s.IdempotencyKeyHeader(); got != tc.wantKey {
			t.Errorf("%s: idempotency key header %q, want %q", tc.name, got, tc.wantKey)
		}
		if got := s.TypeHeader(); got != tc.wantT {
			t.Errorf("%s: type header %q, want %q", tc.name, got, tc.wantT)
		}
	}
}
