package manifest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
)

// decodeSecret decodes strictly. The values are looked at before the decoder
// sees them: it would name no key, and could repeat a value in its error.
func decodeSecret(obj *unstructured.Unstructured) (*corev1.Secret, []error) {
	errs := checkValues(obj, "data", func(value string) bool {
		_, err := base64.StdEncoding.DecodeString(value)
		return err == nil
	}, "is not base64: encode it, or put the plain text under stringData")
	errs = append(errs, checkValues(obj, "stringData", func(string) bool { return true }, "")...)
	if len(errs) > 0 {
		return nil, errs
	}
	data, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, []error{err}
	}
	var secret corev1.Secret
	strict, err := kjson.UnmarshalStrict(data, &secret)
	if err != nil {
		return nil, []error{err}
	}
	for _, err := range strict {
		errs = append(errs, unknownField(strings.Trim(strings.TrimPrefix(err.Error(), "unknown field "), `"`)))
	}
	errs = append(errs, checkMeta(&secret.ObjectMeta)...)
	return &secret, errs
}

// checkValues says which values of a field's map are not text, or not ok.
func checkValues(obj *unstructured.Unstructured, field string, ok func(string) bool, message string) []error {
	switch values := obj.Object[field].(type) {
	case nil:
		return nil
	case map[string]any:
		var errs []error
		for _, key := range slices.Sorted(maps.Keys(values)) {
			text, isText := values[key].(string)
			switch {
			case !isText:
				errs = append(errs, fmt.Errorf("%s.%s: must be text: put it into quotes", field, key))
			case !ok(text):
				errs = append(errs, fmt.Errorf("%s.%s: %s", field, key, message))
			}
		}
		return errs
	default:
		return []error{fmt.Errorf("%s: must map keys to values", field)}
	}
}
