package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/config/crd"
)

// definition is a CustomResourceDefinition, ready to judge objects.
type definition struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// definitions has every embedded definition by kind. Compiling their rules
// takes a moment, so that it is done once, and only where a manifest is read.
var definitions = sync.OnceValues(func() (map[string]*definition, error) {
	files, err := fs.Glob(crd.Bases, "bases/*.yaml")
	if err != nil {
		return nil, err
	}
	byKind := map[string]*definition{}
	for _, file := range files {
		data, err := fs.ReadFile(crd.Bases, file)
		if err != nil {
			return nil, err
		}
		kind, def, err := newDefinition(data)
		if err != nil {
			return nil, fmt.Errorf("embedded definition %s: %w", file, err)
		}
		byKind[kind] = def
	}
	return byKind, nil
})

func definitionOf(kind string) (*definition, error) {
	all, err := definitions()
	if err != nil {
		return nil, err
	}
	def, ok := all[kind]
	if !ok {
		return nil, fmt.Errorf("no definition of kind %s", kind)
	}
	return def, nil
}

func newDefinition(data []byte) (kind string, def *definition, err error) {
	var object apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &object); err != nil {
		return "", nil, err
	}
	if n := len(object.Spec.Versions); n != 1 {
		return "", nil, fmt.Errorf("has %d versions, want 1", n)
	}
	var props apiextensions.JSONSchemaProps
	v1 := object.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, &props, nil); err != nil {
		return "", nil, err
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		return "", nil, err
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return "", nil, err
	}
	return object.Spec.Names.Kind, &definition{
		structural: structural,
		schema:     validator,
		rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// admit does to obj what an API server does to a new object before it stores
// it, in the same order: unknown fields, status dropped, defaults, schema,
// rules.
func (d *definition) admit(obj *unstructured.Unstructured) []error {
	meta, _, unknownMeta, err := objectmeta.GetObjectMetaWithOptions(obj.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return []error{fmt.Errorf("metadata: %w", err)}
	}
	unknown := pruning.PruneWithOptions(obj.Object, d.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	var errs []error
	for _, path := range append(unknownMeta, unknown...) {
		errs = append(errs, unknownField(path))
	}
	delete(obj.Object, "status")
	defaulting.PruneNonNullableNullsWithoutDefaults(obj.Object, d.structural)
	defaulting.Default(obj.Object, d.structural)
	errs = append(errs, checkMeta(meta)...)
	return append(errs, lines(d.validate(obj))...)
}

func (d *definition) validate(obj *unstructured.Unstructured) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, obj.Object, d.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, obj.Object)...)
	if blocksRules(errs) {
		return errs
	}
	ruleErrs, _ := d.rules.Validate(context.Background(), nil, d.structural, obj.Object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, ruleErrs...)
}

// blocksRules says whether the object is so far from its schema that its rules
// are not evaluated: the same errors block them in an API server.
func blocksRules(errs field.ErrorList) bool {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

func checkMeta(meta *metav1.ObjectMeta) []error {
	return lines(apivalidation.ValidateObjectMeta(meta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata")))
}

func unknownField(path string) error {
	return fmt.Errorf("%s: unknown field: remove it, or correct its name", path)
}

// lines writes errors for people. Those that name no field are left out where
// others do: the schema's validator says about numbers everything twice.
func lines(errs field.ErrorList) []error {
	named := slices.ContainsFunc(errs, namesField)
	var out []error
	for _, err := range errs {
		if !named || namesField(err) {
			out = append(out, errors.New(line(err)))
		}
	}
	return out
}

func namesField(err *field.Error) bool {
	var none *field.Path
	return err.Field != none.String()
}

// line writes an error on one line, without what an API server's wording
// repeats: the path, and the value, which may be a password where it does not
// belong.
func line(err *field.Error) string {
	detail := strings.TrimPrefix(err.Detail, err.Field+" in body ")
	detail = strings.ReplaceAll(detail, "\n", " ")
	switch err.Type {
	case field.ErrorTypeRequired:
		if detail == "" {
			detail = "is required"
		}
	case field.ErrorTypeDuplicate:
		detail = "stands twice in the list: remove one of the two"
	case field.ErrorTypeNotSupported:
		detail = fmt.Sprintf("unknown value %q: %s", err.BadValue, detail)
	}
	return err.Field + ": " + detail
}
