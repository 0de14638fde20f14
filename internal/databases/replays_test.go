package databases

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/testenv"
)

func request() replay.Request {
	return replay.Request{
		ID: uuid.New(), Namespace: "payments", Name: "after-fix", Endpoint: handler.Endpoint,
		Selector: replay.Selector{States: []event.State{event.StateDead}}, Spec: "{}",
	}
}

func TestReplay(t *testing.T) {
	s, _ := open(t)
	db, err := s.For(t.Context(), migrated(t))
	is(t, "replays", "", err)
	r := request()
	if _, err := db.ReplayStatus(t.Context(), r.ID); !errors.Is(err, replay.ErrNotPlanned) {
		t.Errorf("before the plan: %v", err)
	}
	status, err := db.CountReplay(t.Context(), r)
	is(t, "count", "", err)
	if status.Matched != 1 {
		t.Errorf("would match %d, want 1", status.Matched)
	}
	status, err = replay.Start(t.Context(), db, r, 0)
	is(t, "start", "", err)
	if status.Matched != 1 || status.Queued != 1 || status.Open != 1 {
		t.Errorf("status %+v", status)
	}
	r.Spec = "other"
	if err := db.PlanReplay(t.Context(), r); !errors.Is(err, replay.ErrChanged) {
		t.Errorf("another spec: %v", err)
	}
	unknown := request()
	unknown.Endpoint.Name = "gitlab"
	if err := db.PlanReplay(t.Context(), unknown); !errors.Is(err, replay.ErrUnknownEndpoint) {
		t.Errorf("unknown endpoint: %v", err)
	}
	empty, err := s.For(t.Context(), testenv.Schema(t))
	is(t, "replays", "", err)
	is(t, "wake", "", empty.Wake(t.Context()))
	is(t, "without a schema", errNotMigrated.Error(), empty.PlanReplay(t.Context(), r))
}

// Plans that take long neither say that the database is away nor leave others
// without a connection.
func TestReplaysThatTakeLong(t *testing.T) {
	s, _ := open(t)
	url := migrated(t)
	release := hold(t, url, "LOCK TABLE replay IN ACCESS EXCLUSIVE MODE")
	db, err := s.For(t.Context(), url)
	is(t, "replays", "", err)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	ended := make(chan error)
	const many = 10
	for range many {
		go func() { ended <- db.PlanReplay(ctx, request()) }()
	}
	for range many {
		is(t, "ping meanwhile", "", s.Ping(t.Context(), url))
	}
	for range many {
		if err := <-ended; err == nil {
			t.Error("a plan was made in spite of the lock")
		}
	}
	is(t, "ping", "", s.Ping(t.Context(), url))
	release()
	is(t, "plan", "", db.PlanReplay(t.Context(), request()))
}
