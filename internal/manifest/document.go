package manifest

import (
	"errors"
	"fmt"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// defaultNamespace is the namespace of objects that name none, as kubectl has
// it.
const defaultNamespace = "default"

const kindSecret = "Secret"

// apiVersions has the only apiVersion of each kind that is read.
var apiVersions = map[string]string{
	v1alpha1.KindWebhookEndpoint: v1alpha1.GroupVersion.String(),
	v1alpha1.KindEventReplay:     v1alpha1.GroupVersion.String(),
	kindSecret:                   corev1.SchemeGroupVersion.String(),
}

// readDocument adds the object of one document to the set. file and where say
// where the document stands, where with its number.
func (r *reader) readDocument(file, where string, doc []byte) {
	obj, err := parse(doc)
	if err != nil {
		r.failf("%s: %w", where, err)
		return
	}
	kind := obj.GetKind()
	if kind == "" {
		r.failf("%s: kind: is required, with apiVersion", where)
		return
	}
	want, known := apiVersions[kind]
	if known && obj.GetNamespace() == "" {
		obj.SetNamespace(defaultNamespace)
	}
	id := identify(obj)
	if !known {
		r.set.Ignored = append(r.set.Ignored, file+": "+id)
		return
	}
	where += ": " + id
	errs := duplicates(doc)
	if have := obj.GetAPIVersion(); have != want {
		errs = append(errs, fmt.Errorf("apiVersion: must be %s, is %q", want, have))
	}
	if obj.GetName() == "" {
		errs = append(errs, errors.New("metadata.name: is required"))
	}
	if len(errs) == 0 {
		errs = r.add(file, id, obj)
	}
	for _, err := range errs {
		r.failf("%s: %w", where, err)
	}
}

// parse reads a document as an API server's client does, so that what YAML
// takes for a number or a truth value here is one there.
func parse(doc []byte) (*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	var content any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &content); err != nil {
		return nil, err
	}
	object, ok := content.(map[string]any)
	if !ok {
		return nil, errors.New("must be an object with apiVersion, kind and metadata")
	}
	return &unstructured.Unstructured{Object: object}, nil
}

func identify(obj *unstructured.Unstructured) string {
	name := obj.GetName()
	if namespace := obj.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(obj.GetKind() + " " + name)
}

// duplicates finds the keys that stand twice in the same mapping. A parser
// that only fails cannot say where they stand, so the nodes are walked here.
func duplicates(doc []byte) []error {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(doc, &root); err != nil {
		return []error{err}
	}
	return duplicatesBelow(&root, "")
}

func duplicatesBelow(node *yamlv3.Node, path string) []error {
	var errs []error
	switch node.Kind {
	case yamlv3.DocumentNode:
		for _, child := range node.Content {
			errs = append(errs, duplicatesBelow(child, path)...)
		}
	case yamlv3.SequenceNode:
		for i, child := range node.Content {
			errs = append(errs, duplicatesBelow(child, fmt.Sprintf("%s[%d]", path, i))...)
		}
	case yamlv3.MappingNode:
		first := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i].Value
			at := strings.TrimPrefix(path+"."+key, ".")
			if first[key] {
				errs = append(errs, fmt.Errorf("%s: duplicate field: remove one of the two", at))
			}
			first[key] = true
			errs = append(errs, duplicatesBelow(node.Content[i+1], at)...)
		}
	}
	return errs
}

// add completes, checks and keeps an object of a known kind.
func (r *reader) add(file, id string, obj *unstructured.Unstructured) []error {
	if other, ok := r.seen[id]; ok {
		return []error{fmt.Errorf("is also in %s: remove or rename one of the two", other)}
	}
	r.seen[id] = file
	switch obj.GetKind() {
	case v1alpha1.KindWebhookEndpoint:
		var e v1alpha1.WebhookEndpoint
		if errs := decode(obj, &e); len(errs) > 0 {
			return errs
		}
		if other, ok := r.endpointAt[e.Path()]; ok {
			return []error{fmt.Errorf("spec.source.path: %s is the path of %s already: choose another", e.Path(), other)}
		}
		r.endpointAt[e.Path()] = id
		r.set.Endpoints = append(r.set.Endpoints, e)
	case v1alpha1.KindEventReplay:
		var e v1alpha1.EventReplay
		if errs := decode(obj, &e); len(errs) > 0 {
			return errs
		}
		r.set.Replays = append(r.set.Replays, e)
	case kindSecret:
		secret, errs := decodeSecret(obj)
		if len(errs) > 0 {
			return errs
		}
		r.set.Secrets = append(r.set.Secrets, *secret)
	}
	return nil
}

// decode completes and checks a custom resource and fills into with it.
func decode(obj *unstructured.Unstructured, into any) []error {
	def, err := definitionOf(obj.GetKind())
	if err != nil {
		return []error{err}
	}
	if errs := def.admit(obj); len(errs) > 0 {
		return errs
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, into); err != nil {
		return []error{err}
	}
	return nil
}
