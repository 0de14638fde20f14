package eventreplay

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/conditions"
	"github.com/ackrail/ackrail/internal/replay"
)

// keepURL is for how long a database's URL is used again without reading the
// Secret; any trouble with the database makes it be read at once.
const keepURL = time.Minute

// connect returns the database of a replay's endpoint, and notes in the
// request which destinations the endpoint has, or returns what is in the way.
// The error is one of the API server, which the caller should repeat.
func (r *Reconciler) connect(ctx context.Context, obj *v1alpha1.EventReplay, request *replay.Request, m *memory) (replay.Store, *Obstacle, error) {
	endpoint := &v1alpha1.WebhookEndpoint{}
	key := client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.EndpointRef.Name}
	switch err := r.client.Get(ctx, key, endpoint); {
	case apierrors.IsNotFound(err):
		return nil, &Obstacle{
			Reason:  v1alpha1.ReasonEndpointNotFound,
			Message: fmt.Sprintf("Waiting for the WebhookEndpoint %q: there is none of this name in the namespace", key.Name),
		}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading the endpoint: %w", err)
	}
	request.Present = Destinations(endpoint)
	ref := endpoint.Spec.Database.SecretRef
	if m.url == "" || m.secretRef != ref || time.Since(m.readAt) > keepURL {
		url, obstacle, err := r.readURL(ctx, obj.Namespace, ref)
		if url == "" {
			return nil, obstacle, err
		}
		m.url, m.secretRef, m.readAt = url, ref, time.Now()
	}
	store, err := r.stores.For(ctx, m.url)
	if err != nil {
		return nil, unavailable(err), nil
	}
	return store, nil, nil
}

// readURL reads the database's URL from its Secret, or says what is in the
// way.
func (r *Reconciler) readURL(ctx context.Context, namespace string, ref v1alpha1.DatabaseSecretRef) (string, *Obstacle, error) {
	secret := &corev1.Secret{}
	waiting := func(format string, args ...any) *Obstacle {
		return &Obstacle{Reason: v1alpha1.ReasonWaiting, Message: "Waiting for the database's URL: " + fmt.Sprintf(format, args...)}
	}
	switch err := r.secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, secret); {
	case apierrors.IsNotFound(err):
		return "", waiting("there is no Secret %q", ref.Name), nil
	case err != nil:
		return "", nil, fmt.Errorf("reading the database's Secret: %w", err)
	}
	url := strings.TrimSpace(string(secret.Data[ref.Key]))
	if url == "" {
		return "", waiting("the Secret %q has no key %q, or it is empty", ref.Name, ref.Key), nil
	}
	return url, nil, nil
}

// unavailable is the obstacle of a database that does not do its work now.
func unavailable(err error) *Obstacle {
	return &Obstacle{Reason: v1alpha1.ReasonWaiting, Message: "Waiting for the database: " + conditions.Text(err)}
}
