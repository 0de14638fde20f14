package resources_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/resources"
)

func TestInstanceName(t *testing.T) {
	for _, tc := range []struct{ endpoint, want string }{
		{"github", "github"},
		{"a", "a"},
		{"git-hub2", "git-hub2"},
		{strings.Repeat("a", 38), strings.Repeat("a", 38)},
		{strings.Repeat("a", 39), strings.Repeat("a", 29) + "-b4d5e56e"},
		{"a.b", "a-b-2e7336dc"},
		{"1password", "e-1password-d58fc8da"},
		{strings.Repeat("a", 28) + "." + strings.Repeat("b", 28), strings.Repeat("a", 28) + "-b4738838"},
	} {
		got := resources.InstanceName(tc.endpoint)
		// The hash is whatever it is, but stays so: names must not change.
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.endpoint, got, tc.want)
		}
	}
}

func TestNamesAreValid(t *testing.T) {
	seen := map[string]string{}
	for _, endpoint := range []string{
		"a", "0", "a.b", "a-b", "a.b-c", "a-b.c", "0.0", strings.Repeat("x", 253), strings.Repeat("x", 252) + "y",
		strings.Repeat("1.", 100) + "z", strings.Repeat("a", 28) + ".bbbbbbbbbbbbbbbb", "e-0",
	} {
		for _, name := range []string{
			resources.Name(endpoint, resources.ComponentIngress),
			resources.Name(endpoint, resources.ComponentWorker),
			resources.PipelineName(endpoint),
		} {
			// The strictest of all kinds, which is the Service's.
			if faults := validation.IsDNS1035Label(name); len(faults) > 0 {
				t.Errorf("%s: %s: %v", endpoint, name, faults)
			}
			if hostname := name + "-0123456789-01234"; !strings.HasSuffix(name, "-pipeline") && len(hostname) > 63 {
				t.Errorf("%s: the name of a pod is longer than a host name may be: %s", endpoint, hostname)
			}
			if other, ok := seen[name]; ok {
				t.Errorf("%s and %s share the name %s", other, endpoint, name)
			}
			seen[name] = endpoint
		}
		if faults := validation.IsValidLabelValue(resources.InstanceName(endpoint)); len(faults) > 0 {
			t.Errorf("%s: label: %v", endpoint, faults)
		}
	}
}

func TestURL(t *testing.T) {
	e := &v1alpha1.WebhookEndpoint{}
	e.Namespace, e.Name = "payments", "github"
	if got, want := resources.URL(e), "http://github-ingress.payments.svc/hooks/payments/github"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e.Spec.Source.Path = "/in"
	if got, want := resources.URL(e), "http://github-ingress.payments.svc/in"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
