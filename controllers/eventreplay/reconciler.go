package eventreplay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/replay"
)

const (
	// retryPause is how long an obstacle is left alone that no watch
	// reports.
	retryPause = 10 * time.Second
	// longestPause is for runs that take long to end, such as those that
	// wait for their next attempt.
	longestPause = 10 * time.Second
	// planTimeout is for the one statement whose cost grows with what is
	// selected, stepTimeout for everything else of a look. They keep a
	// database that hangs from occupying the workers.
	planTimeout = 2 * time.Minute
	stepTimeout = 10 * time.Second
)

// Reconciler reconciles EventReplay objects. Set it up with SetupWithManager.
type Reconciler struct {
	client   client.Client
	secrets  client.Reader
	stores   Stores
	recorder events.EventRecorder
	memories memories
}

// New returns a Reconciler. The client may read from a cache; secrets must
// not, so that the manager needs neither to list nor to watch Secrets.
func New(c client.Client, secrets client.Reader, stores Stores, recorder events.EventRecorder) *Reconciler {
	return &Reconciler{
		client: c, secrets: secrets, stores: stores, recorder: recorder,
		memories: memories{all: map[types.NamespacedName]*memory{}},
	}
}

// Reconcile takes one look at a replay, which lasts a second or little more
// while there are runs to start.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.EventReplay{}
	if err := r.client.Get(ctx, req.NamespacedName, obj); err != nil {
		r.memories.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !obj.DeletionTimestamp.IsZero() {
		r.memories.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	before := obj.DeepCopy()
	var next time.Duration
	if Finished(obj) {
		observe(obj)
	} else {
		seen, pause, err := r.look(ctx, obj)
		if err != nil {
			return ctrl.Result{}, err
		}
		now := time.Now()
		SetStatus(obj, seen, now)
		setHealth(obj, seen, now)
		next = pause
	}
	if err := r.write(ctx, before, obj); err != nil {
		return again(err)
	}
	r.report(before, obj)
	if Finished(obj) {
		r.memories.forget(req.NamespacedName)
		return r.expire(ctx, obj)
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// look plans a replay or lets it advance, and returns what it saw and when to
// look again: zero, if a watch will tell.
func (r *Reconciler) look(ctx context.Context, obj *v1alpha1.EventReplay) (Seen, time.Duration, error) {
	request, err := Request(obj)
	if err != nil {
		return Seen{Obstacle: final(v1alpha1.ReasonInvalidSpec, err)}, 0, nil
	}
	m := r.memories.of(obj)
	store, obstacle, err := r.connect(ctx, obj, &request, m)
	switch {
	case err != nil:
		return Seen{}, 0, err
	case obstacle != nil && obstacle.Reason == v1alpha1.ReasonEndpointNotFound:
		return Seen{Obstacle: obstacle}, 0, nil
	case obstacle != nil:
		return Seen{Obstacle: obstacle}, retryPause, nil
	}
	status, err := advance(ctx, store, obj, request, m.pace)
	switch {
	case errors.Is(err, replay.ErrUnknownEndpoint):
		return Seen{Unseen: true}, 0, nil
	case errors.Is(err, replay.ErrChanged):
		return Seen{Obstacle: final(v1alpha1.ReasonSpecChanged, err)}, 0, nil
	case errors.Is(err, replay.ErrUnknownDestination):
		return Seen{Obstacle: &Obstacle{
			Reason:  v1alpha1.ReasonDestinationNotFound,
			Message: "Waiting for a destination, which the database knows once an ingress has started with it: " + err.Error(),
		}}, retryPause, nil
	case ctx.Err() != nil:
		return Seen{}, 0, ctx.Err()
	case err != nil:
		m.url = "" // perhaps the Secret has another one by now
		m.forecast = replay.Forecast{}
		return Seen{Obstacle: unavailable(err)}, retryPause, nil
	}
	return Seen{Progress: &status, Outlook: m.outlook(obj, &status), Obstacle: stranded(&status, request.Present)}, pause(obj, &status, m), nil
}

// stranded is what is in the way of a replay of which nothing is left but runs
// whose destination is gone; nil if there is more.
func stranded(status *replay.Status, present []string) *Obstacle {
	runs := status.Stranded(present)
	if status.Planned() > 0 || len(runs) == 0 || len(runs) < len(status.OpenAt) {
		return nil
	}
	names := make([]string, len(runs))
	for i, r := range runs {
		names[i] = strconv.Quote(r.Destination)
	}
	return &Obstacle{Reason: v1alpha1.ReasonDestinationNotFound, Message: fmt.Sprintf(
		"Waiting for the destination %s, which the endpoint no longer has and to which %s not ended: add it again, or delete the replay",
		strings.Join(names, ", "), count(status.Open, "run has", "runs have"))}
}

func final(reason string, err error) *Obstacle {
	return &Obstacle{Reason: reason, Message: err.Error(), Final: true}
}

// advance counts what a dry run would take, and plans any other replay once
// and starts its next runs.
func advance(ctx context.Context, s replay.Store, obj *v1alpha1.EventReplay, request replay.Request, pace *replay.Pace) (replay.Status, error) {
	if isDryRun(obj) {
		ctx, cancel := context.WithTimeout(ctx, planTimeout)
		defer cancel()
		return s.CountReplay(ctx, request)
	}
	status, err := step(ctx, s, obj, request, pace)
	if !errors.Is(err, replay.ErrNotPlanned) {
		return status, err
	}
	if err := plan(ctx, s, request); err != nil {
		return replay.Status{}, err
	}
	return step(ctx, s, obj, request, pace)
}

func plan(ctx context.Context, s replay.Store, request replay.Request) error {
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	return s.PlanReplay(ctx, request)
}

func step(ctx context.Context, s replay.Store, obj *v1alpha1.EventReplay, request replay.Request, pace *replay.Pace) (replay.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if obj.Spec.Suspend {
		return s.ReplayStatus(ctx, request.ID)
	}
	return replay.Advance(ctx, s, request, pace)
}

// pause returns when to look at a replay again that nothing keeps from going
// on, zero if only a change of the object can make a difference.
func pause(obj *v1alpha1.EventReplay, status *replay.Status, m *memory) time.Duration {
	switch {
	case status.Open == 0 && obj.Spec.Suspend:
		return 0
	case status.Planned() > 0 && !obj.Spec.Suspend:
		return replay.Step
	}
	return m.patience(status)
}

// write patches the status, if it has changed. It fails where the object has
// changed in the meantime, so that no other writer's word is taken back.
func (r *Reconciler) write(ctx context.Context, before, obj *v1alpha1.EventReplay) error {
	if equality.Semantic.DeepEqual(before.Status, obj.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, obj, patch); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// expire deletes a finished replay when its time is over.
func (r *Reconciler) expire(ctx context.Context, obj *v1alpha1.EventReplay) (ctrl.Result, error) {
	if obj.Spec.TTLSecondsAfterFinished == nil {
		return ctrl.Result{}, nil
	}
	// The time of the condition, not of the completion: both it and now are
	// by the managers' clocks, the completion is by the database's.
	finished := finishedCondition(obj).LastTransitionTime
	ttl := time.Duration(*obj.Spec.TTLSecondsAfterFinished) * time.Second
	if rest := time.Until(finished.Add(ttl)); rest > 0 {
		return ctrl.Result{RequeueAfter: rest}, nil
	}
	err := r.client.Delete(ctx, obj, client.Preconditions{UID: &obj.UID, ResourceVersion: &obj.ResourceVersion})
	if err != nil {
		return again(fmt.Errorf("deleting the finished replay: %w", err))
	}
	return ctrl.Result{}, nil
}

// again turns the error of a write into a result: an object that is gone needs
// nothing more, one that has changed another look.
func again(err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: replay.Step}, nil
	}
	return ctrl.Result{}, err
}
