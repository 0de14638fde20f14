package manifest_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/internal/manifest"
)

const baseEndpoint = `
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: github, namespace: payments}
spec:
  source:
    provider: GitHub
    secretRefs: [{name: github-webhook, key: secret}]
  destinations:
  - name: handler
    http: {url: "http://handler:8080/events"}
`

const baseReplay = `
apiVersion: ackrail.io/v1alpha1
kind: EventReplay
metadata: {name: after-fix-1, namespace: payments}
spec:
  endpointRef: {name: github}
  selector: {destinations: [handler]}
`

// edit applies changes to a manifest: "path=value" sets a field to a YAML
// value, "-path" removes one. An index may stand one past a list's end.
func edit(t *testing.T, base string, changes ...string) string {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(base), &object); err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		path, text, set := strings.Cut(change, "=")
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%s: %v", change, err)
		}
		steps := regexp.MustCompile(`[^.\[\]]+`).FindAllString(strings.TrimPrefix(path, "-"), -1)
		put(t, object, steps, value, set)
	}
	out, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// put returns node with the value at steps set or removed.
func put(t *testing.T, node any, steps []string, value any, set bool) any {
	t.Helper()
	if len(steps) == 0 {
		return value
	}
	if i, err := strconv.Atoi(steps[0]); err == nil {
		list, _ := node.([]any)
		if i == len(list) {
			list = append(list, nil)
		}
		list[i] = put(t, list[i], steps[1:], value, set)
		return list
	}
	object, ok := node.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	if len(steps) == 1 && !set {
		if _, ok := object[steps[0]]; !ok {
			t.Fatalf("nothing to remove at %s", steps[0])
		}
		delete(object, steps[0])
		return object
	}
	object[steps[0]] = put(t, object[steps[0]], steps[1:], value, set)
	return object
}

func read(text string) (*manifest.Set, error) {
	return manifest.Read([]string{"-"}, strings.NewReader(text))
}
