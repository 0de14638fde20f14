package manifest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/manifest"
)

// What a program makes is completed and judged as what a file holds.
func TestCompleteReplay(t *testing.T) {
	want, err := read(baseReplay)
	if err != nil {
		t.Fatal(err)
	}
	r := &v1alpha1.EventReplay{
		ObjectMeta: metav1.ObjectMeta{Name: "after-fix-1", Namespace: "payments"},
		Spec: v1alpha1.EventReplaySpec{
			EndpointRef: v1alpha1.EndpointRef{Name: "github"},
			Selector:    v1alpha1.ReplaySelector{Destinations: []string{"handler"}},
		},
	}
	bad := r.DeepCopy()
	bad.Name, bad.Spec.Selector.Destinations[0] = "", "Handler"
	asItWas := bad.DeepCopy()
	if errs := manifest.CompleteReplay(r); len(errs) > 0 {
		t.Fatal(errs)
	}
	if diff := cmp.Diff(&want.Replays[0], r); diff != "" {
		t.Errorf("(-file +program):\n%s", diff)
	}
	var got []string
	for _, err := range manifest.CompleteReplay(bad) {
		got = append(got, err.Error())
	}
	wantErrs := []string{
		"metadata.name: name or generateName is required",
		"spec.selector.destinations[0]: must be the name of a destination: lower-case letters, digits and '-', with a letter or digit at each end",
	}
	if diff := cmp.Diff(wantErrs, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(asItWas, bad); diff != "" {
		t.Errorf("what is wrong was changed (-was +is):\n%s", diff)
	}
}
