package event_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ackrail/ackrail/internal/event"
)

func TestParseEndpointRef(t *testing.T) {
	for _, tc := range []struct {
		in, fallback string
		want         event.EndpointRef
		ok           bool
	}{
		{"github", "payments", event.EndpointRef{Namespace: "payments", Name: "github"}, true},
		{"billing/stripe", "payments", event.EndpointRef{Namespace: "billing", Name: "stripe"}, true},
		{"", "payments", event.EndpointRef{}, false},
		{"github", "", event.EndpointRef{}, false},
		{"/github", "payments", event.EndpointRef{}, false},
		{"billing/", "payments", event.EndpointRef{}, false},
		{"a/b/c", "payments", event.EndpointRef{}, false},
	} {
		got, err := event.ParseEndpointRef(tc.in, tc.fallback)
		if (err == nil) != tc.ok || got != tc.want {
			t.Errorf("%q in %q: got %v, %v", tc.in, tc.fallback, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "NAMESPACE/NAME") {
			t.Errorf("%q: the error does not say what is wanted: %v", tc.in, err)
		}
		if err == nil && tc.in == got.String() && got.Namespace == tc.fallback {
			t.Errorf("%q was taken for a reference with a namespace", tc.in)
		}
	}
}

func TestNames(t *testing.T) {
	id, err := event.NewID()
	if err != nil {
		t.Fatal(err)
	}
	to := event.DestinationRef{Endpoint: event.EndpointRef{Namespace: "payments", Name: "github"}, Name: "handler"}
	if got, want := to.String(), "payments/github/handler"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	key := event.DeliveryKey{Event: id, Destination: to, Run: 2}
	if got, want := key.String(), id.String()+"/handler/2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Later ids are greater, so that indexes on them grow at one end.
func TestIDsGrow(t *testing.T) {
	var last event.ID
	for range 1000 {
		id, err := event.NewID()
		if err != nil {
			t.Fatal(err)
		}
		if id.Version() != 7 || bytes.Compare(id[:], last[:]) <= 0 {
			t.Fatalf("%s (version %d) came after %s", id, id.Version(), last)
		}
		last = id
	}
}
