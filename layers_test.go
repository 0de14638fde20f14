package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/ackrail/ackrail"

// A place is a package, or a tree of packages where its path ends in "/...",
// in the order of the layers: an import may only point to a lower layer.
type place struct {
	path  string
	layer int
	// external are the modules besides the standard library that the place
	// may import, by the start of their paths.
	external []string
}

var (
	none     = []string{}
	anything = []string{""}
)

// places is the table of layers. Depguard checks the same in the editor; see
// .golangci.yml.
var places = []place{
	{"internal/event", 0, []string{"github.com/google/uuid"}},
	{"internal/backoff", 0, none},
	{"internal/signature", 0, none},

	{"api/...", 1, []string{"k8s.io/api/core/v1", "k8s.io/apimachinery/", "k8s.io/client-go/applyconfigurations/", "sigs.k8s.io/structured-merge-diff/"}},
	{"config/crd", 1, none},
	{"internal/ops", 1, []string{"github.com/prometheus/client_golang/"}},
	{"internal/pipeline", 1, []string{"golang.org/x/net/http/httpguts"}},
	{"internal/replay", 1, []string{"github.com/google/uuid", "golang.org/x/time/rate"}},
	{"internal/secretfile", 1, none},
	{"internal/postgres/...", 1, none},

	{"internal/store", 2, anything},
	{"internal/deliver", 2, anything},
	{"internal/manifest", 2, anything},
	{"internal/ssa", 2, anything},
	{"internal/conditions", 2, anything},

	{"internal/resources", 3, anything},
	{"internal/ingress", 3, anything},
	{"internal/worker", 3, anything},
	{"internal/databases", 3, anything},

	{"controllers/...", 4, anything},

	{"internal/testenv/...", 4, anything},
	{"internal/invariant", 4, anything},
	{"internal/e2e", 4, anything},

	{"internal/cli", 5, anything},
	{"internal/rig", 5, anything},
	{"internal/faults", 5, none},
	{"hack/...", 5, anything},

	{".", 6, none},
}

// testsOnly are the places that only tests, and each other, may import.
var testsOnly = []string{"internal/testenv/...", "internal/invariant", "internal/rig"}

// dataPlane are the packages that run without Kubernetes.
var dataPlane = []string{
	"internal/event", "internal/backoff", "internal/signature", "internal/ops", "internal/pipeline", "internal/secretfile",
	"internal/store", "internal/deliver", "internal/ingress", "internal/worker", "internal/replay",
}

// A wall keeps what some packages import, directly or not, free of others.
type wall struct {
	name string
	// applies says whether a package stands behind the wall.
	applies func(rel string) bool
	// refused are the starts of the paths that must not be imported.
	refused []string
}

var walls = []wall{
	{
		"the data plane must not depend on Kubernetes",
		func(rel string) bool { return slices.Contains(dataPlane, rel) },
		[]string{"k8s.io/", "sigs.k8s.io/", module + "/api/"},
	},
	{
		"controllers reach the store through interfaces of their own",
		func(rel string) bool { return strings.HasPrefix(rel, "controllers/") },
		[]string{"github.com/jackc/pgx"},
	},
}

// goPackage is what go list tells about a package of this module.
type goPackage struct {
	ImportPath string
	Name       string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func (p *goPackage) rel() string { return relative(p.ImportPath) }

// relative returns the path of a package within the module, "." for its root,
// and importPath itself for packages of other modules.
func relative(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func within(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func placeOf(rel string) (place, bool) {
	i := slices.IndexFunc(places, func(p place) bool {
		tree, isTree := strings.CutSuffix(p.path, "/...")
		return rel == tree || isTree && strings.HasPrefix(rel, tree+"/")
	})
	if i < 0 {
		return place{}, false
	}
	return places[i], true
}

// check returns everything in which the packages break the rules.
func check(packages []goPackage) []string {
	var faults []string
	for _, p := range packages {
		faults = append(faults, checkShape(&p)...)
		faults = append(faults, checkWalls(&p)...)
		from, ok := placeOf(p.rel())
		if !ok {
			faults = append(faults, p.rel()+": has no layer: add it to places in layers_test.go and to depguard in .golangci.yml")
			continue
		}
		for _, imported := range p.Imports {
			if fault := checkImport(from, imported); fault != "" {
				faults = append(faults, p.rel()+": "+fault)
			}
		}
	}
	return faults
}

func checkImport(from place, imported string) string {
	if !within(imported) {
		allowed := slices.ContainsFunc(from.external, func(start string) bool { return strings.HasPrefix(imported, start) })
		if standard(imported) || allowed {
			return ""
		}
		return fmt.Sprintf("imports %s, which its layer does not know", imported)
	}
	rel := relative(imported)
	to, ok := placeOf(rel)
	switch {
	case slices.Contains(testsOnly, to.path) && !slices.Contains(testsOnly, from.path):
		return "imports " + rel + ", which is for tests only"
	case !ok || to.path == from.path:
		return ""
	case to.layer >= from.layer:
		return fmt.Sprintf("is in layer %d and imports %s of layer %d: imports point to lower layers only", from.layer, rel, to.layer)
	}
	return ""
}

func checkShape(p *goPackage) []string {
	var faults []string
	elements := append(strings.Split(p.rel(), "/"), p.Name)
	slices.Sort(elements)
	for _, element := range slices.Compact(elements) {
		if slices.Contains([]string{"util", "utils", "common", "helpers", "helper", "pkg"}, element) {
			faults = append(faults, fmt.Sprintf("%s: %q says nothing: name the package after what it is for", p.rel(), element))
		}
	}
	generated := slices.Contains(strings.Split(p.rel(), "/"), "applyconfiguration")
	if p.Name != "main" && !generated && !slices.Contains(p.GoFiles, "doc.go") {
		faults = append(faults, p.rel()+": has no doc.go, which says what the package is for and what it must not know")
	}
	return faults
}

func checkWalls(p *goPackage) []string {
	var faults []string
	for _, w := range walls {
		if !w.applies(p.rel()) {
			continue
		}
		for _, dep := range p.Deps {
			if slices.ContainsFunc(w.refused, func(start string) bool { return strings.HasPrefix(dep, start) }) {
				faults = append(faults, fmt.Sprintf("%s: depends on %s: %s", p.rel(), dep, w.name))
				break
			}
		}
	}
	return faults
}

func TestLayers(t *testing.T) {
	noticeChanges(t)
	packages := listPackages(t)
	if len(packages) < 5 {
		t.Fatalf("go list found %d packages", len(packages))
	}
	for _, fault := range check(packages) {
		t.Error(fault)
	}
}

// noticeChanges opens every folder of Go files, which go test remembers: the
// cached result of this test is good only as long as none of them changes.
// What go list opens it does not see.
func noticeChanges(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && file != "." && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,GoFiles,Imports,Deps", "./...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		// A folder may hold tests only.
		if len(p.GoFiles) > 0 {
			packages = append(packages, p)
		}
	}
}

func TestCheckFindsViolations(t *testing.T) {
	in := func(rel string, imports ...string) goPackage {
		return goPackage{
			ImportPath: path.Join(module, rel), Name: path.Base(rel), GoFiles: []string{"doc.go"},
			Imports: imports, Deps: imports,
		}
	}
	for _, tc := range []struct {
		name string
		in   goPackage
		want []string
	}{
		{"down", in("internal/worker", "context", module+"/internal/store", module+"/internal/event", "github.com/prometheus/client_golang"), nil},
		{"within a tree", in("internal/postgres", module+"/internal/postgres/child"), nil},
		{"up", in("internal/store", module+"/internal/worker"), []string{
			"internal/store: is in layer 2 and imports internal/worker of layer 3: imports point to lower layers only",
		}},
		{"aside", in("internal/ingress", module+"/internal/worker"), []string{
			"internal/ingress: is in layer 3 and imports internal/worker of layer 3: imports point to lower layers only",
		}},
		{"library in layer 0", in("internal/backoff", "golang.org/x/time/rate"), []string{
			"internal/backoff: imports golang.org/x/time/rate, which its layer does not know",
		}},
		{"Kubernetes in the data plane", in("internal/ingress", "k8s.io/apimachinery/pkg/types"), []string{
			"internal/ingress: depends on k8s.io/apimachinery/pkg/types: the data plane must not depend on Kubernetes",
		}},
		{"api in the data plane", in("internal/worker", module+"/api/v1alpha1"), []string{
			"internal/worker: depends on " + module + "/api/v1alpha1: the data plane must not depend on Kubernetes",
		}},
		{
			"Kubernetes through another package",
			goPackage{ImportPath: module + "/internal/replay", GoFiles: []string{"doc.go"}, Deps: []string{"context", "sigs.k8s.io/yaml"}},
			[]string{"internal/replay: depends on sigs.k8s.io/yaml: the data plane must not depend on Kubernetes"},
		},
		{"pgx in a controller", in("controllers/eventreplay", "github.com/jackc/pgx/v5"), []string{
			"controllers/eventreplay: depends on github.com/jackc/pgx/v5: controllers reach the store through interfaces of their own",
		}},
		{"a controller in another", in("controllers/eventreplay", module+"/controllers/webhookendpoint"), nil},
		{"test API server outside tests", in("controllers/eventreplay", module+"/internal/testenv/apiserver"), []string{
			"controllers/eventreplay: imports internal/testenv/apiserver, which is for tests only",
		}},
		{"testenv outside tests", in("internal/cli", module+"/internal/testenv"), []string{
			"internal/cli: imports internal/testenv, which is for tests only",
		}},
		{"invariant outside tests", in("internal/cli", module+"/internal/invariant"), []string{
			"internal/cli: imports internal/invariant, which is for tests only",
		}},
		{"rig outside tests", in("internal/cli", module+"/internal/rig"), []string{
			"internal/cli: imports internal/rig, which is for tests only",
		}},
		{"rig uses testenv", in("internal/rig", module+"/internal/testenv"), nil},
		{"no layer", in("internal/nowhere"), []string{
			"internal/nowhere: has no layer: add it to places in layers_test.go and to depguard in .golangci.yml",
		}},
		{"empty name", in("internal/postgres/common"), []string{
			`internal/postgres/common: "common" says nothing: name the package after what it is for`,
		}},
		{"no doc.go", goPackage{ImportPath: module + "/internal/event", Name: "event", GoFiles: []string{"event.go"}}, []string{
			"internal/event: has no doc.go, which says what the package is for and what it must not know",
		}},
		{"main needs no doc.go", goPackage{ImportPath: module, Name: "main", GoFiles: []string{"main.go"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, check([]goPackage{tc.in})); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}
