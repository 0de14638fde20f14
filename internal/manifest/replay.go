package manifest

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// CompleteReplay completes and checks an EventReplay that was made by a
// program, as Read does with one of a file. The errors are everything that is
// wrong, each beginning with the path of its field and ": "; then r is left as
// it was.
func CompleteReplay(r *v1alpha1.EventReplay) []error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
	if err != nil {
		return []error{fmt.Errorf("encoding the EventReplay: %w", err)}
	}
	obj := &unstructured.Unstructured{Object: object}
	obj.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindEventReplay))
	var complete v1alpha1.EventReplay
	if errs := decode(obj, &complete); len(errs) > 0 {
		return errs
	}
	*r = complete
	return nil
}
