package webhookendpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/conditions"
	"github.com/ackrail/ackrail/internal/resources"
)

// resolveSecrets reads the database's URL, and looks whether every other key
// that the spec names is there. The error is one of the API server that the
// next try may not meet.
func (r *Reconciler) resolveSecrets(ctx context.Context, s *scope) error {
	e := s.endpoint
	database := v1alpha1.SecretKeyRef(e.Spec.Database.SecretRef)
	read := map[string]*corev1.Secret{}
	var faults []*fault
	var failed error
	for i, ref := range append([]v1alpha1.SecretKeyRef{database}, resources.SecretRefs(e)...) {
		secret, ok := read[ref.Name]
		if !ok {
			var err error
			if secret, err = r.readSecret(ctx, e.Namespace, ref.Name); err != nil {
				faults = append(faults, &fault{
					reason:  v1alpha1.ReasonSecretUnreadable,
					message: fmt.Sprintf("Secret %q cannot be read: %s", ref.Name, conditions.Text(err)),
					working: true,
				})
				failed = err
			}
			read[ref.Name] = secret
		}
		value, missing := lookUp(secret, ref)
		if missing != nil {
			faults = append(faults, missing)
		} else if i == 0 && secret != nil {
			s.databaseURL = value
		}
	}
	s.secrets = sumUp(faults)
	return failed
}

// readSecret returns an empty Secret where there is none.
func (r *Reconciler) readSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading a Secret: %w", err)
	}
	return secret, nil
}

// lookUp returns the value of a key, or what is missing of it. A nil Secret is
// one that could not be read: nothing is known of it.
func lookUp(secret *corev1.Secret, ref v1alpha1.SecretKeyRef) (string, *fault) {
	if secret == nil {
		return "", nil
	}
	if secret.Name == "" {
		return "", &fault{reason: v1alpha1.ReasonSecretNotFound, message: fmt.Sprintf("there is no Secret %q", ref.Name)}
	}
	value := strings.TrimSpace(string(secret.Data[ref.Key]))
	if value == "" {
		return "", &fault{
			reason:  v1alpha1.ReasonSecretKeyNotFound,
			message: fmt.Sprintf("Secret %q has no key %q, or it is empty", ref.Name, ref.Key),
		}
	}
	return value, nil
}

// sumUp makes one fault of several: the reason is that of the first, and the
// message names some.
func sumUp(faults []*fault) *fault {
	if len(faults) == 0 {
		return nil
	}
	const named = 3
	var messages []string
	for _, f := range faults {
		if !slices.Contains(messages, f.message) {
			messages = append(messages, f.message)
		}
	}
	if more := len(messages) - named; more > 0 {
		messages = append(messages[:named], fmt.Sprintf("%d more", more))
	}
	sum := *faults[0]
	sum.message = strings.ToUpper(messages[0][:1]) + messages[0][1:]
	for _, m := range messages[1:] {
		sum.message += "; " + m
	}
	return &sum
}
