package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// Set is what a number of files hold, in the order of the files and of the
// documents in them. Names are unique by kind and namespace, the effective
// paths of the endpoints are unique.
type Set struct {
	// Endpoints are valid, and complete with the defaults of the schema.
	Endpoints []v1alpha1.WebhookEndpoint
	// Secrets are as they were written; SecretValue reads them.
	Secrets []corev1.Secret
	// Replays are valid, complete, and without a status.
	Replays []v1alpha1.EventReplay
	// Ignored names the objects of all other kinds, such as
	// "app.yaml: ConfigMap payments/settings".
	Ignored []string
}

// SecretValue returns the bytes of one key of a Secret, never empty. As in a
// cluster, stringData stands above data. No error contains any of it.
func (s *Set) SecretValue(namespace, name, key string) ([]byte, error) {
	i := slices.IndexFunc(s.Secrets, func(sec corev1.Secret) bool {
		return sec.Namespace == namespace && sec.Name == name
	})
	if i < 0 {
		return nil, fmt.Errorf("no Secret %s/%s: add its manifest, with the key %q", namespace, name, key)
	}
	sec := &s.Secrets[i]
	value, ok := sec.Data[key]
	if text, over := sec.StringData[key]; over {
		value, ok = []byte(text), true
	}
	switch {
	case !ok:
		return nil, fmt.Errorf("no key %q in Secret %s/%s: it has %s", key, namespace, name, keysOf(sec))
	case len(value) == 0:
		return nil, fmt.Errorf("key %q of Secret %s/%s is empty: give it a value", key, namespace, name)
	}
	return value, nil
}

func keysOf(sec *corev1.Secret) string {
	keys := slices.Collect(maps.Keys(sec.Data))
	keys = slices.AppendSeq(keys, maps.Keys(sec.StringData))
	if len(keys) == 0 {
		return "none"
	}
	slices.Sort(keys)
	return strings.Join(slices.Compact(keys), ", ")
}
