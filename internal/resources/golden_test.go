package resources_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/internal/resources"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The objects that endpoints become are reviewed as files: go test -update
// writes them anew.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(inputs) < 4 {
		t.Fatalf("inputs: %v, %v", inputs, err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			endpoint := &read(t, string(text))[0]
			endpoint.UID = "3f0b8c1e-0000-4000-8000-000000000001"
			before := endpoint.DeepCopy()
			args := &resources.Args{Endpoint: endpoint, Image: "registry.example.com/ackrail:v1.2.3", DatabasePorts: []int32{5432, 6432}}
			got := render(t, build(t, args))
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("objects (-want +got); go test -update writes the file anew:\n%s", diff)
			}
			if diff := cmp.Diff(before, endpoint); diff != "" {
				t.Errorf("the endpoint was changed (-before +after):\n%s", diff)
			}
			if again := render(t, build(t, args)); again != got {
				t.Errorf("the same endpoint gives other objects (-first +second):\n%s", cmp.Diff(got, again))
			}
		})
	}
}

func build(t *testing.T, args *resources.Args) *resources.Children {
	t.Helper()
	children, err := resources.Build(args)
	if err != nil {
		t.Fatal(err)
	}
	return children
}

// objects returns the children in the order in which they are rendered.
func objects(c *resources.Children) []any {
	all := []any{c.ServiceAccount, c.ConfigMap, c.Service}
	for _, w := range []resources.Workload{c.Ingress, c.Worker} {
		all = append(all, w.NetworkPolicy, w.PodDisruptionBudget, w.Deployment)
	}
	return all
}

func render(t *testing.T, c *resources.Children) string {
	t.Helper()
	var documents []string
	for _, object := range objects(c) {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(text))
	}
	return strings.Join(documents, "---\n")
}
