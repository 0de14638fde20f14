package manifest_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/manifest"
)

const baseSecret = `
apiVersion: v1
kind: Secret
metadata: {name: github-webhook, namespace: payments}
stringData: {secret: hush}
`

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	set, err := read(edit(t, baseEndpoint, "-metadata.namespace",
		hmacSource, "spec.destinations[0].retry.maxAttempts=3"))
	if err != nil {
		t.Fatal(err)
	}
	want := []v1alpha1.WebhookEndpoint{{
		TypeMeta:   metav1.TypeMeta{APIVersion: "ackrail.io/v1alpha1", Kind: "WebhookEndpoint"},
		ObjectMeta: metav1.ObjectMeta{Name: "github", Namespace: "default"},
		Spec: v1alpha1.WebhookEndpointSpec{
			Database: v1alpha1.Database{SecretRef: v1alpha1.DatabaseSecretRef{Name: "ackrail-database", Key: "uri"}},
			Source: v1alpha1.Source{
				Provider:     v1alpha1.ProviderHMAC,
				HMAC:         &v1alpha1.HMAC{Header: "X-Signature", Algorithm: v1alpha1.HMACAlgorithmSHA256, Encoding: v1alpha1.HMACEncodingHex},
				SecretRefs:   []v1alpha1.SecretKeyRef{{Name: "a", Key: "b"}},
				Identity:     &v1alpha1.Identity{IdempotencyKey: &v1alpha1.RequestField{Header: "X-Id"}},
				MaxBodyBytes: 1 << 20,
			},
			Destinations: []v1alpha1.Destination{{
				Name:           "handler",
				HTTP:           v1alpha1.HTTPDestination{URL: "http://handler:8080/events", TimeoutSeconds: 30},
				Retry:          v1alpha1.Retry{MaxAttempts: 3, MinBackoffSeconds: 5, MaxBackoffSeconds: 3600},
				MaxConcurrency: 16,
			}},
			Ingress:   v1alpha1.Ingress{Replicas: 2},
			Worker:    v1alpha1.Worker{Replicas: 1, LeaseSeconds: 60},
			Retention: v1alpha1.Retention{EventsSeconds: 604800, DeadLettersSeconds: 2592000, DedupSeconds: 604800},
			Suspend:   v1alpha1.SuspendNone,
		},
	}}
	if diff := cmp.Diff(want, set.Endpoints); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}

// A field that is written as null is absent, as it is to an API server.
func TestNullIsAbsent(t *testing.T) {
	set, err := read(edit(t, baseEndpoint, "spec.worker=null", "spec.source.hmac=null", "spec.destinations[0].retry=null"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := read(baseEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, set); diff != "" {
		t.Errorf("set (-want +got):\n%s", diff)
	}
}

func TestReplayDefaults(t *testing.T) {
	set, err := read(edit(t, baseReplay, "status={matched: 3}", "spec.selector.receivedAfter=2026-01-01T00:00:00Z"))
	if err != nil {
		t.Fatal(err)
	}
	after := metav1.Unix(1767225600, 0)
	want := []v1alpha1.EventReplay{{
		TypeMeta:   metav1.TypeMeta{APIVersion: "ackrail.io/v1alpha1", Kind: "EventReplay"},
		ObjectMeta: metav1.ObjectMeta{Name: "after-fix-1", Namespace: "payments"},
		Spec: v1alpha1.EventReplaySpec{
			EndpointRef: v1alpha1.EndpointRef{Name: "github"},
			Selector: v1alpha1.ReplaySelector{
				States:        []v1alpha1.ReplayState{v1alpha1.ReplayStateDead},
				Destinations:  []string{"handler"},
				ReceivedAfter: &after,
			},
			Mode: v1alpha1.ReplayModeRun,
		},
	}}
	if diff := cmp.Diff(want, set.Replays); diff != "" {
		t.Errorf("replays (-want +got):\n%s", diff)
	}
}

func TestManyDocumentsAndFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "2.yml", "# nothing yet\n---\n"+baseReplay+"---\n")
	write(t, dir, "1.yaml", baseEndpoint+"---\n# other things\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: a}\n---\nkind: List\napiVersion: v1\n")
	write(t, dir, "3.json", `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}}`)
	write(t, dir, "readme.txt", "no manifest")
	set, err := manifest.Read([]string{dir, "-"}, strings.NewReader(baseSecret))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range set.Endpoints {
		got = append(got, e.Kind+" "+e.Namespace+"/"+e.Name)
	}
	for _, e := range set.Replays {
		got = append(got, e.Kind+" "+e.Namespace+"/"+e.Name)
	}
	for _, e := range set.Secrets {
		got = append(got, e.Kind+" "+e.Namespace+"/"+e.Name)
	}
	got = append(got, set.Ignored...)
	want := []string{
		"WebhookEndpoint payments/github", "EventReplay payments/after-fix-1",
		"Secret default/b", "Secret payments/github-webhook",
		filepath.Join(dir, "1.yaml") + ": ConfigMap a/settings", filepath.Join(dir, "1.yaml") + ": List",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestRefusedDocuments(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "# only a comment\n---\n", []string{"standard input: no object in this file"}},
		{"no mapping", "- a\n- b\n", []string{"standard input: must be an object with apiVersion, kind and metadata"}},
		{"no YAML", "a: b: c\n", []string{"standard input: yaml: mapping values are not allowed in this context"}},
		{"no kind", "apiVersion: v1\n", []string{"standard input: kind: is required, with apiVersion"}},
		{
			"duplicate fields", "kind: WebhookEndpoint\napiVersion: ackrail.io/v1alpha1\nmetadata: {name: a, name: a}\nspec: {destinations: [{name: b, name: c}]}\n",
			[]string{
				"standard input: WebhookEndpoint default/a: metadata.name: duplicate field: remove one of the two",
				"standard input: WebhookEndpoint default/a: spec.destinations[0].name: duplicate field: remove one of the two",
			},
		},
		{
			"every error of every document",
			edit(t, baseEndpoint, "spec.worker.leaseSeconds=5") + "---\n" + edit(t, baseReplay, "spec.limit=-1", "spec.x=1"),
			[]string{
				"standard input, document 1: WebhookEndpoint payments/github: spec.worker.leaseSeconds: should be greater than or equal to 10",
				"standard input, document 1: WebhookEndpoint payments/github: spec.worker.leaseSeconds: must be at least 5 more than the longest http.timeoutSeconds of the destinations, so that the outcome is written down before another worker may take the delivery over: raise worker.leaseSeconds or lower http.timeoutSeconds",
				"standard input, document 2: EventReplay payments/after-fix-1: spec.x: unknown field: remove it, or correct its name",
				"standard input, document 2: EventReplay payments/after-fix-1: spec.limit: should be greater than or equal to 1",
			},
		},
		{
			"same object twice", baseSecret + "---" + baseSecret,
			[]string{"standard input, document 2: Secret payments/github-webhook: is also in standard input: remove or rename one of the two"},
		},
		{
			"same path twice", baseEndpoint + "---\n" + edit(t, baseEndpoint, "metadata.name=b", "spec.source.path=/hooks/payments/github"),
			[]string{"standard input, document 2: WebhookEndpoint payments/b: spec.source.path: /hooks/payments/github is the path of WebhookEndpoint payments/github already: choose another"},
		},
		{
			"Secret of another group", edit(t, baseSecret, "apiVersion=v2"),
			[]string{`standard input: Secret payments/github-webhook: apiVersion: must be v1, is "v2"`},
		},
		{
			"Secret with an unknown field", edit(t, baseSecret, "strngData={a: b}", "metadata.lables={}"),
			[]string{
				"standard input: Secret payments/github-webhook: metadata.lables: unknown field: remove it, or correct its name",
				"standard input: Secret payments/github-webhook: strngData: unknown field: remove it, or correct its name",
			},
		},
		{
			"Secret with values that are no text", edit(t, baseSecret, "data={a: 1, b: hush!, c: aHVzaA==}", "stringData.d=true"),
			[]string{
				"standard input: Secret payments/github-webhook: data.a: must be text: put it into quotes",
				"standard input: Secret payments/github-webhook: data.b: is not base64: encode it, or put the plain text under stringData",
				"standard input: Secret payments/github-webhook: stringData.d: must be text: put it into quotes",
			},
		},
		{
			"Secret with a list", edit(t, baseSecret, "data=[a]"),
			[]string{"standard input: Secret payments/github-webhook: data: must map keys to values"},
		},
		{
			"metadata that is no mapping", "apiVersion: ackrail.io/v1alpha1\nkind: EventReplay\nmetadata: [a]\n",
			[]string{"standard input: EventReplay: metadata.name: is required"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, err := read(tc.text)
			if err == nil || set != nil {
				t.Fatalf("set %v, error %v, want only an error", set, err)
			}
			if diff := cmp.Diff(tc.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrorsRepeatNoPassword(t *testing.T) {
	_, err := read(edit(t, baseEndpoint, "spec.destinations[0].http.url=http://user:hush@handler/"))
	if err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("error: %v, want one without the password", err)
	}
}

func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	_, err := manifest.Read([]string{filepath.Join(dir, "no.yaml")}, nil)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no.yaml") {
		t.Errorf("error: %v, want one that names the file", err)
	}
	if _, err := manifest.Read([]string{dir}, nil); err == nil || !strings.Contains(err.Error(), "no .yaml, .yml or .json file") {
		t.Errorf("error for an empty folder: %v", err)
	}
	if _, err := manifest.Read(nil, nil); err == nil {
		t.Error("no error without paths")
	}
}

func TestSamples(t *testing.T) {
	set, err := manifest.Read([]string{filepath.Join("..", "..", "config", "samples")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Endpoints) != 1 || len(set.Replays) != 1 {
		t.Fatalf("%d endpoints and %d replays, want 1 of each", len(set.Endpoints), len(set.Replays))
	}
	// What only a cluster needs.
	want := []string{"kustomization.yaml: Kustomization", "namespace.yaml: Namespace payments"}
	for i, ignored := range set.Ignored {
		set.Ignored[i] = filepath.Base(ignored)
	}
	if diff := cmp.Diff(want, set.Ignored); diff != "" {
		t.Errorf("ignored (-want +got):\n%s", diff)
	}
	e := set.Endpoints[0]
	for _, ref := range e.Spec.Source.SecretRefs {
		if _, err := set.SecretValue(e.Namespace, ref.Name, ref.Key); err != nil {
			t.Error(err)
		}
	}
	if ref := set.Replays[0].Spec.EndpointRef.Name; ref != e.Name {
		t.Errorf("the replay names endpoint %q, the sample is %q", ref, e.Name)
	}
}

func TestSecretValue(t *testing.T) {
	set, err := read(edit(t, baseSecret, "data={secret: b3Zlcg==, raw: AAD/, empty: ''}", "stringData.blank=''"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ namespace, name, key, want, wantErr string }{
		{"payments", "github-webhook", "secret", "hush", ""},
		{"payments", "github-webhook", "raw", "\x00\x00\xff", ""},
		{"payments", "github-webhook", "empty", "", `key "empty" of Secret payments/github-webhook is empty: give it a value`},
		{"payments", "github-webhook", "blank", "", `key "blank" of Secret payments/github-webhook is empty: give it a value`},
		{"payments", "github-webhook", "a", "", `no key "a" in Secret payments/github-webhook: it has blank, empty, raw, secret`},
		{"default", "github-webhook", "secret", "", `no Secret default/github-webhook: add its manifest, with the key "secret"`},
	} {
		got, err := set.SecretValue(tc.namespace, tc.name, tc.key)
		if string(got) != tc.want {
			t.Errorf("%s/%s %s: value %q, want %q", tc.namespace, tc.name, tc.key, got, tc.want)
		}
		gotErr := ""
		if err != nil {
			gotErr = err.Error()
		}
		if gotErr != tc.wantErr {
			t.Errorf("%s/%s %s: error %q, want %q", tc.namespace, tc.name, tc.key, gotErr, tc.wantErr)
		}
	}
}

// What a program leaves unset in a typed object is absent when it is written,
// so that the defaults of the schema apply.
func TestTypedObjectsTakeDefaults(t *testing.T) {
	e := v1alpha1.WebhookEndpoint{
		TypeMeta:   metav1.TypeMeta{APIVersion: "ackrail.io/v1alpha1", Kind: "WebhookEndpoint"},
		ObjectMeta: metav1.ObjectMeta{Name: "github", Namespace: "payments"},
		Spec: v1alpha1.WebhookEndpointSpec{
			Source: v1alpha1.Source{
				Provider:   v1alpha1.ProviderGitHub,
				SecretRefs: []v1alpha1.SecretKeyRef{{Name: "github-webhook", Key: "secret"}},
			},
			Destinations: []v1alpha1.Destination{{Name: "handler", HTTP: v1alpha1.HTTPDestination{URL: "http://handler:8080/events"}}},
		},
	}
	text, err := yaml.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(string(text))
	if err != nil {
		t.Fatal(err)
	}
	want, err := read(baseEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("set (-want +got):\n%s", diff)
	}
}
