package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func toJSON(t *testing.T, text string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// schema is what the tests need of a JSON schema.
type schema struct {
	Ref        string            `json:"$ref"`
	Properties map[string]schema `json:"properties"`
	// Others are false where the schema is closed, and a schema where all
	// properties are alike.
	Others      json.RawMessage   `json:"additionalProperties"`
	Definitions map[string]schema `json:"definitions"`
}

func readSchema(t *testing.T) schema {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// paths returns the values that a schema knows, as readValues spells them. A
// group of the values file is one of the given groups.
func (s schema) paths(t *testing.T, root schema, path string, groups []string) []string {
	t.Helper()
	if name, ok := strings.CutPrefix(s.Ref, "#/definitions/"); ok {
		s = root.Definitions[name]
	}
	if path != "" && !slices.Contains(groups, path) {
		return []string{path}
	}
	if string(s.Others) != "false" {
		t.Errorf("%q is not closed", path)
	}
	var all []string
	for name, property := range s.Properties {
		all = append(all, property.paths(t, root, strings.TrimPrefix(path+"."+name, "."), groups)...)
	}
	return all
}

func TestEveryValueIsInTheSchema(t *testing.T) {
	values, err := readValues(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want, groups []string
	for _, v := range values {
		want = append(want, v.path)
		if group, _, ok := strings.Cut(v.path, "."); ok {
			groups = append(groups, group)
		}
	}
	// Helm adds this to the values of a chart that another one depends on.
	want = append(want, "global")
	root := readSchema(t)
	got := root.paths(t, root, "", groups)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-values.yaml +schema):\n%s", diff)
	}
}

// The values that render everything set each value, so that each is tested.
func TestEverythingSetsEveryValue(t *testing.T) {
	values, err := readValues(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var given map[string]any
	if err := json.Unmarshal(toJSON(t, everything), &given); err != nil {
		t.Fatal(err)
	}
	// Set in tests of their own: off, they leave nothing to look at.
	elsewhere := []string{"watchNamespaces", "crds.enabled", "rbac.create", "serviceAccount.create", "metrics.enabled", "metrics.secure"}
	for _, v := range values {
		var at any = given
		for name := range strings.SplitSeq(v.path, ".") {
			group, _ := at.(map[string]any)
			at = group[name]
		}
		if at == nil && !slices.Contains(elsewhere, v.path) {
			t.Errorf("%s is not set", v.path)
		}
	}
}

func TestRefusedValues(t *testing.T) {
	for values, want := range map[string]string{
		"replica: 2":                                 "additional properties 'replica' not allowed",
		"image: {name: x}":                           "at '/image': additional properties 'name' not allowed",
		"image: {tag: 'a b'}":                        "at '/image/tag': 'a b' does not match pattern",
		"image: {digest: sha256:abc}":                "at '/image/digest': 'sha256:abc' does not match pattern",
		"image: {pullPolicy: Sometimes}":             "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
		"image: {repository: ''}":                    "at '/image/repository': minLength: got 0, want 1",
		"replicas: two":                              "at '/replicas': got string, want integer",
		"replicas: -1":                               "at '/replicas': minimum: got -1, want 0",
		"logLevel: verbose":                          "at '/logLevel': value must be one of 'debug', 'info', 'warn', 'error'",
		"watchNamespaces: payments":                  "at '/watchNamespaces': got string, want array",
		"watchNamespaces: [a, a]":                    "at '/watchNamespaces': items at 0 and 1 are equal",
		"watchNamespaces: ['a,b']":                   "at '/watchNamespaces/0': 'a,b' does not match pattern",
		"metrics: {port: 8081}":                      "at '/metrics/port': 'not' failed",
		"metrics: {port: 70000}":                     "at '/metrics/port': maximum: got 70,000, want 65,535",
		"extraArgs: [verbose]":                       "at '/extraArgs/0': 'verbose' does not match pattern",
		"crds: {keep: 'yes'}":                        "at '/crds/keep': got string, want boolean",
		"podLabels: {a: 1}":                          "at '/podLabels/a': got number, want string",
		"resources: {limit: {}}":                     "at '/resources': additional properties 'limit' not allowed",
		"resources: {limits: {memory: 64 MB}}":       "at '/resources/limits/memory'",
		"imagePullSecrets: [registry]":               "at '/imagePullSecrets/0': got string, want object",
		"networkPolicy: {metricsFrom: [{}]}":         "at '/networkPolicy/metricsFrom/0': minProperties",
		"serviceMonitor: {interval: often}":          "at '/serviceMonitor/interval'",
		"podDisruptionBudget: {maxUnavailable: '1'}": "at '/podDisruptionBudget/maxUnavailable'",
		namespaced + "serviceMonitor: {enabled: true}": "serviceMonitor.enabled: there are no metrics to scrape: set metrics.enabled, " +
			"and with watchNamespaces also metrics.secure=false",
	} {
		t.Run(values, func(t *testing.T) {
			_, _, err := tryRender(t, "ackrail", values)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error: %v\nwant: %s", err, want)
			}
		})
	}
}

func TestSwitchesOff(t *testing.T) {
	all, _ := render(t, "{rbac: {create: false}, serviceAccount: {create: false}, crds: {enabled: false}, metrics: {enabled: false}}")
	if diff := cmp.Diff([]string{"Deployment ackrail-system/ackrail-manager"}, all.keys()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if args := all.args(t); !slices.Contains(args, "--metrics-bind-address=0") {
		t.Errorf("metrics are on: %q", args)
	}
}
