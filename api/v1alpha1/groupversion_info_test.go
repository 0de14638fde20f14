package v1alpha1_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/api/v1alpha1/applyconfiguration"
)

func TestSchemeKnowsEveryKind(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]runtime.Object{
		v1alpha1.KindWebhookEndpoint:          &v1alpha1.WebhookEndpoint{},
		v1alpha1.KindWebhookEndpoint + "List": &v1alpha1.WebhookEndpointList{},
		v1alpha1.KindEventReplay:              &v1alpha1.EventReplay{},
		v1alpha1.KindEventReplay + "List":     &v1alpha1.EventReplayList{},
	} {
		got, err := scheme.New(v1alpha1.GroupVersion.WithKind(kind))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if diff := cmp.Diff(reflect.TypeOf(want).String(), reflect.TypeOf(got).String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestEveryKindHasAnApplyConfiguration(t *testing.T) {
	for _, kind := range []string{v1alpha1.KindWebhookEndpoint, v1alpha1.KindEventReplay} {
		if applyconfiguration.ForKind(v1alpha1.GroupVersion.WithKind(kind)) == nil {
			t.Errorf("%s: no apply configuration: run make generate", kind)
		}
	}
}
