package store

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

func TestListDeliveries(t *testing.T) {
	s := newStore(t)
	// One delivery in each state, of two types, to two destinations, and one
	// of another endpoint; the oldest first.
	names := []string{"a", "b"}
	var ids []event.ID
	for i, v := range append([]event.Verdict{""}, verdicts...) { // pending, done, failed, dead, released
		sub := submission(t, digits(i), to(names[i%2]), typed([]string{"push", "ping"}[i%2]))
		enqueue(t, s, sub)
		ids = append(ids, sub.Event.ID)
		if v != "" {
			claims := claim(t, s, want(names[i%2]))
			i := slices.IndexFunc(claims, func(c *Claim) bool { return c.Event.ID == sub.Event.ID })
			finish(t, s, v, claims[i])
			execute(t, s, "UPDATE delivery SET state = 'pending', attempt = 0 WHERE state = 'claimed'")
		}
	}
	other := event.EndpointRef{Namespace: "orders", Name: "github"}
	sub := submission(t, "other", func(s *Submission) { s.Event.Endpoint = other })
	enqueue(t, s, sub)
	ids = append(ids, sub.Event.ID)
	w := want("a")
	w.Destination.Endpoint = other
	claim(t, s, w)

	for _, tc := range []struct {
		name   string
		filter Filter
		want   []int
	}{
		{"all, the newest first", Filter{}, []int{5, 4, 3, 2, 1, 0}},
		{"limit", Filter{Limit: 2}, []int{5, 4}},
		{"namespace", Filter{Namespace: "payments"}, []int{4, 3, 2, 1, 0}},
		{"endpoint", Filter{Endpoint: "github"}, []int{5, 4, 3, 2, 1, 0}},
		{"unknown endpoint", Filter{Endpoint: "gitlab"}, nil},
		{"endpoint and namespace", Filter{Namespace: "orders", Endpoint: "github"}, []int{5}},
		{"destination", Filter{Destination: "b"}, []int{3, 1}},
		{"pending", Filter{States: []event.State{event.StatePending}}, []int{4, 0}},
		{"claimed", Filter{States: []event.State{event.StateClaimed}}, []int{5}},
		{"failed", Filter{States: []event.State{event.StateFailed}}, []int{2}},
		{"dead", Filter{States: []event.State{event.StateDead}}, []int{3}},
		{"done", Filter{States: []event.State{event.StateDone}}, []int{1}},
		{"several states, limited", Filter{States: []event.State{event.StateDone, event.StateDead, event.StateClaimed}, Limit: 2}, []int{5, 3}},
		{"type", Filter{Types: []string{"ping"}}, []int{3, 1}},
		{"types", Filter{Types: []string{"ping", "push"}, States: []event.State{event.StateDead, event.StateFailed}}, []int{3, 2}},
		{"everything at once", Filter{
			Namespace: "payments", Endpoint: "github", Destination: "a", Types: []string{"push"}, States: []event.State{event.StatePending}, Limit: 1,
		}, []int{4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got, expected []event.ID
			for _, d := range list(t, s, tc.filter) {
				got = append(got, d.Key.Event)
				if d.ReceivedAt == nil || d.Type == "" || d.Size == 0 {
					t.Errorf("%s: received at %v, type %q, size %d", d.Key, d.ReceivedAt, d.Type, d.Size)
				}
			}
			for _, i := range tc.want {
				expected = append(expected, ids[i])
			}
			same(t, "events", expected, got)
		})
	}
}

// Deliveries are listed when their event is held, and when it is gone.
func TestListWithoutEvent(t *testing.T) {
	s := newStore(t)
	ids := newDead(t, s, 2)
	execute(t, s, "INSERT INTO held_event SELECT * FROM event WHERE id = $1", ids[0])
	execute(t, s, "DELETE FROM event")
	got := list(t, s, Filter{})
	same(t, "types", []string{"", "push"}, []string{got[0].Type, got[1].Type})
	if got[0].ReceivedAt != nil || got[1].ReceivedAt == nil {
		t.Errorf("received at %v and %v", got[0].ReceivedAt, got[1].ReceivedAt)
	}
	same(t, "of a type", 1, len(list(t, s, Filter{Types: []string{"push"}})))

	shown, err := s.ShowEvent(t.Context(), ids[1])
	if err != nil || shown.Event != nil || len(shown.Deliveries) != 1 {
		t.Errorf("an event that is gone: %+v, %v", shown, err)
	}
	shown, err = s.ShowEvent(t.Context(), ids[0])
	if err != nil || shown.Event == nil || string(shown.Event.Body) != ids[0].String() {
		t.Errorf("an event that is held: %+v, %v", shown, err)
	}
}

// The ledger tells of each attempt how it ended, or that nobody knows.
func TestShowEvent(t *testing.T) {
	s := newStore(t)
	sub := submission(t, "k", to("a", "b", "c"))
	enqueue(t, s, sub)
	claimAs := func(worker string, name string) *Claim {
		claims, err := s.Claim(t.Context(), worker, []Want{want(name)})
		if err != nil || len(claims) != 1 {
			t.Fatalf("%d claims, %v", len(claims), err)
		}
		return claims[0]
	}
	claimAs("worker-1", "a") // which vanishes
	lapse(t, s)
	finish(t, s, event.VerdictFailed, claimAs("worker-2", "a"))
	lapse(t, s)
	claimAs("worker-3", "a") // which is at it
	finish(t, s, event.VerdictReleased, claimAs("worker-1", "b"))
	finish(t, s, event.VerdictDone, claimAs("worker-2", "b"))
	claimAs("worker-1", "c") // whose lease has ended, and nobody took over yet
	lapse(t, s)

	shown, err := s.ShowEvent(t.Context(), sub.Event.ID)
	if err != nil {
		t.Fatal(err)
	}
	var deliveries, attempts []string
	for _, d := range shown.Deliveries {
		deliveries = append(deliveries, strings.Join([]string{d.Key.Destination.Name, string(d.State), digits(d.Attempts)}, " "))
		same(t, "endpoint", endpoint, d.Key.Destination.Endpoint)
	}
	same(t, "deliveries", []string{"a claimed 3", "b done 1", "c claimed 1"}, deliveries)
	for _, a := range shown.Attempts {
		attempts = append(attempts, strings.Join([]string{a.Destination, digits(a.Attempt), a.Worker, string(a.Result), digits(a.Status)}, " "))
		running := a.Result == AttemptRunning || a.Result == AttemptUnknown
		if running != (a.EndedAt == nil) || a.StartedAt.IsZero() || running != (a.Latency == 0) {
			t.Errorf("%s %d: started at %s, ended at %v after %s", a.Destination, a.Attempt, a.StartedAt, a.EndedAt, a.Latency)
		}
	}
	same(t, "attempts", []string{
		"a 1 worker-1 unknown 0", "a 2 worker-2 failed 503", "a 3 worker-3 running 0",
		"b 1 worker-1 released 0", "b 2 worker-2 done 204",
		"c 1 worker-1 running 0",
	}, attempts)

	if _, err := s.ShowEvent(t.Context(), newID(t)); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnavailable) {
		t.Errorf("an unknown event: %v, want %v", err, ErrNotFound)
	}
}

// Support looks at the view, in any SQL client.
func TestDeliveryStateView(t *testing.T) {
	s := newStore(t)
	ids := enqueueNew(t, s, 5, "a")
	claims := claim(t, s, want("a"))
	for i, v := range verdicts {
		finish(t, s, v, claims[i])
	}
	rows := column[string](t, s, `SELECT concat_ws('/', namespace, endpoint, destination, run, state, attempts, reason, last_status, error_class,
		last_error, size, next_at IS NULL, ended_at IS NULL, replay_id IS NULL, replayed_by IS NULL) FROM delivery_state ORDER BY event_id`)
	same(t, "view", []string{
		"payments/github/a/1/done/1/204/36/t/f/t/t",
		"payments/github/a/1/failed/1/36/f/t/t/t",
		"payments/github/a/1/dead/1/PermanentStatus/410/HTTPStatus/status 410/36/t/f/t/t",
		"payments/github/a/1/pending/0/36/f/t/t/t",
		"payments/github/a/1/claimed/1/36/f/t/t/t",
	}, rows)
	same(t, "events", ids, column[uuid.UUID](t, s, "SELECT event_id FROM delivery_state ORDER BY 1"))
}

// Errors of the queries name what was being done, and that the database is
// at fault.
func TestErrorsNameWhatWasDone(t *testing.T) {
	s := openStore(t, "postgres://nobody@127.0.0.1:1/nothing")
	id, claims := newID(t), []*Claim{{}}
	for doing, do := range map[string]func() error{
		"checking the schema":                 func() error { return s.Ping(t.Context()) },
		"registering names":                   func() error { return s.Register(t.Context(), []event.DestinationRef{dest("a")}) },
		"claiming deliveries":                 func() error { _, err := s.Claim(t.Context(), "w", []Want{want("a")}); return err },
		"recording outcomes":                  func() error { _, err := s.Complete(t.Context(), []Outcome{{Claim: claims[0]}}); return err },
		"renewing leases":                     func() error { _, err := s.Renew(t.Context(), claims, []time.Duration{1}); return err },
		"counting deliveries":                 func() error { _, err := s.Counts(t.Context(), nil); return err },
		"maintaining the database":            func() error { _, err := s.Maintain(t.Context(), nil); return err },
		"creating partitions":                 func() error { return s.EnsurePartitions(t.Context(), keeps) },
		"listing deliveries":                  func() error { _, err := s.ListDeliveries(t.Context(), Filter{Limit: 1}); return err },
		"reading the event":                   func() error { _, err := s.ShowEvent(t.Context(), id); return err },
		"counting what the replay would take": func() error { _, err := s.CountReplay(t.Context(), newReplay(t, replay.Selector{})); return err },
		"planning the replay":                 func() error { return s.PlanReplay(t.Context(), newReplay(t, replay.Selector{})) },
		"running the replay":                  func() error { _, _, err := s.RunReplay(t.Context(), id, nil, 1); return err },
		"reading the replay's status":         func() error { _, err := s.ReplayStatus(t.Context(), id); return err },
		"waking the workers":                  func() error { return s.Wake(t.Context()) },
		"listening for work":                  func() error { return s.Listen(t.Context(), func() {}) },
		"committing events":                   func() error { return s.enqueueBatch(t.Context(), []Submission{submission(t, "k")})[0].err },
	} {
		if err := do(); !errors.Is(err, ErrUnavailable) || !strings.HasPrefix(err.Error(), doing+": ") {
			t.Errorf("%s: %v", doing, err)
		}
	}
}
