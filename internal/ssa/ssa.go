package ssa

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldOwner is under whose name everything is applied. It must never change:
// fields applied under another name would stay for ever.
const FieldOwner = "ackrail-manager"

// Applier applies configurations for one owner, which must be the controller
// of every object that it writes.
type Applier struct {
	// Client reads from a cache that may be limited to some objects, must
	// hold their managed fields, and writes.
	Client client.Client
	// APIReader reads what the cache does not have.
	APIReader client.Reader
	// Owner is the controller that the configurations name: its Kind, Name
	// and UID.
	Owner metav1.OwnerReference
}

// Config is a typed apply configuration, such as DeploymentApplyConfiguration.
type Config interface {
	runtime.ApplyConfiguration
	GetKind() *string
	GetName() *string
	GetNamespace() *string
}

// Result says what an apply did.
type Result string

// The results.
const (
	// Unchanged: the object was as wanted, and nothing was written.
	Unchanged Result = "unchanged"
	Created   Result = "created"
	Updated   Result = "updated"
)

// Apply brings the object that want names to what want says, unless it is so
// already. extract is the Extract function of the kind's package. Afterwards
// live, which should be empty before, is the object as the cache or the API
// server has it.
//
// The error is a *ConflictError where the object belongs to somebody else;
// otherwise it is what the API server answered.
func Apply[L Object[T], T any, C Config](
	ctx context.Context, a *Applier, live L, want C, extract func(L, string) (C, error),
) (Result, error) {
	kind, name := *want.GetKind(), *want.GetName()
	found, err := a.get(ctx, client.ObjectKey{Namespace: *want.GetNamespace(), Name: name}, live)
	if err != nil {
		return "", fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	result := Created
	if found {
		result = Updated
		if err := a.checkController(live, kind); err != nil {
			return "", err
		}
		owned, err := extract(live, FieldOwner)
		if err != nil {
			return "", fmt.Errorf("reading the fields of %s %s: %w", kind, name, err)
		}
		if equality.Semantic.DeepEqual(owned, want) {
			return Unchanged, nil
		}
	}
	// The answer is read into want.
	if err := a.Client.Apply(ctx, want, client.FieldOwner(FieldOwner), client.ForceOwnership); err != nil {
		return "", fmt.Errorf("applying %s %s: %w", kind, name, err)
	}
	answer, err := json.Marshal(want)
	if err != nil {
		return "", fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	*live = *new(T) // decoding over the former object would keep parts of it
	if err := json.Unmarshal(answer, live); err != nil {
		return "", fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	return result, nil
}

// Object is a pointer to a type T of objects.
type Object[T any] interface {
	*T
	client.Object
}

// get looks into the cache, and asks the API server for what is not there:
// somebody else's object, or one that lost the label that the cache goes by.
func (a *Applier) get(ctx context.Context, key client.ObjectKey, live client.Object) (bool, error) {
	err := a.Client.Get(ctx, key, live)
	if apierrors.IsNotFound(err) {
		err = a.APIReader.Get(ctx, key, live)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// checkController refuses objects of others. One that has no controller but
// was applied by FieldOwner is an orphan: its owner was deleted without it, or
// somebody has removed the reference. It is taken in again.
func (a *Applier) checkController(live client.Object, kind string) error {
	controller := metav1.GetControllerOf(live)
	if controller != nil && controller.UID == a.Owner.UID || controller == nil && isOrphan(live) {
		return nil
	}
	e := &ConflictError{Kind: kind, Name: live.GetName()}
	if controller != nil {
		e.Controller = controller.Kind + " " + controller.Name
		e.Leftover = controller.Kind == a.Owner.Kind && controller.Name == a.Owner.Name
	}
	return e
}

func isOrphan(live client.Object) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldOwner && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

// ConflictError says that the object that is needed belongs to somebody else.
type ConflictError struct {
	Kind, Name string
	// Controller is the kind and name of the object's controller, "" if it
	// has none.
	Controller string
	// Leftover: the controller is an earlier object of the owner's name, and
	// the garbage collector is about to delete what it had.
	Leftover bool
}

func (e *ConflictError) Error() string {
	switch {
	case e.Leftover:
		return fmt.Sprintf("%s %s still belongs to an earlier %s, and is about to be deleted", e.Kind, e.Name, e.Controller)
	case e.Controller == "":
		return fmt.Sprintf("%s %s exists and was not made for this object: delete or rename it", e.Kind, e.Name)
	}
	return fmt.Sprintf("%s %s belongs to %s: delete or rename it", e.Kind, e.Name, e.Controller)
}
