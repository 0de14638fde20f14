package event

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ID identifies an event. It is a UUIDv7 (RFC 9562) made by the ingress, so
// that later events have greater ids and indexes on it grow at one end.
type ID = uuid.UUID

// NewID makes an event id from this process's clock and the system's random
// source. It fails only if that source does.
func NewID() (ID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return ID{}, fmt.Errorf("making an event id: %w", err)
	}
	return id, nil
}

// EndpointRef names a WebhookEndpoint. It is the endpoint's identity in the
// database: an endpoint that is deleted and applied again finds its events.
type EndpointRef struct {
	Namespace string
	Name      string
}

// String returns "namespace/name".
func (r EndpointRef) String() string { return r.Namespace + "/" + r.Name }

// ParseEndpointRef reads "namespace/name", or "name" in the namespace
// fallback. Names are not checked beyond being non-empty.
func ParseEndpointRef(s, fallback string) (EndpointRef, error) {
	namespace, name, found := strings.Cut(s, "/")
	if !found {
		namespace, name = fallback, s
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return EndpointRef{}, fmt.Errorf("endpoint %q: want NAME or NAMESPACE/NAME", s)
	}
	return EndpointRef{Namespace: namespace, Name: name}, nil
}

// DestinationRef names one destination of an endpoint.
type DestinationRef struct {
	Endpoint EndpointRef
	Name     string
}

// String returns "namespace/name/destination".
func (r DestinationRef) String() string { return r.Endpoint.String() + "/" + r.Name }

// Event is one accepted webhook. It is immutable once committed.
type Event struct {
	ID       ID
	Endpoint EndpointRef
	// Key is the sender's idempotency key, unique per endpoint inside the
	// dedup window. At most MaxKeyBytes, valid UTF-8, never empty.
	Key string
	// Type is the sender's event type, empty where it gave none. At most
	// MaxTypeBytes, valid UTF-8.
	Type        string
	ContentType string
	// Headers are the request's headers that are kept with the event:
	// signatures and credentials are not among them.
	Headers map[string][]string
	// Body is the request's body, byte for byte.
	Body []byte
	// TraceParent is the sender's W3C trace context, empty if it sent none.
	TraceParent string
	// ReceivedAt is the database's time of acceptance; zero before that.
	ReceivedAt time.Time
}

// Limits of an event's identity, in bytes.
const (
	MaxKeyBytes  = 512
	MaxTypeBytes = 256
)

// DeliveryKey names a delivery: one event owed to one destination in one run.
type DeliveryKey struct {
	Event       ID
	Destination DestinationRef
	// Run is 1 for the first delivery of an event to a destination; each
	// replay starts the next run.
	Run int
}

// String returns "event/destination/run", for logs and messages.
func (k DeliveryKey) String() string {
	return fmt.Sprintf("%s/%s/%d", k.Event, k.Destination.Name, k.Run)
}

// Token is the fencing token of a claim: whatever a worker writes about a
// delivery takes effect only while the delivery is claimed with this attempt.
type Token struct {
	Delivery DeliveryKey
	// Attempt grows by one with every claim and never returns to an earlier
	// value.
	Attempt int
}
