package webhookendpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/conditions"
	"github.com/ackrail/ackrail/internal/event"
)

const (
	// refreshInterval is how often Secrets and counts are looked at, which no
	// watch tells of. It is drawn out by up to a fifth, so that endpoints do
	// not all come at once.
	refreshInterval = 30 * time.Second
	// recheckInterval is the same while something is missing.
	recheckInterval = 10 * time.Second
	// reread is how long a cache that lags behind may take to catch up.
	reread = 250 * time.Millisecond
)

// Reconciler reconciles WebhookEndpoint objects. All fields are required. Set
// it up with SetupWithManager.
type Reconciler struct {
	// Client reads from a cache, as ByObject limits it, and writes.
	Client client.Client
	// APIReader reads from the API server: Secrets, which are never cached,
	// and children that the cache does not hold.
	APIReader client.Reader
	Stores    Stores
	Recorder  events.EventRecorder
	// Image that the pods run, which should be the manager's own.
	Image string

	// refresh and recheck are the intervals of these names.
	refresh, recheck time.Duration
}

// Reconcile brings one endpoint closer to its spec, and writes its status if
// that is another one now.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	endpoint := &v1alpha1.WebhookEndpoint{}
	if err := r.Client.Get(ctx, req.NamespacedName, endpoint); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !endpoint.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the children go with it, by their owner references
	}
	s := &scope{endpoint: endpoint}
	err := r.run(ctx, s)
	select {
	case <-ctx.Done():
		return ctrl.Result{}, nil // the manager stops: what was found says nothing
	default:
	}
	statusErr := r.writeStatus(ctx, s)
	if apierrors.IsConflict(statusErr) {
		// The endpoint was read from a cache that lags behind. Errors would
		// be logged, and this is none.
		return ctrl.Result{RequeueAfter: reread}, nil
	}
	if err := errors.Join(err, client.IgnoreNotFound(statusErr)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.pause(s)}, nil
}

// run goes through the phases. Without a URL of the database nothing is
// applied, since the pods could not even start; a database that is away is no
// reason to wait. The error is one that the next try may not meet.
func (r *Reconciler) run(ctx context.Context, s *scope) error {
	secretsErr := r.resolveSecrets(ctx, s)
	applicable := r.prepareStore(ctx, s)
	var childrenErr error
	if applicable {
		childrenErr = r.applyChildren(ctx, s)
	} else {
		childrenErr = r.observeChildren(ctx, s)
	}
	r.count(ctx, s)
	return errors.Join(secretsErr, childrenErr)
}

// prepareStore migrates the database, so that new pods find what they need,
// and reports whether its URL is one that pods can be given.
func (r *Reconciler) prepareStore(ctx context.Context, s *scope) bool {
	url := s.databaseURL
	if url == "" {
		return false
	}
	if err := r.Stores.Check(url); err != nil {
		s.store = &fault{reason: v1alpha1.ReasonInvalidDatabaseURL, message: conditions.Text(err), final: true}
		return false
	}
	if err := r.Stores.Ping(ctx, url); err != nil {
		s.store = &fault{reason: v1alpha1.ReasonDatabaseUnreachable, message: conditions.Text(err)}
	} else if err := r.Stores.Migrate(ctx, url); err != nil {
		s.store = &fault{reason: v1alpha1.ReasonMigrationFailed, message: conditions.Text(err)}
	}
	return true
}

// count counts what the destinations are owed.
func (r *Reconciler) count(ctx context.Context, s *scope) {
	if s.databaseURL == "" || s.store != nil {
		return
	}
	e := s.endpoint
	ref := event.EndpointRef{Namespace: e.Namespace, Name: e.Name}
	var refs []event.DestinationRef
	for i := range e.Spec.Destinations {
		refs = append(refs, event.DestinationRef{Endpoint: ref, Name: e.Spec.Destinations[i].Name})
	}
	counts, err := r.Stores.Counts(ctx, s.databaseURL, refs)
	if err == nil {
		s.dead, err = r.Stores.DeadCounts(ctx, s.databaseURL, ref, event.PurgeNotice(retention(e)))
	}
	if err != nil {
		s.store = &fault{reason: v1alpha1.ReasonDatabaseUnreachable, message: conditions.Text(err)}
		return
	}
	s.counts = counts
}

// pause is when to look again for what no watch tells of.
func (r *Reconciler) pause(s *scope) time.Duration {
	if s.secrets != nil || s.store != nil || s.apply != nil && s.apply.working {
		return wait.Jitter(r.recheck, 0.2)
	}
	return wait.Jitter(r.refresh, 0.2)
}

// writeStatus writes the status if it has changed, and tells in events what
// has become of the endpoint. A conflict says that the endpoint was not the
// latest one, so that neither times of transitions nor events could be right.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	before := s.endpoint
	after := before.DeepCopy()
	after.Status = status(s, time.Now())
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	for _, n := range news(s, &after.Status) {
		r.Recorder.Eventf(after, nil, n.kind, n.reason, n.action, "%s", n.note)
		log.FromContext(ctx).Info("Endpoint changed", "reason", n.reason, "note", n.note)
	}
	return nil
}
