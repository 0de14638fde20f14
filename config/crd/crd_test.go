package crd_test

import (
	"io/fs"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/config/crd"
)

// An API server refuses a definition whose schema is not structural, whose
// defaults break its own rules, or whose rules could cost too much to
// evaluate. This is the server's own check.
func TestDefinitionsAreAcceptedByAnAPIServer(t *testing.T) {
	files, err := fs.Glob(crd.Bases, "bases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 {
		t.Fatalf("embedded definitions: %q, want two", files)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			data, err := fs.ReadFile(crd.Bases, file)
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range validate(t, data) {
				t.Error(err)
			}
		})
	}
}

func validate(t *testing.T, data []byte) []error {
	t.Helper()
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &v1); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&v1)
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, &internal, nil); err != nil {
		t.Fatal(err)
	}
	// The server fills this in before it validates.
	internal.Status.StoredVersions = []string{"v1alpha1"}
	var errs []error
	for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), &internal) {
		errs = append(errs, err)
	}
	return errs
}

func TestCheckSeesADefinitionThatCostsTooMuch(t *testing.T) {
	const unbounded = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.ackrail.io}
spec:
  group: ackrail.io
  names: {kind: Thing, listKind: ThingList, plural: things, singular: thing}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              names: {type: array, items: {type: string}}
            x-kubernetes-validations:
            - rule: self.names.all(a, self.names.all(b, a.contains(b)))
`
	if errs := validate(t, []byte(unbounded)); len(errs) == 0 {
		t.Error("a rule over unbounded lists was accepted")
	}
}
