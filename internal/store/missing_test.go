package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

var missing = []event.State{replay.StateMissing}

// missingAtB asks for what "b" was never owed.
func missingAtB(t *testing.T) replay.Request {
	t.Helper()
	return newReplay(t, replay.Selector{States: missing, Destinations: []string{"b"}})
}

// register makes "b" known, as an ingress does that starts with it.
func register(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Register(t.Context(), []event.DestinationRef{dest("b")}); err != nil {
		t.Fatal(err)
	}
}

// A destination that was added later gets what came in before, in its first
// run there, once.
func TestReplayOfTheMissing(t *testing.T) {
	s := newStore(t)
	ids := enqueueNew(t, s, 3, "a")
	r := missingAtB(t)
	_, countErr := s.CountReplay(t.Context(), r)
	for what, err := range map[string]error{"counting": countErr, "planning": s.PlanReplay(t.Context(), r)} {
		if !errors.Is(err, replay.ErrUnknownDestination) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s at a destination that is not known: %v, want %v", what, err, replay.ErrUnknownDestination)
		}
	}
	register(t, s)
	enqueueNew(t, s, 2, "a", "b")
	before := contents(t, s)
	counted, err := s.CountReplay(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "contents after counting", before, contents(t, s))
	same(t, "counted", int64(3), counted.Matched)
	same(t, "sample", ids, counted.Sample)

	plan(t, s, r)
	enqueueNew(t, s, 1, "a") // not in the plan
	if queued, skipped := run(t, s, r, 2); queued != 3 || skipped != 0 {
		t.Fatalf("queued %d, skipped %d", queued, skipped)
	}
	wantStatus(t, s, r, progress{Matched: 3, Queued: 3, Open: 3})
	var replayed []*Claim
	for _, c := range claim(t, s, want("b")) {
		if c.Replay == nil {
			continue
		}
		same(t, "run and attempt", []int{1, 1}, []int{c.Token.Delivery.Run, c.Token.Attempt})
		same(t, "replay", r.ID, *c.Replay)
		same(t, "body", c.Event.ID.String(), string(c.Event.Body))
		replayed = append(replayed, c)
	}
	same(t, "events", ids, events(replayed))
	same(t, "sizes", []int{36}, column[int](t, s, "SELECT DISTINCT size FROM delivery WHERE replay_id = $1", r.ID))
	finish(t, s, event.VerdictDone, replayed[:2]...)
	finish(t, s, event.VerdictDead, replayed[2])
	wantStatus(t, s, r, progress{Matched: 3, Queued: 3, Succeeded: 2, Dead: 1, Completed: true})

	// What died is an ordinary dead letter, and nothing is missing but what
	// came in after the plan.
	again := plan(t, s, missingAtB(t))
	wantStatus(t, s, again, progress{Matched: 1, Planned: 1})
	run(t, s, plan(t, s, newReplay(t, replay.Selector{States: selectDead, Destinations: []string{"b"}})), 10)
	same(t, "second run", 2, value[int](t, s, "SELECT run FROM delivery WHERE event_id = $1 AND run > 1", ids[2]))
}

// Whatever has left a trace at a destination is not missing there.
func TestMissingMeansNoTrace(t *testing.T) {
	s := newStore(t)
	register(t, s)
	enqueueNew(t, s, 1, "a", "b") // is open
	for _, v := range []event.Verdict{event.VerdictDone, event.VerdictDead, event.VerdictFailed} {
		id := enqueueNew(t, s, 1, "b")[0]
		for _, c := range claim(t, s, want("b")) {
			if c.Token.Delivery.Event == id {
				finish(t, s, v, c)
			} else {
				finish(t, s, event.VerdictReleased, c)
			}
		}
	}
	purged := enqueueNew(t, s, 1, "b")[0]
	for _, c := range claim(t, s, want("b")) {
		if c.Token.Delivery.Event == purged {
			finish(t, s, event.VerdictDead, c)
		}
	}
	execute(t, s, "DELETE FROM dead_letter WHERE event_id = $1", purged)
	lost := enqueueNew(t, s, 3, "a")
	push := enqueueNew(t, s, 1, "a")[0]
	execute(t, s, "UPDATE event SET type = 'ping', received_at = '2020-01-01 00:00:00Z' WHERE id = ANY ($1)", lost)
	execute(t, s, "DELETE FROM event WHERE id = $1", lost[2]) // nothing left to deliver
	cutoff := time.Date(2020, 1, 1, 0, 0, 1, 0, time.UTC)
	for _, tc := range []struct {
		name   string
		change func(*replay.Request)
		want   []event.ID
	}{
		{"all", func(*replay.Request) {}, []event.ID{lost[0], lost[1], push}},
		{"type", func(r *replay.Request) { r.Selector.Types = []string{"push"} }, []event.ID{push}},
		{"events", func(r *replay.Request) { r.Selector.Events = []event.ID{lost[1], purged} }, []event.ID{lost[1]}},
		{"received before", func(r *replay.Request) { r.Selector.ReceivedBefore = &cutoff }, lost[:2]},
		{"limit", func(r *replay.Request) { r.Limit = 1 }, lost[:1]},
		{"a reason", func(r *replay.Request) { r.Selector.Reasons = []event.Reason{event.ReasonPermanentStatus} }, []event.ID{}},
		{"a status", func(r *replay.Request) { r.Selector.Statuses = []int32{200} }, []event.ID{}},
		{"another destination", func(r *replay.Request) { r.Selector.Destinations = []string{"a"} }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := missingAtB(t)
			tc.change(&r)
			plan(t, s, r)
			got := column[uuid.UUID](t, s, "SELECT event_id FROM replay_item WHERE replay_id = $1 ORDER BY 1", r.ID)
			if tc.want == nil { // those that were owed to "b" alone
				same(t, "number", 4, len(got))
				return
			}
			same(t, "selected", tc.want, got)
		})
	}
	both := newReplay(t, replay.Selector{States: []event.State{event.StateDead, replay.StateMissing}, Destinations: []string{"b"}})
	wantStatus(t, s, plan(t, s, both), progress{Matched: 4, Planned: 4})
}

func TestMissingSkips(t *testing.T) {
	for _, tc := range []struct {
		name      string
		meanwhile func(*testing.T, *Store)
		want      string
	}{
		{"another replay's run is open", func(t *testing.T, s *Store) { run(t, s, plan(t, s, missingAtB(t)), 10) }, "AlreadyPending"},
		{"another replay's run has ended", func(t *testing.T, s *Store) {
			run(t, s, plan(t, s, missingAtB(t)), 10)
			finish(t, s, event.VerdictDone, claim(t, s, want("b"))...)
		}, "TakenByAnotherReplay"},
		{"the event is gone", func(t *testing.T, s *Store) { execute(t, s, "DELETE FROM event") }, "PayloadPurged"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			enqueueNew(t, s, 1, "a")
			register(t, s)
			r := plan(t, s, missingAtB(t))
			tc.meanwhile(t, s)
			if queued, skipped := run(t, s, r, 10); queued != 0 || skipped != 1 {
				t.Errorf("queued %d, skipped %d", queued, skipped)
			}
			same(t, "reasons", []string{tc.want}, skips(t, s, r))
			wantStatus(t, s, r, progress{Matched: 1, Skipped: 1, Completed: true})
		})
	}
}

// An event whose partition may go at any moment is copied for its first run.
func TestMissingEventsAreHeld(t *testing.T) {
	s := newStore(t)
	id := enqueueNew(t, s, 1, "a")[0]
	finish(t, s, event.VerdictDone, claimOne(t, s))
	register(t, s)
	execute(t, s, "UPDATE event SET expires_at = now() + interval '10 minutes'")
	r := plan(t, s, missingAtB(t))
	run(t, s, r, 10)
	execute(t, s, "DELETE FROM event")
	c := claim(t, s, want("b"))
	same(t, "events", []event.ID{id}, events(c))
	same(t, "body", id.String(), string(c[0].Event.Body))
}
