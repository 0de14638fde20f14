package resources_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/manifest"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/resources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read returns the endpoints of a manifest, valid and complete with their
// defaults.
func read(t *testing.T, text string) []v1alpha1.WebhookEndpoint {
	t.Helper()
	set, err := manifest.Read([]string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return set.Endpoints
}

const head = `
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: github, namespace: payments}
`

// What a manifest that says no more than it must becomes.
func minimal() pipeline.Endpoint {
	return pipeline.Endpoint{
		Namespace: "payments", Name: "github", Path: "/hooks/payments/github",
		Verification: pipeline.Verification{Provider: pipeline.ProviderGitHub, SecretFiles: []string{"payments/github-webhook/secret"}},
		MaxBodyBytes: 1 << 20,
		Destinations: []pipeline.Destination{{
			Name:           "handler",
			HTTP:           pipeline.HTTP{URL: "http://handler:8080/events", TimeoutSeconds: 30},
			Retry:          pipeline.Retry{MaxAttempts: 10, MinBackoffSeconds: 5, MaxBackoffSeconds: 3600},
			MaxConcurrency: 16,
		}},
		LeaseSeconds: 60,
		Retention:    pipeline.Retention{EventsSeconds: 604800, DeadLettersSeconds: 2592000, DedupSeconds: 604800},
	}
}

func TestPipeline(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		want       func(*pipeline.Endpoint)
	}{
		{"no more than it must", `
spec:
  source: {provider: GitHub, secretRefs: [{name: github-webhook, key: secret}]}
  destinations: [{name: handler, http: {url: "http://handler:8080/events"}}]
`, func(*pipeline.Endpoint) {}},
		{"every field", `
spec:
  database: {secretRef: {name: db, key: url}}
  source:
    path: /in/here
    provider: HMAC
    hmac: {header: X-Signature, algorithm: SHA512, encoding: Base64, prefix: "v1="}
    secretRefs: [{name: new, key: a}, {name: new, key: b}, {name: old, key: a.b}]
    identity: {idempotencyKey: {header: X-Id}, type: {header: X-Type}}
    maxBodyBytes: 26214400
  destinations:
  - name: handler
    http: {url: "https://handler.example.com/a?b=c", timeoutSeconds: 900, signingSecretRef: {name: signing, key: key}}
    retry: {maxAttempts: 100, minBackoffSeconds: 86400, maxBackoffSeconds: 86400}
    maxConcurrency: 1000
  - name: audit
    http: {url: "http://audit/", timeoutSeconds: 1, signingSecretRef: {name: other, key: key}}
    retry: {maxAttempts: 1, minBackoffSeconds: 1, maxBackoffSeconds: 1}
    maxConcurrency: 1
  worker: {leaseSeconds: 905}
  retention: {eventsSeconds: 86400, deadLettersSeconds: 172800, dedupSeconds: 3600}
`, func(e *pipeline.Endpoint) {
			*e = pipeline.Endpoint{
				Namespace: "payments", Name: "github", Path: "/in/here",
				Verification: pipeline.Verification{
					Provider:    pipeline.ProviderHMAC,
					SecretFiles: []string{"payments/new/a", "payments/new/b", "payments/old/a.b"},
					HMAC:        &pipeline.HMAC{Header: "X-Signature", Algorithm: "SHA512", Encoding: "Base64", Prefix: "v1="},
				},
				Identity:     pipeline.Identity{IdempotencyKeyHeader: "X-Id", TypeHeader: "X-Type"},
				MaxBodyBytes: 26214400,
				Destinations: []pipeline.Destination{{
					Name:           "handler",
					HTTP:           pipeline.HTTP{URL: "https://handler.example.com/a?b=c", TimeoutSeconds: 900, SigningSecretFile: "payments/signing/key"},
					Retry:          pipeline.Retry{MaxAttempts: 100, MinBackoffSeconds: 86400, MaxBackoffSeconds: 86400},
					MaxConcurrency: 1000,
				}, {
					Name:           "audit",
					HTTP:           pipeline.HTTP{URL: "http://audit/", TimeoutSeconds: 1, SigningSecretFile: "payments/other/key"},
					Retry:          pipeline.Retry{MaxAttempts: 1, MinBackoffSeconds: 1, MaxBackoffSeconds: 1},
					MaxConcurrency: 1,
				}},
				LeaseSeconds: 905,
				Retention:    pipeline.Retention{EventsSeconds: 86400, DeadLettersSeconds: 172800, DedupSeconds: 3600},
			}
		}},
		{"HMAC with its defaults", `
spec:
  source:
    provider: HMAC
    hmac: {header: X-Signature}
    secretRefs: [{name: github-webhook, key: secret}]
    identity: {idempotencyKey: {header: X-Id}}
  destinations: [{name: handler, http: {url: "http://handler:8080/events"}}]
`, func(e *pipeline.Endpoint) {
			e.Verification.Provider = pipeline.ProviderHMAC
			e.Verification.HMAC = &pipeline.HMAC{Header: "X-Signature", Algorithm: "SHA256", Encoding: "Hex"}
			e.Identity.IdempotencyKeyHeader = "X-Id"
		}},
		{"Standard Webhooks with a type", `
spec:
  source: {provider: StandardWebhooks, secretRefs: [{name: github-webhook, key: secret}], identity: {type: {header: X-Type}}}
  destinations: [{name: handler, http: {url: "http://handler:8080/events"}}]
`, func(e *pipeline.Endpoint) {
			e.Verification.Provider = pipeline.ProviderStandardWebhooks
			e.Identity.TypeHeader = "X-Type"
		}},
		{"nothing suspended", `
spec:
  suspend: None
  source: {provider: GitHub, secretRefs: [{name: github-webhook, key: secret}]}
  destinations: [{name: handler, http: {url: "http://handler:8080/events"}}]
`, func(*pipeline.Endpoint) {}},
		{"deliveries suspended", `
spec:
  suspend: Deliveries
  source: {provider: GitHub, secretRefs: [{name: github-webhook, key: secret}]}
  destinations: [{name: handler, http: {url: "http://handler:8080/events"}}]
`, func(e *pipeline.Endpoint) { e.Suspend = pipeline.SuspendDeliveries }},
		{"all suspended", `
spec:
  suspend: All
  source: {provider: GitHub, secretRefs: [{name: github-webhook, key: secret}]}
  destinations: [{name: handler, http: {url: "http://handler:8080/events"}}]
`, func(e *pipeline.Endpoint) { e.Suspend = pipeline.SuspendAll }},
		{"None", `
spec:
  source: {provider: None, identity: {idempotencyKey: {header: X-Id}}}
  destinations: [{name: handler, http: {url: "http://handler:8080/events"}}]
`, func(e *pipeline.Endpoint) {
			e.Verification = pipeline.Verification{Provider: pipeline.ProviderNone}
			e.Identity.IdempotencyKeyHeader = "X-Id"
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			endpoints := read(t, head+tc.spec)
			before := endpoints[0].DeepCopy()
			want := minimal()
			tc.want(&want)
			got := resources.Pipeline(endpoints)
			if diff := cmp.Diff(&pipeline.Config{Version: pipeline.Version, Endpoints: []pipeline.Endpoint{want}}, got); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("the document is not valid: %v", err)
			}
			if diff := cmp.Diff(before, &endpoints[0]); diff != "" {
				t.Errorf("the object was changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestPipelineOfSeveral(t *testing.T) {
	endpoints := read(t, strings.Join([]string{
		head + minimalSpec,
		strings.Replace(head, "name: github", "name: another", 1) + minimalSpec,
		strings.Replace(head, "namespace: payments", "namespace: orders", 1) + minimalSpec,
	}, "---"))
	got := resources.Pipeline(endpoints)
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	var refs, files []string
	for _, e := range got.Endpoints {
		refs = append(refs, e.Ref().String())
		files = append(files, e.Verification.SecretFiles...)
	}
	if diff := cmp.Diff([]string{"payments/github", "payments/another", "orders/github"}, refs); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"payments/github-webhook/secret", "payments/github-webhook/secret", "orders/github-webhook/secret"}, files); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
}

const minimalSpec = `
spec:
  source: {provider: GitHub, secretRefs: [{name: github-webhook, key: secret}]}
  destinations: [{name: handler, http: {url: "http://handler:8080/events"}}]
`

// No endpoints are a document all the same: null would be refused by nobody,
// and understood by everybody in another way.
func TestPipelineOfNone(t *testing.T) {
	got := resources.Pipeline(nil)
	if diff := cmp.Diff(&pipeline.Config{Version: pipeline.Version, Endpoints: []pipeline.Endpoint{}}, got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

func TestSecretRefs(t *testing.T) {
	ref := func(name, key string) v1alpha1.SecretKeyRef { return v1alpha1.SecretKeyRef{Name: name, Key: key} }
	for _, tc := range []struct {
		name, spec string
		want       []v1alpha1.SecretKeyRef
	}{
		{"webhook secret", minimalSpec, []v1alpha1.SecretKeyRef{ref("github-webhook", "secret")}},
		{"none", `
spec:
  source: {provider: None, identity: {idempotencyKey: {header: X-Id}}}
  destinations: [{name: handler, http: {url: "http://handler/"}}]
`, nil},
		{"all but the database's, in the order of the spec", `
spec:
  database: {secretRef: {name: db, key: url}}
  source: {provider: GitHub, secretRefs: [{name: z, key: new}, {name: a, key: old}]}
  destinations:
  - {name: handler, http: {url: "http://handler/", signingSecretRef: {name: x, key: key}}}
  - {name: unsigned, http: {url: "http://unsigned/"}}
  - {name: audit, http: {url: "http://audit/", signingSecretRef: {name: b, key: key}}}
`, []v1alpha1.SecretKeyRef{ref("z", "new"), ref("a", "old"), ref("x", "key"), ref("b", "key")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := &read(t, head+tc.spec)[0]
			before := e.DeepCopy()
			refs := resources.SecretRefs(e)
			if diff := cmp.Diff(tc.want, refs); diff != "" {
				t.Errorf("secrets (-want +got):\n%s", diff)
			}
			// Every file that the document names is the key of one of them.
			var files []string
			for _, r := range refs {
				files = append(files, resources.SecretFile("payments", r))
			}
			var named []string
			p := resources.Pipeline([]v1alpha1.WebhookEndpoint{*e}).Endpoints[0]
			named = append(named, p.Verification.SecretFiles...)
			for _, d := range p.Destinations {
				if d.HTTP.SigningSecretFile != "" {
					named = append(named, d.HTTP.SigningSecretFile)
				}
			}
			if diff := cmp.Diff(named, files); diff != "" {
				t.Errorf("files (-document +secrets):\n%s", diff)
			}
			if len(refs) > 0 {
				refs[0].Name = "changed" // the caller's own
			}
			if diff := cmp.Diff(before, e); diff != "" {
				t.Errorf("the object was changed (-before +after):\n%s", diff)
			}
		})
	}
}
