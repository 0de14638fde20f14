package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/manifest"
	"github.com/ackrail/ackrail/internal/resources"
	"github.com/ackrail/ackrail/internal/signature"
)

// schemeOf returns how the senders of an endpoint sign. It reports false for
// an endpoint that verifies nothing.
func schemeOf(e *v1alpha1.WebhookEndpoint) (signature.Scheme, bool) {
	return resources.Pipeline([]v1alpha1.WebhookEndpoint{*e}).Endpoints[0].Verification.Scheme()
}

// typeHeader returns the header that carries the type of an endpoint's
// events, empty if there is none.
func typeHeader(e *v1alpha1.WebhookEndpoint) string {
	if header := e.Spec.Source.TypeHeader(); header != "" {
		return header
	}
	scheme, _ := schemeOf(e)
	return scheme.TypeHeader
}

// keyHeader returns the header that carries the idempotency key.
func keyHeader(e *v1alpha1.WebhookEndpoint) string {
	if header := e.Spec.Source.IdempotencyKeyHeader(); header != "" {
		return header
	}
	scheme, _ := schemeOf(e)
	return scheme.IDHeader
}

// checkSecrets reports what is wrong with the secrets that an endpoint refers
// to, each with its field.
func checkSecrets(set *manifest.Set, e *v1alpha1.WebhookEndpoint) error {
	var faults []error
	check := func(field string, scheme signature.Scheme, ref v1alpha1.SecretKeyRef) {
		if _, err := secretKey(set, e.Namespace, scheme, ref); err != nil {
			faults = append(faults, fmt.Errorf("WebhookEndpoint %s/%s: %s: %w", e.Namespace, e.Name, field, err))
		}
	}
	if scheme, ok := schemeOf(e); ok {
		for i, ref := range e.Spec.Source.SecretRefs {
			check(fmt.Sprintf("spec.source.secretRefs[%d]", i), scheme, ref)
		}
	}
	for i := range e.Spec.Destinations {
		if ref := e.Spec.Destinations[i].HTTP.SigningSecretRef; ref != nil {
			check(fmt.Sprintf("spec.destinations[%d].http.signingSecretRef", i), signature.StandardWebhooks(), *ref)
		}
	}
	return errors.Join(faults...)
}

// secretKey returns what a scheme makes of a secret.
func secretKey(set *manifest.Set, namespace string, scheme signature.Scheme, ref v1alpha1.SecretKeyRef) (signature.Key, error) {
	value, err := set.SecretValue(namespace, ref.Name, ref.Key)
	if err != nil {
		return signature.Key{}, err
	}
	key, err := scheme.DecodeSecret(value)
	if err != nil {
		return signature.Key{}, fmt.Errorf("key %q of Secret %s/%s: %w", ref.Key, namespace, ref.Name, err)
	}
	return key, nil
}

// writeSecrets lays the secrets out as files for the pipeline, each replaced
// at once, readable by this user only.
func writeSecrets(set *manifest.Set, dir string) error {
	for i := range set.Endpoints {
		e := &set.Endpoints[i]
		for _, ref := range resources.SecretRefs(e) {
			value, err := set.SecretValue(e.Namespace, ref.Name, ref.Key)
			if err != nil {
				return err
			}
			if err := replaceFile(filepath.Join(dir, filepath.FromSlash(resources.SecretFile(e.Namespace, ref))), value); err != nil {
				return fmt.Errorf("writing secret %s/%s: %w", e.Namespace, ref.Name, err)
			}
		}
	}
	return nil
}

func replaceFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}
