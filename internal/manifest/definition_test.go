package manifest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// Only an update can break the rule, which reading manifests never makes.
func TestReplaySpecIsImmutable(t *testing.T) {
	def, err := definitionOf(v1alpha1.KindEventReplay)
	if err != nil {
		t.Fatal(err)
	}
	replay := func(limit int64, label string) map[string]any {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "ackrail.io/v1alpha1", "kind": "EventReplay",
			"metadata": map[string]any{"name": "a", "namespace": "b", "labels": map[string]any{"x": label}},
			"spec": map[string]any{
				"endpointRef": map[string]any{"name": "github"},
				"selector":    map[string]any{"match": "All"},
				"limit":       limit,
			},
		}}
		if errs := def.admit(obj); len(errs) > 0 {
			t.Fatal(errs)
		}
		return obj.Object
	}
	for _, tc := range []struct {
		name string
		new  map[string]any
		want string
	}{
		{"another label", replay(1, "z"), ""},
		{"another limit", replay(2, "y"), "spec: cannot be changed"},
	} {
		errs, _ := def.rules.Validate(t.Context(), nil, def.structural, tc.new, replay(1, "y"), celconfig.RuntimeCELCostBudget)
		var got string
		for _, err := range errs {
			got += line(err)
		}
		if (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
