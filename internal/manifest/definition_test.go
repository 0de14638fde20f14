package manifest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// Only an update can break the rules, which reading manifests never makes.
func TestReplaySpecIsImmutable(t *testing.T) {
	def, err := definitionOf(v1alpha1.KindEventReplay)
	if err != nil {
		t.Fatal(err)
	}
	type edit = func(labels, spec map[string]any)
	replay := func(edits ...edit) map[string]any {
		labels := map[string]any{"x": "y"}
		spec := map[string]any{
			"endpointRef": map[string]any{"name": "github"},
			"selector":    map[string]any{"match": "All"},
			"limit":       int64(1), "maxPerSecond": int64(1), "ttlSecondsAfterFinished": int64(1),
		}
		for _, edit := range edits {
			edit(labels, spec)
		}
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "ackrail.io/v1alpha1", "kind": "EventReplay",
			"metadata": map[string]any{"name": "a", "namespace": "b", "labels": labels},
			"spec":     spec,
		}}
		if errs := def.admit(obj); len(errs) > 0 {
			t.Fatal(errs)
		}
		return obj.Object
	}
	set := func(field string, value any) edit {
		return func(_, spec map[string]any) { spec[field] = value }
	}
	remove := func(field string) edit {
		return func(_, spec map[string]any) { delete(spec, field) }
	}
	const refused = " cannot be changed"
	for _, tc := range []struct {
		name     string
		old, new edit
		want     string
	}{
		{"a label", nil, func(labels, _ map[string]any) { labels["x"] = "z" }, ""},
		{"suspend", nil, set("suspend", true), ""},
		{"resume", set("suspend", true), set("suspend", false), ""},
		{"endpoint", nil, set("endpointRef", map[string]any{"name": "gitlab"}), "spec.endpointRef:" + refused},
		{"selector", nil, set("selector", map[string]any{"types": []any{"push"}}), "spec.selector:" + refused},
		{"mode", nil, set("mode", "DryRun"), "spec.mode:" + refused},
		{"mode by its default", set("mode", "DryRun"), remove("mode"), "spec.mode:" + refused},
		{"limit", nil, set("limit", int64(2)), "spec.limit:" + refused},
		{"limit away", nil, remove("limit"), "spec.limit:" + refused},
		{"limit new", remove("limit"), nil, "spec.limit:" + refused},
		{"rate", nil, set("maxPerSecond", int64(2)), "spec.maxPerSecond:" + refused},
		{"rate away", nil, remove("maxPerSecond"), "spec.maxPerSecond:" + refused},
		{"rate new", remove("maxPerSecond"), nil, "spec.maxPerSecond:" + refused},
		{"ttl", nil, set("ttlSecondsAfterFinished", int64(2)), "spec.ttlSecondsAfterFinished:" + refused},
		{"ttl away", nil, remove("ttlSecondsAfterFinished"), "spec.ttlSecondsAfterFinished:" + refused},
		{"ttl new", remove("ttlSecondsAfterFinished"), nil, "spec.ttlSecondsAfterFinished:" + refused},
	} {
		nothing := func(_, _ map[string]any) {}
		if tc.old == nil {
			tc.old = nothing
		}
		if tc.new == nil {
			tc.new = nothing
		}
		errs, _ := def.rules.Validate(t.Context(), nil, def.structural, replay(tc.new), replay(tc.old), celconfig.RuntimeCELCostBudget)
		var got string
		for _, err := range errs {
			got += line(err)
		}
		if (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
