package eventreplay

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

// idNamespace is the UUID namespace of replays that have no UID of their own
// because no cluster made one: their identity is their name.
var idNamespace = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("eventreplays.ackrail.io"))

// Request translates an EventReplay. Its identity is metadata.uid, so that an
// object which is deleted and made again is another replay; without one, it is
// the namespace and the name. The error says which field is at fault; the
// CRD's rules admit none.
func Request(r *v1alpha1.EventReplay) (replay.Request, error) {
	id, err := identity(r)
	if err != nil {
		return replay.Request{}, err
	}
	spec, err := canonical(&r.Spec)
	if err != nil {
		return replay.Request{}, err
	}
	x := &r.Spec.Selector
	request := replay.Request{
		ID:        id,
		Namespace: r.Namespace,
		Name:      r.Name,
		Endpoint:  event.EndpointRef{Namespace: r.Namespace, Name: r.Spec.EndpointRef.Name},
		Limit:     r.Spec.Limit,
		Spec:      spec,
		Selector: replay.Selector{
			Destinations:   x.Destinations,
			Types:          x.Types,
			ReceivedAfter:  timeOf(x.ReceivedAfter),
			ReceivedBefore: timeOf(x.ReceivedBefore),
			DiedAfter:      timeOf(x.DiedAfter),
			DiedBefore:     timeOf(x.DiedBefore),
		},
	}
	for _, state := range x.States {
		request.Selector.States = append(request.Selector.States, event.State(strings.ToLower(string(state))))
	}
	for _, reason := range x.Reasons {
		request.Selector.Reasons = append(request.Selector.Reasons, event.Reason(reason))
	}
	for _, s := range x.LastStatuses {
		codes, err := statuses(s)
		if err != nil {
			return replay.Request{}, fmt.Errorf("spec.selector.lastStatuses: %w", err)
		}
		request.Selector.Statuses = append(request.Selector.Statuses, codes...)
	}
	for _, s := range x.EventIDs {
		id, err := uuid.Parse(s)
		if err != nil {
			return replay.Request{}, fmt.Errorf("spec.selector.eventIDs: %q is not a UUID", s)
		}
		request.Selector.Events = append(request.Selector.Events, id)
	}
	return request, nil
}

// Destinations returns the names of an endpoint's destinations, as
// replay.Request has them in Present.
func Destinations(endpoint *v1alpha1.WebhookEndpoint) []string {
	names := make([]string, len(endpoint.Spec.Destinations))
	for i := range endpoint.Spec.Destinations {
		names[i] = endpoint.Spec.Destinations[i].Name
	}
	return names
}

// statuses returns the HTTP status codes that a code or class stands for.
func statuses(s string) ([]int32, error) {
	low, many := s, 1
	if class, found := strings.CutSuffix(s, "xx"); found {
		low, many = class+"00", 100
	}
	first, err := strconv.ParseUint(low, 10, 15)
	if err != nil || len(low) != 3 {
		return nil, fmt.Errorf("%q is neither an HTTP status code nor a class of them", s)
	}
	codes := make([]int32, many)
	for i := range codes {
		codes[i] = int32(first) + int32(i)
	}
	return codes, nil
}

func identity(r *v1alpha1.EventReplay) (uuid.UUID, error) {
	if r.UID == "" {
		return uuid.NewSHA1(idNamespace, []byte(r.Namespace+"/"+r.Name)), nil
	}
	id, err := uuid.Parse(string(r.UID))
	if err != nil {
		return uuid.Nil, fmt.Errorf("metadata.uid: %q is not a UUID", r.UID)
	}
	return id, nil
}

// canonical returns what of a spec decides which deliveries are taken. The
// rest may differ between two looks at the same replay: suspend because it may
// be changed, fields of later versions because the API server sets their
// defaults in objects that are older.
func canonical(spec *v1alpha1.EventReplaySpec) (string, error) {
	data, err := json.Marshal(struct {
		EndpointRef v1alpha1.EndpointRef    `json:"endpointRef"`
		Selector    v1alpha1.ReplaySelector `json:"selector"`
		Limit       int64                   `json:"limit,omitempty"`
	}{spec.EndpointRef, spec.Selector, spec.Limit})
	if err != nil {
		return "", fmt.Errorf("encoding the spec: %w", err)
	}
	return string(data), nil
}

func timeOf(t *metav1.Time) *time.Time {
	if t == nil {
		return nil
	}
	return &t.Time
}
