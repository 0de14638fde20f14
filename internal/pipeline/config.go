package pipeline

import (
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/signature"
)

// Version is the version of the document that this binary writes and reads.
const Version = 1

// LeaseMargin is by how much a lease must outlast the longest exchange with
// a destination: the time to record the outcome before anybody else may take
// the delivery over.
const LeaseMargin = 5 * time.Second

// Provider says how the requests of a sender are verified and identified.
type Provider string

// The providers.
const (
	ProviderGitHub           Provider = "GitHub"
	ProviderStandardWebhooks Provider = "StandardWebhooks"
	// ProviderHMAC is an HMAC over the raw body with settings of its own.
	ProviderHMAC Provider = "HMAC"
	// ProviderNone accepts unsigned requests. It must be asked for by name.
	ProviderNone Provider = "None"
)

// Config is the document.
type Config struct {
	// Version must be 1.
	Version   int        `json:"version"`
	Endpoints []Endpoint `json:"endpoints"`
}

// Endpoint is one place that takes webhooks in, and where they go.
type Endpoint struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Path is the URL path that the ingress serves, unique in the document.
	Path         string        `json:"path"`
	Verification Verification  `json:"verification"`
	Identity     Identity      `json:"identity"`
	MaxBodyBytes int64         `json:"maxBodyBytes"`
	Destinations []Destination `json:"destinations"`
	// LeaseSeconds is how long a claim holds; at least every destination's
	// timeout plus LeaseMargin.
	LeaseSeconds int       `json:"leaseSeconds"`
	Retention    Retention `json:"retention"`
	// Suspend stops a part of the endpoint; empty stands for SuspendNone.
	Suspend Suspend `json:"suspend,omitempty"`
}

// Ref returns the endpoint's identity.
func (e *Endpoint) Ref() event.EndpointRef {
	return event.EndpointRef{Namespace: e.Namespace, Name: e.Name}
}

// Lease returns LeaseSeconds as a duration.
func (e *Endpoint) Lease() time.Duration { return seconds(e.LeaseSeconds) }

// Suspend says which part of an endpoint stands still.
type Suspend string

// What can stand still.
const (
	SuspendNone Suspend = "None"
	// SuspendDeliveries accepts events and holds them.
	SuspendDeliveries Suspend = "Deliveries"
	// SuspendAll delivers nothing and refuses requests for the time being.
	SuspendAll Suspend = "All"
)

// Accepts reports whether requests are taken.
func (s Suspend) Accepts() bool { return s != SuspendAll }

// Delivers reports whether events are delivered.
func (s Suspend) Delivers() bool { return s == "" || s == SuspendNone }

// Verification says how a request proves where it comes from.
type Verification struct {
	Provider Provider `json:"provider"`
	// SecretFiles are paths below the secrets folder, one live secret each.
	// Empty only with ProviderNone.
	SecretFiles []string `json:"secretFiles,omitempty"`
	// HMAC is set with ProviderHMAC and only then.
	HMAC *HMAC `json:"hmac,omitempty"`
}

// Scheme returns how the provider signs. It reports false for ProviderNone,
// which verifies nothing, and for a provider that it does not know.
func (v *Verification) Scheme() (signature.Scheme, bool) {
	if v.Provider == ProviderHMAC && v.HMAC != nil {
		return signature.HMAC(v.HMAC.Header, signature.Algorithm(v.HMAC.Algorithm), signature.Encoding(v.HMAC.Encoding), v.HMAC.Prefix), true
	}
	return signature.Preset(string(v.Provider))
}

// HMAC describes a signature over the raw body.
type HMAC struct {
	// Header carries the signature.
	Header string `json:"header"`
	// Algorithm is SHA256 or SHA512.
	Algorithm string `json:"algorithm"`
	// Encoding is Hex or Base64.
	Encoding string `json:"encoding"`
	// Prefix stands before the encoded signature, such as "sha256=".
	Prefix string `json:"prefix,omitempty"`
}

// Identity says where a request's identity stands. Empty fields take the
// provider's own headers.
type Identity struct {
	// IdempotencyKeyHeader is required where the provider has none of its
	// own (ProviderHMAC and ProviderNone).
	IdempotencyKeyHeader string `json:"idempotencyKeyHeader,omitempty"`
	TypeHeader           string `json:"typeHeader,omitempty"`
}

// Destination is one place that events are delivered to.
type Destination struct {
	Name string `json:"name"`
	HTTP HTTP   `json:"http"`
	// Retry says how often and when a failed attempt is repeated.
	Retry Retry `json:"retry"`
	// MaxConcurrency bounds the requests in flight to this destination from
	// one worker process.
	MaxConcurrency int `json:"maxConcurrency"`
}

// HTTP describes a destination that takes POST requests.
type HTTP struct {
	URL string `json:"url"`
	// TimeoutSeconds bounds the whole exchange.
	TimeoutSeconds int `json:"timeoutSeconds"`
	// SigningSecretFile is a path below the secrets folder; requests are
	// signed as Standard Webhooks says when it is set.
	SigningSecretFile string `json:"signingSecretFile,omitempty"`
}

// Timeout returns TimeoutSeconds as a duration.
func (h *HTTP) Timeout() time.Duration { return seconds(h.TimeoutSeconds) }

// Retry is a destination's retry policy.
type Retry struct {
	MaxAttempts       int `json:"maxAttempts"`
	MinBackoffSeconds int `json:"minBackoffSeconds"`
	MaxBackoffSeconds int `json:"maxBackoffSeconds"`
}

// MinBackoff returns MinBackoffSeconds as a duration.
func (r *Retry) MinBackoff() time.Duration { return seconds(r.MinBackoffSeconds) }

// MaxBackoff returns MaxBackoffSeconds as a duration.
func (r *Retry) MaxBackoff() time.Duration { return seconds(r.MaxBackoffSeconds) }

// Retention says how long what is kept: at least so long after it arose, and
// no longer than a day more.
type Retention struct {
	EventsSeconds      int `json:"eventsSeconds"`
	DeadLettersSeconds int `json:"deadLettersSeconds"`
	DedupSeconds       int `json:"dedupSeconds"`
}

// Events returns EventsSeconds as a duration.
func (r *Retention) Events() time.Duration { return seconds(r.EventsSeconds) }

// DeadLetters returns DeadLettersSeconds as a duration.
func (r *Retention) DeadLetters() time.Duration { return seconds(r.DeadLettersSeconds) }

// Dedup returns DedupSeconds as a duration.
func (r *Retention) Dedup() time.Duration { return seconds(r.DedupSeconds) }

// Ledger returns how long the record of attempts is kept: as long as
// anything that it explains.
func (r *Retention) Ledger() time.Duration { return max(r.Events(), r.DeadLetters()) }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
