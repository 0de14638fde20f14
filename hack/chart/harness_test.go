package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../../charts/ackrail"
	namespace = "ackrail-system"
)

// objects are what a chart or a kustomization makes, by kind, namespace and name.
type objects map[string]*unstructured.Unstructured

func key(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// keys returns which objects there are.
func (o objects) keys() []string {
	var keys []string
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (o objects) get(t *testing.T, k string) *unstructured.Unstructured {
	t.Helper()
	if o[k] == nil {
		t.Fatalf("no %s among %q", k, o.keys())
	}
	return o[k]
}

// without returns the objects that are not of one of the kinds.
func (o objects) without(kinds ...string) objects {
	rest := objects{}
	for k, object := range o {
		if !slices.Contains(kinds, object.GetKind()) {
			rest[k] = object
		}
	}
	return rest
}

// args returns the arguments of the manager.
func (o objects) args(t *testing.T) []string {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(o.get(t, "Deployment "+namespace+"/ackrail-manager").Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("containers: %v, %v", containers, err)
	}
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if err != nil {
		t.Fatal(err)
	}
	return args
}

// text returns the objects as YAML in the order of their keys.
func (o objects) text(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, k := range o.keys() {
		data, err := yaml.Marshal(o[k].Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", data)
	}
	return out.String()
}

// parse reads a stream of YAML documents and refuses duplicate objects and
// duplicate fields.
func parse(t *testing.T, stream string) objects {
	t.Helper()
	all := objects{}
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(stream))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var content map[string]any
		if err := yaml.UnmarshalStrict(document, &content); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if content == nil {
			continue
		}
		o := &unstructured.Unstructured{Object: content}
		if all[key(o)] != nil {
			t.Errorf("%s is there twice", key(o))
		}
		all[key(o)] = o
	}
}

// render installs the chart nowhere, with values in YAML, as the release
// ackrail. It returns the objects and the notes.
func render(t *testing.T, values string) (objects, string) {
	t.Helper()
	manifest, notes, err := tryRender(t, "ackrail", values)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, manifest), notes
}

func tryRender(t *testing.T, name, values string) (manifest, notes string, err error) {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(action.NewConfiguration())
	install.DryRunStrategy = action.DryRunClient
	install.ReleaseName, install.Namespace = name, namespace
	install.KubeVersion, err = common.ParseKubeVersion("v1.37.2")
	if err != nil {
		t.Fatal(err)
	}
	released, err := install.RunWithContext(t.Context(), chart, given)
	if err != nil {
		return "", "", err
	}
	accessor, err := release.NewAccessor(released)
	if err != nil {
		t.Fatal(err)
	}
	return accessor.Manifest(), accessor.Notes(), nil
}
