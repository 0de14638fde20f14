package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

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

func TestRequirements(t *testing.T) {
	list := func(pairs ...string) ResourceList {
		all := ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return all
	}
	for _, tc := range []struct {
		name             string
		in               Resources
		requests, limits ResourceList
	}{
		{"nothing", Resources{}, list("cpu", "50m", "memory", "64Mi"), list("memory", "256Mi")},
		{
			"everything",
			Resources{Requests: list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "1Mi"), Limits: list("cpu", "2", "memory", "2Gi")},
			list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "1Mi"), list("cpu", "2", "memory", "2Gi"),
		},
		{"a limit below the default requests", Resources{Limits: list("cpu", "10m", "memory", "16Mi")}, list("cpu", "10m", "memory", "16Mi"), list("cpu", "10m", "memory", "16Mi")},
		{"a request above the default limit", Resources{Requests: list("memory", "512Mi")}, list("cpu", "50m", "memory", "512Mi"), list("memory", "512Mi")},
		{"a request below the default limit", Resources{Requests: list("memory", "64Mi")}, list("cpu", "50m", "memory", "64Mi"), list("memory", "256Mi")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.in.DeepCopy()
			got := tc.in.Requirements()
			for name, want := range map[string]ResourceList{"requests": tc.requests, "limits": tc.limits} {
				have := ResourceList(got.Requests)
				if name == "limits" {
					have = ResourceList(got.Limits)
				}
				if diff := cmp.Diff(want, have); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			if diff := cmp.Diff(before, &tc.in); diff != "" {
				t.Errorf("the resources were changed (-before +after):\n%s", diff)
			}
		})
	}
}
