package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/store"
)

// explainedAt is when the explanations of the tests are given.
var explainedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// minutes is a time so many minutes from then.
func minutes(n int) *time.Time {
	t := explainedAt.Add(time.Duration(n) * time.Minute)
	return &t
}

const (
	explainedID = "0199c3b2-6f40-7c1a-9d3e-5b8a1f2c4d6e"
	oneReplay   = "6a0e8f6e-54d1-4f2f-8f8f-0d9c1f6b7a10"
	lookCmd     = "kubectl describe webhookendpoint github -n payments"
	againCmd    = "ackrail replay create NAME -n payments --endpoint github --destination handler --event-id " + explainedID + " --wait"
	queueNext   = "the next worker that is free takes it; what is due longer comes first"
	stays       = "nothing, unless it stays so: then see whether the endpoint is suspended, its workers run, and the destination is still in its spec"
	keeps       = "nothing by itself: it stays until somebody replays it, or its retention is over"
)

func explained(change func(*store.DeliveryRecord), attempts ...store.AttemptRecord) *store.EventRecord {
	d := store.DeliveryRecord{Key: event.DeliveryKey{
		Event: uuid.MustParse(explainedID), Run: 1,
		Destination: event.DestinationRef{Endpoint: event.EndpointRef{Namespace: "payments", Name: "github"}, Name: "handler"},
	}}
	change(&d)
	for i := range attempts {
		a := &attempts[i]
		a.Destination, a.Run, a.Attempt, a.Worker, a.StartedAt = "handler", d.Key.Run, i+1, "w1", *minutes(-3)
	}
	return &store.EventRecord{Event: &event.Event{ID: d.Key.Event, Endpoint: d.Key.Destination.Endpoint, ReceivedAt: *minutes(-60)}, Deliveries: []store.DeliveryRecord{d}, Attempts: attempts}
}

// deadLetter makes a dead letter since five minutes.
func deadLetter(reason event.Reason, status int, class event.ErrorClass, text string) func(*store.DeliveryRecord) {
	return func(d *store.DeliveryRecord) {
		d.State, d.Reason, d.LastStatus, d.ErrorClass, d.LastError = event.StateDead, reason, status, class, text
		d.Attempts, d.EndedAt = 3, minutes(-5)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	const deadSince = "is a dead letter since 2026-03-01T11:55:00Z (5m ago)"
	replay := uuid.MustParse(oneReplay)
	for _, tc := range []struct {
		name   string
		record *store.EventRecord
		want   explanation
	}{
		{"pending", explained(func(d *store.DeliveryRecord) { d.State, d.NextAt = event.StatePending, minutes(-2) }), explanation{
			Where: "waits in the queue, due at 2026-03-01T11:58:00Z (2m ago)", Why: "no worker has taken it yet",
			Next: queueNext, Do: stays, Commands: []string{lookCmd},
		}},
		{
			"handed back",
			explained(func(d *store.DeliveryRecord) { d.State, d.NextAt = event.StatePending, minutes(0) }, store.AttemptRecord{Result: "released", EndedAt: minutes(-1)}),
			explanation{
				Where: "waits in the queue, due at 2026-03-01T12:00:00Z (0s ago)",
				Why:   "worker w1 handed it back unsent at 2026-03-01T11:59:00Z (60s ago), as it does when it is told to stop",
				Next:  queueNext, Do: stays, Commands: []string{lookCmd},
			},
		},
		{
			"replayed and pending",
			explained(func(d *store.DeliveryRecord) {
				d.State, d.NextAt, d.Key.Run, d.Replay = event.StatePending, minutes(-1), 2, &replay
			}),
			explanation{
				Run: 2, Where: "waits in the queue, due at 2026-03-01T11:59:00Z (60s ago); run 2 was started by the replay " + oneReplay,
				Why: "no worker has taken it yet", Next: queueNext, Do: stays, Commands: []string{lookCmd},
			},
		},
		{
			"claimed",
			explained(func(d *store.DeliveryRecord) { d.State, d.NextAt = event.StateClaimed, minutes(2) }, store.AttemptRecord{Result: store.AttemptRunning}),
			explanation{
				Where: "is held by worker w1 with attempt 1, begun at 2026-03-01T11:57:00Z (3m ago); the lease ends at 2026-03-01T12:02:00Z (in 2m)",
				Why:   "the request is being sent, or is about to be",
				Next:  "the worker writes down how it ended; if it does not, another one takes over when the lease is over",
				Do:    "nothing",
			},
		},
		{
			"lease over",
			explained(func(d *store.DeliveryRecord) { d.State, d.NextAt = event.StateClaimed, minutes(-2) }, store.AttemptRecord{Result: store.AttemptRunning}),
			explanation{
				Where:    "is held by worker w1 with attempt 1, begun at 2026-03-01T11:57:00Z (3m ago); the lease ends at 2026-03-01T11:58:00Z (2m ago)",
				Why:      "the worker has not said how the attempt ended, and its lease is over: it has vanished, or is cut off from the database",
				Next:     "the next worker that is free takes it over with another attempt, unless that was the last one allowed",
				Do:       "nothing, unless it stays so: then see whether the endpoint's workers run",
				Commands: []string{lookCmd},
			},
		},
		{
			"failed",
			explained(func(d *store.DeliveryRecord) { d.State, d.NextAt, d.Attempts = event.StateFailed, minutes(30), 1 },
				store.AttemptRecord{Result: "failed", EndedAt: minutes(-2), Status: 503, ErrorClass: event.ErrorHTTPStatus, Excerpt: "down\nfor \"repair\""}),
			explanation{
				Where:    "waits for its next attempt, after 1 attempt",
				Why:      `attempt 1 failed at 2026-03-01T11:58:00Z (2m ago): the destination answered with status 503 and "down\nfor \"repair\""`,
				Next:     "the next attempt is made at 2026-03-01T12:30:00Z (in 30m); when the last one allowed by the destination's retry.maxAttempts has failed, it goes to the dead letters",
				Do:       "correct the handler, by its own logs; otherwise nothing",
				Commands: []string{lookCmd},
			},
		},
		{
			"failed and due, attempts unknown",
			explained(func(d *store.DeliveryRecord) { d.State, d.NextAt, d.Attempts = event.StateFailed, minutes(-1), 2 }),
			explanation{
				Where: "waits for its next attempt, after 2 attempts", Why: "the last attempt failed",
				Next: "the next attempt is due at 2026-03-01T11:59:00Z (60s ago): the next worker that is free makes it",
				Do:   "nothing", Commands: []string{lookCmd},
			},
		},
		{
			"done",
			explained(func(d *store.DeliveryRecord) {
				d.State, d.EndedAt, d.LastStatus, d.Attempts = event.StateDone, minutes(-5), 204, 2
			}),
			explanation{
				Where: "was delivered at 2026-03-01T11:55:00Z (5m ago)", Why: "the destination took it with status 204, after 2 attempts",
				Next: "nothing", Do: "if its effect was lost at the destination, deliver it again",
				Commands: []string{strings.TrimSuffix(againCmd, "--wait") + "--state done --wait"},
			},
		},
		{
			"done and gone",
			withoutEvent(explained(func(d *store.DeliveryRecord) {
				d.State, d.EndedAt, d.LastStatus, d.Attempts = event.StateDone, minutes(-5), 204, 1
			})),
			explanation{
				Where: "was delivered at 2026-03-01T11:55:00Z (5m ago)", Why: "the destination took it with status 204, after 1 attempt",
				Next: "nothing", Do: "nothing: the event's body is no longer kept, so it cannot be delivered again",
			},
		},
		{
			"permanent status",
			explained(deadLetter(event.ReasonPermanentStatus, 422, event.ErrorHTTPStatus, ""), store.AttemptRecord{Result: "dead", Excerpt: "no such order"}),
			explanation{
				Where: deadSince, Why: `the destination answered with status 422 and "no such order", which says that trying again is of no use (PermanentStatus)`,
				Next: keeps, Do: "correct the handler, by its own logs, then replay it", Commands: []string{againCmd},
			},
		},
		{"attempts exhausted", explained(deadLetter(event.ReasonAttemptsExhausted, 0, event.ErrorConnectionRefused, "dial tcp:\nrefused")), explanation{
			Where: deadSince, Why: "all 3 attempts that are allowed have failed (AttemptsExhausted); of the last: the destination refused the connection (dial tcp: refused)",
			Next: keeps, Do: "see that the destination's address is right, and that something answers there, then replay it", Commands: []string{againCmd},
		}},
		{"outcome unknown", explained(deadLetter(event.ReasonOutcomeUnknown, 0, "", ""), store.AttemptRecord{Result: store.AttemptUnknown}), explanation{
			Where: deadSince, Why: "the worker of the last allowed attempt vanished before it could say how that ended: the destination may have taken the event (OutcomeUnknown)",
			Next: keeps, Do: "see at the destination whether the event has arrived, which it knows by its webhook-id " + explainedID + ", then replay it", Commands: []string{againCmd},
		}},
		{"payload missing", withoutEvent(explained(deadLetter(event.ReasonPayloadMissing, 0, "", "the event is no longer in the database"))), explanation{
			Where: deadSince, Why: "the event's body was no longer in the database when it was to be sent (PayloadMissing)",
			Next: keeps, Do: "it cannot be replayed, since the event's body is no longer kept: have the sender send it again",
		}},
		{"reason of a later version", explained(deadLetter("Weather", 0, "", "rain")), explanation{
			Where: deadSince, Why: "the attempt failed (rain) (Weather)", Next: keeps, Do: "replay it", Commands: []string{againCmd},
		}},
		{
			"taken up, the run is gone",
			explained(func(d *store.DeliveryRecord) {
				deadLetter(event.ReasonPermanentStatus, 400, event.ErrorHTTPStatus, "")(d)
				d.ReplayedBy = &replay
			}),
			explanation{
				Where: deadSince, Why: "the destination answered with status 400, which says that trying again is of no use (PermanentStatus)",
				Next:     "the replay " + oneReplay + " took it up; how its run ended is no longer kept",
				Do:       "see what became of the replay",
				Commands: []string{"kubectl get replay -n payments -o custom-columns=NAME:.metadata.name,UID:.metadata.uid"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := explainer{id: uuid.MustParse(explainedID), record: tc.record, now: explainedAt, program: "ackrail"}
			tc.want.Destination, tc.want.State = "handler", string(tc.record.Deliveries[0].State)
			tc.want.Run = max(tc.want.Run, 1)
			if diff := cmp.Diff([]explanation{tc.want}, e.explain()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func withoutEvent(r *store.EventRecord) *store.EventRecord {
	r.Event = nil
	return r
}

// The latest run of each destination counts; the others are its history.
func TestExplainRuns(t *testing.T) {
	t.Parallel()
	replay := uuid.MustParse(oneReplay)
	first := explained(deadLetter(event.ReasonPermanentStatus, 400, event.ErrorHTTPStatus, "")).Deliveries[0]
	first.ReplayedBy = &replay
	second := first
	second.Key.Run, second.ReplayedBy, second.Replay = 2, nil, &replay
	second.State, second.LastStatus, second.Attempts, second.Reason = event.StateDone, 200, 1, ""
	third := second
	third.Key.Run, third.Replay, third.State, third.NextAt = 3, nil, event.StatePending, minutes(-1)
	other := first
	other.Key.Destination.Name, other.ReplayedBy = "other", nil
	e := explainer{record: &store.EventRecord{Deliveries: []store.DeliveryRecord{first, second, third, other}}, now: explainedAt}
	var got []string
	for _, x := range e.explain() {
		got = append(got, x.Destination+" "+x.State)
		got = append(got, x.Earlier...)
	}
	want := []string{
		"handler pending",
		"run 1: dead since 2026-03-01T11:55:00Z (5m ago): the destination answered with status 400, which says that trying again is of no use (PermanentStatus); the replay " + oneReplay + " took it up",
		"run 2: delivered at 2026-03-01T11:55:00Z (5m ago) with status 200",
		"other dead",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Every class of error has words of its own, and most have advice.
func TestTrouble(t *testing.T) {
	t.Parallel()
	silent := []event.ErrorClass{event.ErrorNone, event.ErrorCanceled}
	seen := map[string]event.ErrorClass{}
	for _, class := range []event.ErrorClass{
		event.ErrorTimeout, event.ErrorDNS, event.ErrorConnectionRefused, event.ErrorConnectionReset, event.ErrorTLS,
		event.ErrorProtocol, event.ErrorNetwork, event.ErrorSigningSecret, event.ErrorCanceled, event.ErrorNone,
	} {
		text := trouble(0, class, "", "")
		if other, ok := seen[text]; ok {
			t.Errorf("%s and %s are both %q", class, other, text)
		}
		seen[text] = class
		if advice := remedy(class); (advice == "") != (class == silent[0] || class == silent[1]) {
			t.Errorf("%s: the advice is %q", class, advice)
		}
	}
	long := trouble(500, event.ErrorHTTPStatus, "", strings.Repeat("ä", 500))
	if len(long) > 300 || !strings.HasSuffix(long, `ä …"`) {
		t.Errorf("a long excerpt is not cut: %s", long)
	}
}

// What a database with dead letters and a replay says, as kubectl's plugin.
func TestEventsExplain(t *testing.T) {
	t.Parallel()
	url, s := newDeadLetters(t, 1)
	letters, err := s.ListDeliveries(t.Context(), store.Filter{Limit: 1})
	if err != nil || len(letters) != 1 {
		t.Fatalf("%v, %v", letters, err)
	}
	id := letters[0].Key.Event.String()
	run := func(args ...string) rig.Finished {
		t.Helper()
		return rig.RunCmd(t, asPlugin(t, append([]string{"events", "explain", id, "--database-url", url}, args...)...), "")
	}
	wants := func(f rig.Finished, parts ...string) {
		t.Helper()
		text := f.Stdout
		for _, part := range parts {
			_, rest, found := strings.Cut(text, part)
			if !found || f.Code != 0 || f.Stderr != "" {
				t.Errorf("it ended with code %d, %q and says\n%s\nwant %q", f.Code, f.Stderr, f.Stdout, part)
				return
			}
			text = rest
		}
	}
	wants(run(), "Event "+id+" of endpoint payments/github, type <none>, received at ", "\n\nhandler: dead\n  Where:    it is a dead letter since ", "(PermanentStatus)\n  Next:     ",
		"\n  You can:  replay it\n              kubectl ackrail replay create NAME -n payments --endpoint github --destination handler --event-id "+id+" --wait\n")
	if f := rig.Run(t, goodReplay, "replay", "-f", "-", "--database-url", url); f.Code != 0 {
		t.Fatalf("%+v", f)
	}
	wants(run(), "\nhandler: pending\n  Where:    it waits in the queue, due at ", "; run 2 was started by the replay ", "\n  Before:   run 1: dead since ", " took it up\n")
	wants(run("-o", "json"), `"destination": "handler"`, `"run": 2`, `"state": "pending"`, `"id": "`+id+`"`)
	to := letters[0].Key.Destination
	if _, err := s.Claim(t.Context(), "w1", []store.Want{{Destination: to, Most: 1, MostBytes: 1, Lease: time.Hour, MaxAttempts: 1, KeepLedger: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	wants(run(), "\nhandler: claimed\n  Where:    it is held by worker w1 with attempt 1, begun at ", "; the lease ends at ", " (in 59m)")
}
