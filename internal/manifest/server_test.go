package manifest_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/internal/testenv/apiserver"
)

// An API server judges every manifest as this package does: what one takes,
// the other takes, and both name the same field and the same rule.
func TestAnAPIServerJudgesAlike(t *testing.T) {
	c := startServer(t)
	t.Run("creation", func(t *testing.T) {
		for _, row := range append(endpointRows(), replayRows()...) {
			t.Run(row.name, func(t *testing.T) {
				err := c.Create(t.Context(), parse(t, edit(t, row.base, row.set...)), client.DryRunAll)
				compareVerdict(t, err, row.want)
			})
		}
	})
	t.Run("change", func(t *testing.T) { testChanges(t, c) })
}

func startServer(t *testing.T) client.Client {
	t.Helper()
	server, err := apiserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(server.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "payments"}}); err != nil {
		t.Fatal(err)
	}
	return client.WithFieldValidation(c, client.FieldValidation(metav1.FieldValidationStrict))
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// compareVerdict checks the server's error against a part of this package's:
// the field, and behind it the message where it is a rule's. The rest is
// worded otherwise.
func compareVerdict(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("the server refuses: %v", err)
		}
		return
	}
	if err == nil {
		t.Errorf("the server accepts, want an error about %q", want)
		return
	}
	field, message, _ := strings.Cut(want, ": ")
	if strings.HasPrefix(field, "spec.") && !strings.Contains(err.Error(), field) {
		t.Errorf("the server's error does not name %s: %v", field, err)
	}
	if isRule(t, message) && !strings.Contains(err.Error(), message) {
		t.Errorf("the server's error does not say %q: %v", message, err)
	}
}

func isRule(t *testing.T, start string) bool {
	t.Helper()
	if start == "is required" { // by the schema, in the server's words "Required value"
		return false
	}
	for _, message := range messages(t) {
		if strings.HasPrefix(message, start) {
			return true
		}
	}
	return false
}

func testChanges(t *testing.T, c client.Client) {
	original := edit(t, baseReplay, "spec.limit=1", "spec.maxPerSecond=1", "spec.ttlSecondsAfterFinished=1")
	created := parse(t, original)
	if err := c.Create(t.Context(), created); err != nil {
		t.Fatal(err)
	}
	const refused = ": cannot be changed"
	for _, tc := range []struct{ change, want string }{
		{"metadata.labels={a: b}", ""},
		{"spec.suspend=true", ""},
		{"spec.endpointRef={name: other}", "spec.endpointRef" + refused},
		{"spec.selector={match: All}", "spec.selector" + refused},
		{"spec.mode=DryRun", "spec.mode" + refused},
		{"spec.limit=2", "spec.limit" + refused},
		{"-spec.limit", "spec.limit" + refused},
		{"spec.maxPerSecond=2", "spec.maxPerSecond" + refused},
		{"-spec.maxPerSecond", "spec.maxPerSecond" + refused},
		{"spec.ttlSecondsAfterFinished=2", "spec.ttlSecondsAfterFinished" + refused},
		{"-spec.ttlSecondsAfterFinished", "spec.ttlSecondsAfterFinished" + refused},
	} {
		t.Run(tc.change, func(t *testing.T) {
			obj := parse(t, edit(t, original, tc.change))
			obj.SetResourceVersion(created.GetResourceVersion())
			compareVerdict(t, c.Update(t.Context(), obj, client.DryRunAll), tc.want)
		})
	}
}
