package webhookendpoint

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/conditions"
	"github.com/ackrail/ackrail/internal/resources"
	"github.com/ackrail/ackrail/internal/ssa"
)

// applyChildren brings the children to what the spec says, in an order in
// which none refers to one that is not there yet. The first that cannot be
// applied ends it. The error is one that the next try may not meet.
func (r *Reconciler) applyChildren(ctx context.Context, s *scope) error {
	err := r.applyAll(ctx, s)
	s.apply = applyFault(err)
	if s.apply == nil {
		s.applied = true
		return nil
	}
	if s.apply.final || s.apply.reason == v1alpha1.ReasonNotApplied {
		err = nil // told in the status, and looked at again at leisure
	}
	return errors.Join(err, r.observeChildren(ctx, s))
}

func (r *Reconciler) applyAll(ctx context.Context, s *scope) error {
	e := s.endpoint
	c, err := resources.Build(&resources.Args{Endpoint: e, Image: r.Image, DatabasePorts: resources.DatabasePorts(s.databaseURL)})
	if err != nil {
		return &buildError{err}
	}
	a := &ssa.Applier{
		Client: r.Client, APIReader: r.APIReader,
		Owner: metav1.OwnerReference{Kind: v1alpha1.KindWebhookEndpoint, Name: e.Name, UID: e.UID},
	}
	_, err = apply(ctx, s, a, c.ServiceAccount, corev1ac.ExtractServiceAccount)
	if err == nil {
		_, err = apply(ctx, s, a, c.ConfigMap, corev1ac.ExtractConfigMap)
	}
	if err == nil {
		_, err = apply(ctx, s, a, c.Service, corev1ac.ExtractService)
	}
	if err == nil {
		s.ingress, err = applyWorkload(ctx, s, a, &c.Ingress)
	}
	if err == nil {
		s.worker, err = applyWorkload(ctx, s, a, &c.Worker)
	}
	return err
}

func applyWorkload(ctx context.Context, s *scope, a *ssa.Applier, w *resources.Workload) (*appsv1.Deployment, error) {
	if _, err := apply(ctx, s, a, w.NetworkPolicy, networkingv1ac.ExtractNetworkPolicy); err != nil {
		return nil, err
	}
	if _, err := apply(ctx, s, a, w.PodDisruptionBudget, policyv1ac.ExtractPodDisruptionBudget); err != nil {
		return nil, err
	}
	return apply(ctx, s, a, w.Deployment, appsv1ac.ExtractDeployment)
}

// apply applies one child and returns it as it then is, nil if that failed.
func apply[L ssa.Object[T], T any, C ssa.Config](
	ctx context.Context, s *scope, a *ssa.Applier, want C, extract func(L, string) (C, error),
) (L, error) {
	kind, name := *want.GetKind(), *want.GetName()
	live := L(new(T))
	result, err := ssa.Apply(ctx, a, live, want, extract)
	if err != nil {
		return nil, err
	}
	if result != ssa.Unchanged {
		log.FromContext(ctx).Info("Applied a child", "childKind", kind, "childName", name, "result", result)
	}
	if result == ssa.Created {
		s.created = append(s.created, kind)
	}
	return live, nil
}

// buildError says that children could not be rendered.
type buildError struct{ err error }

func (e *buildError) Error() string { return e.err.Error() }
func (e *buildError) Unwrap() error { return e.err }

// applyFault tells what an error of applying means for the endpoint.
func applyFault(err error) *fault {
	var conflict *ssa.ConflictError
	var build *buildError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &conflict) && conflict.Leftover:
		return &fault{reason: v1alpha1.ReasonNotApplied, message: conflict.Error(), working: true}
	case errors.As(err, &conflict):
		return &fault{reason: v1alpha1.ReasonNameConflict, message: conflict.Error(), final: true}
	case errors.As(err, &build), refused(err):
		return &fault{reason: v1alpha1.ReasonApplyFailed, message: conditions.Text(err), final: true}
	}
	return &fault{reason: v1alpha1.ReasonApplyFailed, message: conditions.Text(err), working: true}
}

// refused reports whether the API server will not take the object before
// somebody changes something: a rule, a quota, a right.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

// observeChildren looks at Deployments that this reconciliation did not apply.
func (r *Reconciler) observeChildren(ctx context.Context, s *scope) error {
	var err error
	if s.ingress == nil {
		s.ingress, err = r.deployment(ctx, s.endpoint, resources.ComponentIngress)
	}
	if s.worker == nil && err == nil {
		s.worker, err = r.deployment(ctx, s.endpoint, resources.ComponentWorker)
	}
	return err
}

// deployment returns nil where the endpoint has no Deployment.
func (r *Reconciler) deployment(ctx context.Context, e *v1alpha1.WebhookEndpoint, c resources.Component) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: resources.Name(e.Name, c)}, d)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading a Deployment: %w", err)
	case !metav1.IsControlledBy(d, e):
		return nil, nil
	}
	return d, nil
}
