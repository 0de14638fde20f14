package eventreplay

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// workers is how many replays are looked at at once. A look mostly waits for
// a database, and one that hangs must not keep the replays of others waiting.
const workers = 16

// endpointIndex finds replays by their endpoint.
const endpointIndex = "spec.endpointRef.name"

// +kubebuilder:rbac:groups=ackrail.io,resources=eventreplays,verbs=list;watch;delete
// +kubebuilder:rbac:groups=ackrail.io,resources=eventreplays/status,verbs=patch
// +kubebuilder:rbac:groups=ackrail.io,resources=webhookendpoints,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the Reconciler, to run once the manager leads. It
// watches EventReplays and WebhookEndpoints.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.EventReplay{}, endpointIndex, func(obj client.Object) []string {
		return []string{obj.(*v1alpha1.EventReplay).Spec.EndpointRef.Name}
	})
	if err != nil {
		return fmt.Errorf("indexing EventReplays: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("eventreplay").
		// Its own writes of the status are no reason for another look.
		For(&v1alpha1.EventReplay{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.WebhookEndpoint{}, handler.EnqueueRequestsFromMapFunc(r.concerned),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, storeTurned))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting the EventReplay controller up: %w", err)
	}
	return nil
}

// storeTurned lets through what says that a database has come back, or gone,
// and none of the other changes of an endpoint's status.
var storeTurned = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	ready := func(obj client.Object) bool {
		endpoint, ok := obj.(*v1alpha1.WebhookEndpoint)
		return ok && meta.IsStatusConditionPresentAndEqual(endpoint.Status.Conditions, v1alpha1.ConditionStoreReady, metav1.ConditionTrue)
	}
	return ready(e.ObjectOld) != ready(e.ObjectNew)
}}

// concerned returns the replays of an endpoint that are not finished.
func (r *Reconciler) concerned(ctx context.Context, endpoint client.Object) []reconcile.Request {
	var replays v1alpha1.EventReplayList
	err := r.client.List(ctx, &replays, client.InNamespace(endpoint.GetNamespace()), client.MatchingFields{endpointIndex: endpoint.GetName()})
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing the replays of an endpoint failed")
		return nil
	}
	var requests []reconcile.Request
	for i := range replays.Items {
		if !Finished(&replays.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&replays.Items[i])})
		}
	}
	return requests
}
