package webhookendpoint

import (
	"cmp"
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/resources"
)

// +kubebuilder:rbac:groups=ackrail.io,resources=webhookendpoints,verbs=list;watch
// +kubebuilder:rbac:groups=ackrail.io,resources=webhookendpoints/status,verbs=patch
// Where OwnerReferencesPermissionEnforcement is on (OpenShift), children that
// block their owner's deletion need it:
// +kubebuilder:rbac:groups=ackrail.io,resources=webhookendpoints/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps;serviceaccounts;services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// DefaultConcurrency is how many endpoints are reconciled at once by default.
// Each may wait some seconds for its database.
const DefaultConcurrency = 8

// Options tune the controller.
type Options struct {
	// MaxConcurrentReconciles is how many endpoints are reconciled at once;
	// DefaultConcurrency if zero.
	MaxConcurrentReconciles int
}

// ByObject limits what a manager's cache holds to the children of endpoints,
// by their label. Their managed fields must stay in it, which say what was
// applied.
func ByObject() map[client.Object]cache.ByObject {
	managed := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{resources.LabelManagedBy: resources.ManagedBy})}
	return map[client.Object]cache.ByObject{
		&appsv1.Deployment{}:            managed,
		&corev1.ConfigMap{}:             managed,
		&corev1.Service{}:               managed,
		&corev1.ServiceAccount{}:        managed,
		&networkingv1.NetworkPolicy{}:   managed,
		&policyv1.PodDisruptionBudget{}: managed,
	}
}

// SetupWithManager registers the Reconciler, to run once the manager leads. It
// watches WebhookEndpoints and their children.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, o Options) error {
	if o.MaxConcurrentReconciles == 0 {
		o.MaxConcurrentReconciles = DefaultConcurrency
	}
	r.refresh, r.recheck = cmp.Or(r.refresh, refreshInterval), cmp.Or(r.recheck, recheckInterval)
	// Of these, what is written into the status is no reason to look.
	specOnly := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))
	err := ctrl.NewControllerManagedBy(mgr).
		Named("webhookendpoint").
		// Labels and annotations of an endpoint make no difference, and its
		// status is our own.
		For(&v1alpha1.WebhookEndpoint{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.WebhookEndpoint{}, handler.Funcs{DeleteFunc: r.deleted}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ServiceAccount{}).
		Owns(&networkingv1.NetworkPolicy{}).
		Owns(&policyv1.PodDisruptionBudget{}, specOnly).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.MaxConcurrentReconciles,
			// An endpoint that met an error is not left alone for longer than
			// the others.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, r.refresh),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting the WebhookEndpoint controller up: %w", err)
	}
	return nil
}

// deleted tells what an endpoint leaves behind. There is no finalizer to do
// so: a deletion never waits for a database.
func (r *Reconciler) deleted(ctx context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	endpoint, ok := e.Object.(*v1alpha1.WebhookEndpoint)
	if !ok {
		return
	}
	n, ok := farewell(endpoint)
	if !ok {
		return
	}
	r.Recorder.Eventf(endpoint, nil, n.kind, n.reason, n.action, "%s", n.note)
	log.FromContext(ctx).Info("Endpoint was deleted, its events are kept", "namespace", endpoint.Namespace, "name", endpoint.Name, "note", n.note)
}
