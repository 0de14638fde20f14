package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookEndpoint takes the webhooks of one sender in, holds them in a
// database and delivers each of them to every destination.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=whe,categories=ackrail
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.deliveries.pending`
// +kubebuilder:printcolumn:name="Dead",type=integer,JSONPath=`.status.deliveries.dead`
// +kubebuilder:printcolumn:name="URL",type=string,priority=1,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type WebhookEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the pipeline that is wanted.
	// +required
	Spec WebhookEndpointSpec `json:"spec"`

	// Status is the pipeline that was observed.
	// +optional
	Status WebhookEndpointStatus `json:"status,omitzero"`
}

// WebhookEndpointList is a list of WebhookEndpoint objects.
//
// +kubebuilder:object:root=true
type WebhookEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WebhookEndpoint `json:"items"`
}

// WebhookEndpointSpec describes a pipeline: where its events are kept, where
// they come from, where they go.
//
// +kubebuilder:validation:XValidation:rule="self.destinations.all(d, d.http.timeoutSeconds + 5 <= self.worker.leaseSeconds)",fieldPath=".worker.leaseSeconds",message="must be at least 5 more than the longest http.timeoutSeconds of the destinations, so that the outcome is written down before another worker may take the delivery over: raise worker.leaseSeconds or lower http.timeoutSeconds"
type WebhookEndpointSpec struct {
	// Database names the Postgres database that holds the events.
	// Default: key uri of the Secret ackrail-database.
	// +optional
	// +kubebuilder:default={}
	Database Database `json:"database,omitzero"`

	// Source says where events come from and how they are verified and
	// identified.
	// +required
	Source Source `json:"source"`

	// Destinations are where each event is delivered to, independently of
	// one another. 1 to 32, names unique.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Destinations []Destination `json:"destinations"`

	// Ingress tunes the pods that take requests.
	// +optional
	// +kubebuilder:default={}
	Ingress Ingress `json:"ingress,omitzero"`

	// Worker tunes the pods that deliver.
	// +optional
	// +kubebuilder:default={}
	Worker Worker `json:"worker,omitzero"`

	// Retention says how long what is kept.
	// +optional
	// +kubebuilder:default={}
	Retention Retention `json:"retention,omitzero"`

	// Suspend stops a part of the pipeline without losing what it holds:
	// None, Deliveries (events are accepted and held, none is delivered) or
	// All (requests are answered with 503 as well, so that senders come
	// again; the endpoint is not Ready meanwhile). Default: None.
	// +optional
	// +kubebuilder:default=None
	Suspend Suspend `json:"suspend,omitempty"`
}

// Suspend says which part of a pipeline stands still.
//
// +kubebuilder:validation:Enum=None;Deliveries;All
type Suspend string

const (
	// SuspendNone lets everything run.
	SuspendNone Suspend = "None"
	// SuspendDeliveries accepts events and holds them. Requests to
	// destinations that are under way are finished.
	SuspendDeliveries Suspend = "Deliveries"
	// SuspendAll delivers nothing and answers every request with 503.
	SuspendAll Suspend = "All"
)

// Database names a Postgres database.
type Database struct {
	// SecretRef names the key of a Secret in the same namespace that holds
	// the database's URL, such as postgres://user:password@host:5432/name.
	// Default: key uri of the Secret ackrail-database.
	// +optional
	// +kubebuilder:default={}
	SecretRef DatabaseSecretRef `json:"secretRef,omitzero"`
}

// DatabaseSecretRef names one key of a Secret in the same namespace.
type DatabaseSecretRef struct {
	// Name of the Secret. Default: ackrail-database.
	// +optional
	// +kubebuilder:default="ackrail-database"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a Secret: lower-case letters, digits, '-' and '.', with a letter or digit at each end"
	Name string `json:"name,omitempty"`

	// Key within the Secret. Default: uri.
	// +optional
	// +kubebuilder:default="uri"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([-_a-zA-Z0-9]|[.][-_a-zA-Z0-9])[-._a-zA-Z0-9]*$')",message="must be a key of a Secret: letters, digits, '-', '_' and '.', and not '..' at its start"
	Key string `json:"key,omitempty"`
}

// SecretKeyRef names one key of a Secret in the same namespace.
type SecretKeyRef struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a Secret: lower-case letters, digits, '-' and '.', with a letter or digit at each end"
	Name string `json:"name"`

	// Key within the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([-_a-zA-Z0-9]|[.][-_a-zA-Z0-9])[-._a-zA-Z0-9]*$')",message="must be a key of a Secret: letters, digits, '-', '_' and '.', and not '..' at its start"
	Key string `json:"key"`
}

// Provider is a sender's scheme of signing and identifying its requests.
//
// +kubebuilder:validation:Enum=GitHub;StandardWebhooks;HMAC;None
type Provider string

const (
	// ProviderGitHub verifies X-Hub-Signature-256; X-GitHub-Delivery is the
	// idempotency key, X-GitHub-Event the type.
	ProviderGitHub Provider = "GitHub"
	// ProviderStandardWebhooks follows the Standard Webhooks specification:
	// webhook-id, webhook-timestamp and webhook-signature.
	ProviderStandardWebhooks Provider = "StandardWebhooks"
	// ProviderHMAC verifies an HMAC over the raw body as Source.HMAC says.
	ProviderHMAC Provider = "HMAC"
	// ProviderNone accepts unsigned requests. It is never a default.
	ProviderNone Provider = "None"
)

// Source says where events come from and how they are verified and
// identified.
//
// +kubebuilder:validation:XValidation:rule="self.provider != 'HMAC' || has(self.hmac)",fieldPath=".hmac",reason=FieldValueRequired,message="is required with provider HMAC: set hmac.header to the header that carries the signature"
// +kubebuilder:validation:XValidation:rule="self.provider == 'HMAC' || !has(self.hmac)",fieldPath=".hmac",reason=FieldValueForbidden,message="goes with provider HMAC only: remove it, or set provider to HMAC"
// +kubebuilder:validation:XValidation:rule="self.provider == 'None' || has(self.secretRefs)",fieldPath=".secretRefs",reason=FieldValueRequired,message="is required with every provider but None: name the Secret that holds the webhook secret"
// +kubebuilder:validation:XValidation:rule="self.provider != 'None' || !has(self.secretRefs)",fieldPath=".secretRefs",reason=FieldValueForbidden,message="has no use with provider None, which verifies nothing: remove it, or set the provider that signs with it"
// +kubebuilder:validation:XValidation:rule="self.provider in ['GitHub', 'StandardWebhooks'] || (has(self.identity) && has(self.identity.idempotencyKey))",fieldPath=".identity.idempotencyKey",reason=FieldValueRequired,message="is required with providers HMAC and None, which prescribe no header for it: set identity.idempotencyKey.header to the header that carries the sender's own identifier of the event, else a repeated request would become a second event"
type Source struct {
	// Path is the URL path at which requests are taken: segments of letters,
	// digits, '-', '_', '.' and '~', at most 256 characters.
	// Default: /hooks/<namespace>/<name>.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[A-Za-z0-9._~-]+)+$')",message="must be one or more segments of letters, digits, '-', '_', '.' and '~', each after a '/', with nothing behind the last: for example /hooks/payments/github"
	// +kubebuilder:validation:XValidation:rule="!self.matches('/[.]{1,2}(/|$)')",message="must not have '.' or '..' as a segment, which clients resolve before they send: write the path out"
	Path string `json:"path,omitempty"`

	// Provider says how requests are verified: GitHub, StandardWebhooks,
	// HMAC (as the field hmac says) or None (not at all). No default.
	// +required
	Provider Provider `json:"provider"`

	// HMAC describes the signature. Required with provider HMAC, else
	// forbidden.
	// +optional
	HMAC *HMAC `json:"hmac,omitempty"`

	// SecretRefs name the live webhook secrets; a signature made with any of
	// them is good, so that a secret can be rotated. 1 to 8. Required unless
	// the provider is None, then forbidden.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=key
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	SecretRefs []SecretKeyRef `json:"secretRefs,omitempty"`

	// Identity says where an event's identity stands in a request.
	// Default: the provider's own headers.
	// +optional
	Identity *Identity `json:"identity,omitempty"`

	// MaxBodyBytes is the largest body that is taken, in bytes; a larger one
	// is refused with 413. 1 to 26214400 (25 MiB). Default: 1048576 (1 MiB).
	// +optional
	// +kubebuilder:default=1048576
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=26214400
	MaxBodyBytes int32 `json:"maxBodyBytes,omitempty"`
}

// HMACAlgorithm is the hash of an HMAC.
//
// +kubebuilder:validation:Enum=SHA256;SHA512
type HMACAlgorithm string

// The algorithms of an HMAC.
const (
	HMACAlgorithmSHA256 HMACAlgorithm = "SHA256"
	HMACAlgorithmSHA512 HMACAlgorithm = "SHA512"
)

// HMACEncoding is how the bytes of an HMAC are written in a header.
//
// +kubebuilder:validation:Enum=Hex;Base64
type HMACEncoding string

// The encodings of an HMAC.
const (
	HMACEncodingHex    HMACEncoding = "Hex"
	HMACEncodingBase64 HMACEncoding = "Base64"
)

// HMAC describes a signature over the raw bytes of the body.
type HMAC struct {
	// Header carries the signature, such as X-Signature.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9_.-]*$')",message="must be the name of an HTTP header: letters, digits, '-', '_' and '.'"
	Header string `json:"header"`

	// Algorithm is the hash: SHA256 or SHA512. Default: SHA256.
	// +optional
	// +kubebuilder:default=SHA256
	Algorithm HMACAlgorithm `json:"algorithm,omitempty"`

	// Encoding is how the header writes the signature: Hex or Base64.
	// Default: Hex.
	// +optional
	// +kubebuilder:default=Hex
	Encoding HMACEncoding `json:"encoding,omitempty"`

	// Prefix stands before the signature in the header, such as "sha256=".
	// Default: none.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([!-~][ -~]*)?$')",message="must be printable ASCII and not start with a space, which no header value can"
	Prefix string `json:"prefix,omitempty"`
}

// Identity says where an event's identity stands in a request.
type Identity struct {
	// IdempotencyKey is the sender's own identifier of the event: a second
	// request with the same one is answered as a duplicate.
	// Default: X-GitHub-Delivery with provider GitHub, webhook-id with
	// StandardWebhooks. Required with HMAC and None.
	// +optional
	IdempotencyKey *RequestField `json:"idempotencyKey,omitempty"`

	// Type is the kind of the event.
	// Default: X-GitHub-Event with provider GitHub, else events have none.
	// +optional
	Type *RequestField `json:"type,omitempty"`
}

// RequestField is a place in a request.
type RequestField struct {
	// Header whose value is taken.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9_.-]*$')",message="must be the name of an HTTP header: letters, digits, '-', '_' and '.'"
	Header string `json:"header"`
}

// Destination is one place that every event is delivered to.
type Destination struct {
	// Name is unique in the endpoint and the destination's identity in the
	// database: a DNS label, at most 63 characters.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be a DNS label: lower-case letters, digits and '-', with a letter or digit at each end"
	Name string `json:"name"`

	// HTTP delivers by POST.
	// +required
	HTTP HTTPDestination `json:"http"`

	// Retry says how often and when a failed attempt is repeated.
	// +optional
	// +kubebuilder:default={}
	Retry Retry `json:"retry,omitzero"`

	// MaxConcurrency is how many requests to this destination one worker
	// process has in flight at most. 1 to 1000. Default: 16.
	// +optional
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrency int32 `json:"maxConcurrency,omitempty"`
}

// HTTPDestination is a destination that takes POST requests.
type HTTPDestination struct {
	// URL that events are posted to: absolute, http or https, without user
	// information and fragment, at most 2048 characters.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''",message="must be an absolute http or https URL: for example https://handler.example.com/events"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^/]*//[^/?]*@')",message="must not contain a user name or password, which everybody who may read this object would see: remove them, and set http.signingSecretRef so that the handler can verify its requests"
	// +kubebuilder:validation:XValidation:rule="!self.contains('#')",message="must not have a fragment, which is never sent: remove the '#' and what follows it"
	URL string `json:"url"`

	// TimeoutSeconds bounds the whole exchange: connecting, sending, and
	// reading the answer. It must fit into worker.leaseSeconds with 5 seconds
	// to spare. 1 to 900 seconds. Default: 30.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=900
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// SigningSecretRef names the secret that deliveries are signed with, as
	// Standard Webhooks says (whsec_ and base64). Default: not signed.
	// +optional
	SigningSecretRef *SecretKeyRef `json:"signingSecretRef,omitempty"`
}

// Retry is a schedule: capped exponential backoff with full jitter.
//
// The rule asks for its fields, since an API server judges the default {}
// before it fills in the defaults of the fields.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minBackoffSeconds) || !has(self.maxBackoffSeconds) || self.minBackoffSeconds <= self.maxBackoffSeconds",fieldPath=".minBackoffSeconds",message="must not be greater than maxBackoffSeconds: lower minBackoffSeconds or raise maxBackoffSeconds"
type Retry struct {
	// MaxAttempts is how many attempts a run has before its delivery is dead.
	// 1 to 100. Default: 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxAttempts int32 `json:"maxAttempts,omitempty"`

	// MinBackoffSeconds bounds the wait before the second attempt; the bound
	// doubles with each attempt. 1 to 86400 seconds. Default: 5.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MinBackoffSeconds int32 `json:"minBackoffSeconds,omitempty"`

	// MaxBackoffSeconds bounds every wait. 1 to 86400 seconds (a day).
	// Default: 3600 (an hour).
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxBackoffSeconds int32 `json:"maxBackoffSeconds,omitempty"`
}

// Ingress tunes the pods that take requests.
type Ingress struct {
	// Replicas is the number of pods. 1 to 100. Default: 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Replicas int32 `json:"replicas,omitempty"`

	// Resources of each pod. What is not given has these defaults: requests
	// of 50m cpu and 64Mi memory, a limit of 256Mi memory; a default request
	// gives way to a lower limit, and a default limit to a higher request.
	// +optional
	Resources Resources `json:"resources,omitzero"`
}

// Worker tunes the pods that deliver.
type Worker struct {
	// Replicas is the number of pods. 1 to 100. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Replicas int32 `json:"replicas,omitempty"`

	// Resources of each pod. What is not given has these defaults: requests
	// of 50m cpu and 64Mi memory, a limit of 256Mi memory; a default request
	// gives way to a lower limit, and a default limit to a higher request.
	// +optional
	Resources Resources `json:"resources,omitzero"`

	// LeaseSeconds is how long a worker owns a delivery that it has claimed;
	// afterwards any worker may take it over. It must exceed every
	// destination's http.timeoutSeconds by 5 seconds.
	// 10 to 3600 seconds. Default: 60.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600
	LeaseSeconds int32 `json:"leaseSeconds,omitempty"`
}

// Resources are the compute resources of a pod.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",fieldPath=".requests",message="must not exceed limits: lower the request or raise the limit"
type Resources struct {
	// Requests is what is reserved for the pod: cpu, memory and
	// ephemeral-storage.
	// +optional
	Requests ResourceList `json:"requests,omitempty"`

	// Limits is what the pod may use at most: cpu, memory and
	// ephemeral-storage.
	// +optional
	Limits ResourceList `json:"limits,omitempty"`
}

// ResourceList is quantities by the name of the resource.
//
// +kubebuilder:validation:MaxProperties=3
// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="can hold cpu, memory and ephemeral-storage only: remove the others"
type ResourceList map[corev1.ResourceName]resource.Quantity

// Retention says how long what is kept, at least. Nothing that is not yet
// delivered or dead is ever dropped.
type Retention struct {
	// EventsSeconds is how long events and the record of their deliveries
	// are kept. 3600 (an hour) to 7776000 (90 days) seconds.
	// Default: 604800 (7 days).
	// +optional
	// +kubebuilder:default=604800
	// +kubebuilder:validation:Minimum=3600
	// +kubebuilder:validation:Maximum=7776000
	EventsSeconds int32 `json:"eventsSeconds,omitempty"`

	// DeadLettersSeconds is how long dead deliveries are kept, with the
	// events that they need. 3600 (an hour) to 31536000 (365 days) seconds.
	// Default: 2592000 (30 days).
	// +optional
	// +kubebuilder:default=2592000
	// +kubebuilder:validation:Minimum=3600
	// +kubebuilder:validation:Maximum=31536000
	DeadLettersSeconds int32 `json:"deadLettersSeconds,omitempty"`

	// DedupSeconds is how long an idempotency key is remembered: a request
	// that repeats it within that time is a duplicate. 60 (a minute) to
	// 7776000 (90 days) seconds. Default: 604800 (7 days).
	// +optional
	// +kubebuilder:default=604800
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=7776000
	DedupSeconds int32 `json:"dedupSeconds,omitempty"`
}
