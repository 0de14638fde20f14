package replay_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// planned plans a replay of all that is dead.
func planned(t *testing.T, s *store.Store) replay.Request {
	t.Helper()
	r := afterFix()
	if err := s.PlanReplay(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func advance(t *testing.T, s *store.Store, r replay.Request, p *replay.Pace) replay.Status {
	t.Helper()
	status, err := replay.Advance(t.Context(), s, r, p)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// The more the workers end between two steps, the more is let in.
func TestAdvanceFollowsTheWorkers(t *testing.T) {
	const dead = 1000
	s := openStore(t, newDead(t, dead))
	r, p := planned(t, s), replay.NewPace(0)
	for _, want := range []int64{128, 256, 512, dead - 128 - 256 - 512} {
		if got := advance(t, s, r, p).Open; got != want {
			t.Fatalf("%d runs are open, want %d", got, want)
		}
		if ended := end(t, s, event.VerdictDone); ended != int(want) {
			t.Fatalf("%d runs have ended, want %d", ended, want)
		}
	}
}

// Without a worker, nothing more is let in.
func TestAdvanceWaitsForTheWorkers(t *testing.T) {
	s := openStore(t, newDead(t, several))
	r, p := planned(t, s), replay.NewPace(0)
	for range 5 {
		if got := advance(t, s, r, p).Queued; got != 128 {
			t.Fatalf("%d runs are queued, want 128", got)
		}
	}
}

// A live event waits for nothing of a replay, however much of it waits.
func TestReplayDoesNotBuryLiveEvents(t *testing.T) {
	s := openStore(t, newDead(t, 1000))
	r, p := planned(t, s), replay.NewPace(0)
	for range 5 {
		advance(t, s, r, p)
	}
	live := enqueue(t, s, 1)[0]
	claims := claim(t, s, 1)
	if len(claims) != 1 || claims[0].Event.ID != live || claims[0].Replay != nil {
		t.Errorf("claimed %+v before the live event %s", claims, live)
	}
}

// However often it is advanced, and however often the process is replaced, a
// replay starts no more runs than its author allows.
func TestAdvanceHonoursTheRate(t *testing.T) {
	const perSecond, dead = 20, 100
	s := openStore(t, newDead(t, dead))
	r := planned(t, s)
	began := time.Now()
	var last replay.Status
	step := func(p *replay.Pace) {
		t.Helper()
		last = advance(t, s, r, p)
		if most := int64(time.Since(began).Seconds() * perSecond); last.Queued > most {
			t.Fatalf("%d runs within %s, at most %d are allowed", last.Queued, time.Since(began), most)
		}
	}
	for range 10 {
		step(replay.NewPace(perSecond))
	}
	p := replay.NewPace(perSecond)
	testenv.Eventually(t, patience, func() error {
		step(p)
		if last.Queued < 2*perSecond {
			return errors.New("too few yet")
		}
		return nil
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%d runs took %s", last.Queued, took)
	}
}

func TestStartHonoursTheRate(t *testing.T) {
	const perSecond, dead = 10, 20
	s := openStore(t, newDead(t, dead))
	began := time.Now()
	status, err := replay.Start(t.Context(), s, afterFix(), perSecond)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, replay.Status{Matched: dead, Queued: dead, Open: dead}, status, false)
	// A second's worth goes at once.
	if took := time.Since(began); took < (dead-perSecond)*time.Second/perSecond {
		t.Errorf("%d runs took %s", dead, took)
	}
}

func TestAdvanceToTheEnd(t *testing.T) {
	s := openStore(t, newDead(t, several))
	if _, err := replay.Advance(t.Context(), s, afterFix(), replay.NewPace(0)); !errors.Is(err, replay.ErrNotPlanned) {
		t.Errorf("without a plan: %v, want %v", err, replay.ErrNotPlanned)
	}
	r := planned(t, s)
	var status replay.Status
	for p := replay.NewPace(0); status.CompletedAt == nil; end(t, s, event.VerdictDone) {
		status = advance(t, s, r, p)
	}
	wantStatus(t, replay.Status{Matched: several, Queued: several, Succeeded: several}, status, true)
}

// What is skipped counts neither against the window nor against the rate.
func TestAdvanceOverWhatIsSkipped(t *testing.T) {
	s := openStore(t, newDead(t, several))
	first, second := planned(t, s), planned(t, s)
	if _, err := replay.Start(t.Context(), s, first, 0); err != nil {
		t.Fatal(err)
	}
	status := advance(t, s, second, replay.NewPace(0))
	wantStatus(t, replay.Status{Matched: several, Skipped: several, Skips: replay.Skips{AlreadyPending: several}}, status, true)
}
