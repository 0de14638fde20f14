package eventreplay

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

func TestRequest(t *testing.T) {
	after := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	before := metav1.NewTime(after.Add(time.Hour))
	id := uuid.New()
	ttl := int32(60)
	got, err := Request(&v1alpha1.EventReplay{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "after-fix", UID: "0b0f3a5e-6f0e-4b0c-9d54-5d4b5e6f7a8b"},
		Spec: v1alpha1.EventReplaySpec{
			EndpointRef: v1alpha1.EndpointRef{Name: "github"},
			Selector: v1alpha1.ReplaySelector{
				States:       []v1alpha1.ReplayState{v1alpha1.ReplayStateDead, v1alpha1.ReplayStateDone},
				Destinations: []string{"handler"}, Types: []string{"push"}, EventIDs: []string{strings.ToUpper(id.String())},
				ReceivedAfter: &after, ReceivedBefore: &before,
				Reasons: []v1alpha1.DeadReason{v1alpha1.DeadReasonPermanentStatus}, LastStatuses: []string{"503", "599"},
				DiedAfter: &after, DiedBefore: &before,
			},
			Limit: 10, MaxPerSecond: 5, Suspend: true, TTLSecondsAfterFinished: &ttl,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := replay.Request{
		ID: uuid.MustParse("0b0f3a5e-6f0e-4b0c-9d54-5d4b5e6f7a8b"), Namespace: "payments", Name: "after-fix",
		Endpoint: event.EndpointRef{Namespace: "payments", Name: "github"}, Limit: 10,
		Selector: replay.Selector{
			States:       []event.State{event.StateDead, event.StateDone},
			Destinations: []string{"handler"}, Types: []string{"push"}, Events: []event.ID{id},
			ReceivedAfter: &after.Time, ReceivedBefore: &before.Time,
			Reasons: []event.Reason{event.ReasonPermanentStatus}, Statuses: []int32{503, 599},
			DiedAfter: &after.Time, DiedBefore: &before.Time,
		},
		Spec: `{"endpointRef":{"name":"github"},"selector":{"states":["Dead","Done"],"destinations":["handler"],"types":["push"],"eventIDs":["` +
			strings.ToUpper(id.String()) + `"],"reasons":["PermanentStatus"],"lastStatuses":["503","599"],"receivedAfter":"2026-01-01T00:00:00Z","receivedBefore":"2026-01-01T01:00:00Z",` +
			`"diedAfter":"2026-01-01T00:00:00Z","diedBefore":"2026-01-01T01:00:00Z"},"limit":10}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestStatuses(t *testing.T) {
	class := make([]int32, 100)
	for i := range class {
		class[i] = 400 + int32(i)
	}
	for s, want := range map[string][]int32{
		"503": {503}, "100": {100}, "4xx": class,
		"": nil, "xx": nil, "5": nil, "50x": nil, "5XX": nil, "-50": nil, "+50": nil, "5000": nil, "500xx": nil,
	} {
		got, err := statuses(s)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

func TestStates(t *testing.T) {
	r := newReplay()
	r.Spec.Selector.States = []v1alpha1.ReplayState{v1alpha1.ReplayStateDead, v1alpha1.ReplayStateDone, v1alpha1.ReplayStateMissing}
	got, err := Request(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]event.State{event.StateDead, event.StateDone, replay.StateMissing}, got.Selector.States); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// The reasons that can be selected are those that deliveries die of.
func TestDeadReasons(t *testing.T) {
	for selected, reason := range map[v1alpha1.DeadReason]event.Reason{
		v1alpha1.DeadReasonPermanentStatus:   event.ReasonPermanentStatus,
		v1alpha1.DeadReasonAttemptsExhausted: event.ReasonAttemptsExhausted,
		v1alpha1.DeadReasonOutcomeUnknown:    event.ReasonOutcomeUnknown,
		v1alpha1.DeadReasonPayloadMissing:    event.ReasonPayloadMissing,
	} {
		if string(selected) != string(reason) {
			t.Errorf("%q selects %q", selected, reason)
		}
	}
}

// What may differ between two looks at a replay makes no other one of it.
func TestSpecIsWhatIsSelected(t *testing.T) {
	spec := func(change func(*v1alpha1.EventReplaySpec)) string {
		t.Helper()
		r := newReplay()
		change(&r.Spec)
		request, err := Request(r)
		if err != nil {
			t.Fatal(err)
		}
		return request.Spec
	}
	plain := spec(func(*v1alpha1.EventReplaySpec) {})
	for name, tc := range map[string]struct {
		change func(*v1alpha1.EventReplaySpec)
		same   bool
	}{
		"suspend":      {func(s *v1alpha1.EventReplaySpec) { s.Suspend = true }, true},
		"mode":         {func(s *v1alpha1.EventReplaySpec) { s.Mode = v1alpha1.ReplayModeDryRun }, true},
		"maxPerSecond": {func(s *v1alpha1.EventReplaySpec) { s.MaxPerSecond = 1 }, true},
		"ttl":          {func(s *v1alpha1.EventReplaySpec) { s.TTLSecondsAfterFinished = new(int32) }, true},
		"limit":        {func(s *v1alpha1.EventReplaySpec) { s.Limit = 1 }, false},
		"endpoint":     {func(s *v1alpha1.EventReplaySpec) { s.EndpointRef.Name = "gitlab" }, false},
		"selector":     {func(s *v1alpha1.EventReplaySpec) { s.Selector.Types = []string{"push"} }, false},
	} {
		if got := spec(tc.change); (got == plain) != tc.same {
			t.Errorf("%s: %s, without it %s", name, got, plain)
		}
	}
}

func TestIdentity(t *testing.T) {
	id := func(namespace, name, uid string) uuid.UUID {
		t.Helper()
		r := newReplay()
		r.Namespace, r.Name, r.UID = namespace, name, ""
		if uid != "" {
			r.UID = "7f1c1c5e-3b1f-4c58-8a8e-9c1d2e3f4a5b"
		}
		request, err := Request(r)
		if err != nil {
			t.Fatal(err)
		}
		return request.ID
	}
	// These are in databases: they must never change.
	if got, want := id("payments", "after-fix", ""), uuid.MustParse("06a69893-baa2-5d05-8611-92f730b799dc"); got != want {
		t.Errorf("by its name it is %s, want %s", got, want)
	}
	if id("a", "b", "") == id("a", "c", "") || id("a", "b", "") == id("c", "b", "") {
		t.Error("two names are one replay")
	}
	if id("a", "b", "uid") != id("a", "c", "uid") {
		t.Error("the UID does not count")
	}
}

func TestRequestRefuses(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.EventReplay){
		`spec.selector.eventIDs: "one" is not a UUID`:                                          func(r *v1alpha1.EventReplay) { r.Spec.Selector.EventIDs = []string{"one"} },
		`spec.selector.lastStatuses: "one" is neither an HTTP status code nor a class of them`: func(r *v1alpha1.EventReplay) { r.Spec.Selector.LastStatuses = []string{"one"} },
		`metadata.uid: "one" is not a UUID`:                                                    func(r *v1alpha1.EventReplay) { r.UID = "one" },
	} {
		r := newReplay()
		change(r)
		if _, err := Request(r); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
