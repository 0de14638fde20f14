package store

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

var (
	selectDead = []event.State{event.StateDead}
	selectDone = []event.State{event.StateDone}
	selectBoth = []event.State{event.StateDead, event.StateDone}
)

func newReplay(t testing.TB, x replay.Selector) replay.Request {
	t.Helper()
	return replay.Request{ID: newID(t), Namespace: "payments", Name: "after-fix", Endpoint: endpoint, Selector: x, Spec: "{}"}
}

func plan(t testing.TB, s *Store, r replay.Request) replay.Request {
	t.Helper()
	if err := s.PlanReplay(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// run starts the runs of a replay, batch by batch.
func run(t testing.TB, s *Store, r replay.Request, batch int) (queued, skipped int) {
	t.Helper()
	for {
		q, k, err := s.RunReplay(t.Context(), r.ID, nil, batch)
		if err != nil {
			t.Fatal(err)
		}
		if q+k > batch {
			t.Fatalf("%d and %d in a batch of %d", q, k, batch)
		}
		if q+k == 0 {
			return queued, skipped
		}
		queued, skipped = queued+q, skipped+k
	}
}

func status(t testing.TB, s *Store, r replay.Request) replay.Status {
	t.Helper()
	got, err := s.ReplayStatus(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// progress is a status without its times.
type progress struct {
	Matched, Queued, Skipped, Succeeded, Dead, Open, Failed, Planned int64
	Completed                                                        bool
}

func wantStatus(t testing.TB, s *Store, r replay.Request, expected progress) replay.Status {
	t.Helper()
	got := status(t, s, r)
	same(t, "status", expected, progress{
		got.Matched, got.Queued, got.Skipped, got.Succeeded, got.Dead, got.Open, got.Failed, got.Planned(), got.CompletedAt != nil,
	})
	return got
}

func skips(t testing.TB, s *Store, r replay.Request) []string {
	t.Helper()
	return column[string](t, s, "SELECT skip_reason FROM replay_item WHERE replay_id = $1 AND state = 'skipped' ORDER BY 1", r.ID)
}

// A dead letter is delivered once more, as the same event, in a run of its
// own, and the ledger of the first one stays (I8).
func TestReplayOfTheDead(t *testing.T) {
	s := newStore(t)
	id := newDead(t, s, 1)[0]
	r := plan(t, s, newReplay(t, replay.Selector{States: selectDead}))
	wantStatus(t, s, r, progress{Matched: 1, Planned: 1})
	if queued, skipped := run(t, s, r, 10); queued != 1 || skipped != 0 {
		t.Fatalf("queued %d, skipped %d", queued, skipped)
	}
	same(t, "counts", []Counts{{Pending: 1}}, withoutAge(counts(t, s, "a")))
	wantStatus(t, s, r, progress{Matched: 1, Queued: 1, Open: 1})

	c := claimOne(t, s)
	same(t, "delivery", event.DeliveryKey{Event: id, Destination: dest("a"), Run: 2}, c.Token.Delivery)
	same(t, "attempts", []int{1, 1}, []int{c.Token.Attempt, c.Attempts})
	same(t, "replay", &r.ID, c.Replay)
	same(t, "body", id.String(), string(c.Event.Body))
	finish(t, s, event.VerdictDone, c)
	got := wantStatus(t, s, r, progress{Matched: 1, Queued: 1, Succeeded: 1, Completed: true})
	if got.CompletedAt.Before(got.PlannedAt) {
		t.Errorf("completed at %s, planned at %s", got.CompletedAt, got.PlannedAt)
	}

	shown, err := s.ShowEvent(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var runs []string
	for _, d := range shown.Deliveries {
		runs = append(runs, digits(d.Key.Run)+" "+string(d.State))
	}
	same(t, "runs", []string{"1 dead", "2 done"}, runs)
	same(t, "replayed by", &r.ID, shown.Deliveries[0].ReplayedBy)
	same(t, "replay", &r.ID, shown.Deliveries[1].Replay)
	var ledger []string
	for _, a := range shown.Attempts {
		ledger = append(ledger, digits(a.Run)+" "+string(a.Result))
	}
	same(t, "ledger", []string{"1 dead", "2 done"}, ledger)
}

func TestReplayTwice(t *testing.T) {
	s := newStore(t)
	newDead(t, s, 3)
	r := plan(t, s, newReplay(t, replay.Selector{States: selectDead}))
	run(t, s, r, 10)
	finish(t, s, event.VerdictDead, claim(t, s, want("a"))...) // dead again
	before := contents(t, s)
	plan(t, s, r)
	if queued, skipped := run(t, s, r, 10); queued+skipped != 0 {
		t.Errorf("the second time: queued %d, skipped %d", queued, skipped)
	}
	same(t, "contents", before, contents(t, s))
	changed := r
	changed.Spec = `{"limit":1}`
	if err := s.PlanReplay(t.Context(), changed); !errors.Is(err, replay.ErrChanged) || errors.Is(err, ErrUnavailable) {
		t.Errorf("another spec: %v, want %v", err, replay.ErrChanged)
	}
	same(t, "contents", before, contents(t, s))

	// Another replay takes up what died in the first one: run 3.
	run(t, s, plan(t, s, newReplay(t, replay.Selector{States: selectDead})), 10)
	for _, c := range claim(t, s, want("a")) {
		same(t, "run", 3, c.Token.Delivery.Run)
	}
}

func TestReplayOfWhatIsNotThere(t *testing.T) {
	s := newStore(t)
	r := newReplay(t, replay.Selector{States: selectDead})
	if _, err := s.CountReplay(t.Context(), r); !errors.Is(err, replay.ErrUnknownEndpoint) || errors.Is(err, ErrUnavailable) {
		t.Errorf("counting at an unknown endpoint: %v, want %v", err, replay.ErrUnknownEndpoint)
	}
	for range 2 { // also the second time: nothing was planned
		err := s.PlanReplay(t.Context(), r)
		if !errors.Is(err, replay.ErrUnknownEndpoint) || errors.Is(err, ErrUnavailable) {
			t.Errorf("unknown endpoint: %v, want %v", err, replay.ErrUnknownEndpoint)
		}
	}
	if queued, skipped, err := s.RunReplay(t.Context(), r.ID, nil, 10); queued+skipped != 0 || err != nil {
		t.Errorf("unknown replay: queued %d, skipped %d, %v", queued, skipped, err)
	}
	if _, err := s.ReplayStatus(t.Context(), r.ID); !errors.Is(err, replay.ErrNotPlanned) || errors.Is(err, ErrUnavailable) {
		t.Errorf("status of an unknown replay: %v, want %v", err, replay.ErrNotPlanned)
	}
	enqueueNew(t, s, 1, "a")
	plan(t, s, r)
	wantStatus(t, s, r, progress{Completed: true}) // there is nothing to wait for
	if queued, skipped := run(t, s, r, 10); queued+skipped != 0 {
		t.Errorf("nothing selected: queued %d, skipped %d", queued, skipped)
	}
}

// What each criterion selects, of six events: three dead and three done, of
// two types and two destinations, ten seconds apart.
func TestSelectors(t *testing.T) {
	s := newStore(t)
	var ids []event.ID
	for i := range 6 {
		sub := submission(t, digits(i), to([]string{"a", "b"}[i%2]), typed([]string{"push", "ping", "push"}[i%3]))
		enqueue(t, s, sub)
		ids = append(ids, sub.Event.ID)
		execute(t, s, "UPDATE event SET received_at = timestamptz '2020-01-01 00:00:00Z' + $2 * interval '10 seconds' WHERE id = $1", sub.Event.ID, i)
	}
	for _, c := range claim(t, s, want("a"), want("b")) {
		v := event.VerdictDead
		if slices.Index(ids, c.Token.Delivery.Event) >= 3 {
			v = event.VerdictDone
		}
		finish(t, s, v, c)
	}
	other := event.EndpointRef{Namespace: "orders", Name: "github"}
	enqueue(t, s, submission(t, "other", func(s *Submission) { s.Event.Endpoint = other }))
	ofOther := want("a")
	ofOther.Destination.Endpoint = other
	finish(t, s, event.VerdictDead, claim(t, s, ofOther)...)

	at := func(seconds int) *time.Time {
		when := time.Date(2020, 1, 1, 0, 0, seconds, 0, time.UTC)
		return &when
	}
	for _, tc := range []struct {
		name  string
		x     replay.Selector
		limit int64
		want  []int
	}{
		{"dead", replay.Selector{States: selectDead}, 0, []int{0, 1, 2}},
		{"done", replay.Selector{States: selectDone}, 0, []int{3, 4, 5}},
		{"both", replay.Selector{States: selectBoth}, 0, []int{0, 1, 2, 3, 4, 5}},
		{"no state", replay.Selector{}, 0, nil},
		{"destination", replay.Selector{States: selectBoth, Destinations: []string{"b"}}, 0, []int{1, 3, 5}},
		{"destinations", replay.Selector{States: selectBoth, Destinations: []string{"a", "b", "unknown"}}, 0, []int{0, 1, 2, 3, 4, 5}},
		{"unknown destination", replay.Selector{States: selectBoth, Destinations: []string{"unknown"}}, 0, nil},
		{"type", replay.Selector{States: selectBoth, Types: []string{"ping"}}, 0, []int{1, 4}},
		{"types", replay.Selector{States: selectDead, Types: []string{"ping", "push"}}, 0, []int{0, 1, 2}},
		{"events", replay.Selector{States: selectBoth, Events: []event.ID{ids[5], ids[0], newID(t)}}, 0, []int{0, 5}},
		{"event that is not in the state", replay.Selector{States: selectDead, Events: []event.ID{ids[5]}}, 0, nil},
		{"after, which is inclusive", replay.Selector{States: selectBoth, ReceivedAfter: at(40)}, 0, []int{4, 5}},
		{"before, which is exclusive", replay.Selector{States: selectBoth, ReceivedBefore: at(20)}, 0, []int{0, 1}},
		{"window", replay.Selector{States: selectBoth, ReceivedAfter: at(10), ReceivedBefore: at(31)}, 0, []int{1, 2, 3}},
		{"limit, the oldest first", replay.Selector{States: selectBoth}, 4, []int{0, 1, 2, 3}},
		{"everything at once", replay.Selector{
			States: selectBoth, Destinations: []string{"a"}, Types: []string{"push"}, Events: ids[1:], ReceivedAfter: at(20), ReceivedBefore: at(60),
		}, 1, []int{2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newReplay(t, tc.x)
			r.Limit = tc.limit
			before := contents(t, s)
			counted, err := s.CountReplay(t.Context(), r)
			if err != nil || counted.PlannedAt.IsZero() || counted.CompletedAt != nil {
				t.Errorf("counted %+v, %v", counted, err)
			}
			same(t, "contents after counting", before, contents(t, s))
			plan(t, s, r)
			planned := status(t, s, r)
			same(t, "counted", planned.Matched, counted.Matched)
			same(t, "sample of what was counted", planned.Sample, counted.Sample)
			got := column[uuid.UUID](t, s, "SELECT event_id FROM replay_item WHERE replay_id = $1 ORDER BY 1", r.ID)
			expected := []uuid.UUID{}
			for _, i := range tc.want {
				expected = append(expected, ids[i])
			}
			same(t, "selected", expected, got)
			n := int64(len(tc.want))
			wantStatus(t, s, r, progress{Matched: n, Planned: n, Completed: n == 0})
		})
	}
}

// What the criteria about deaths select, of four dead letters that died ten
// seconds apart and one delivery that is done.
func TestSelectorsOfTheDead(t *testing.T) {
	s := newStore(t)
	ids := enqueueNew(t, s, 5, "a")
	claims := claim(t, s, want("a"))
	finish(t, s, event.VerdictDead, claims[:4]...)
	finish(t, s, event.VerdictDone, claims[4])
	execute(t, s, "UPDATE settled SET status = 204")
	deaths := []struct {
		reason event.Reason
		status any
	}{
		{event.ReasonPermanentStatus, 410}, {event.ReasonAttemptsExhausted, 503}, {event.ReasonAttemptsExhausted, nil}, {event.ReasonOutcomeUnknown, nil},
	}
	for i, d := range deaths {
		execute(t, s, `UPDATE dead_letter SET reason = $2, last_status = $3, died_at = timestamptz '2020-01-01 00:00:00Z' + $4 * interval '10 seconds'
			WHERE event_id = $1`, claims[i].Token.Delivery.Event, d.reason, d.status, i)
	}
	at := func(seconds int) *time.Time {
		when := time.Date(2020, 1, 1, 0, 0, seconds, 0, time.UTC)
		return &when
	}
	for _, tc := range []struct {
		name string
		x    replay.Selector
		want []int
	}{
		{"reason", replay.Selector{States: selectDead, Reasons: []event.Reason{event.ReasonAttemptsExhausted}}, []int{1, 2}},
		{"reasons", replay.Selector{States: selectDead, Reasons: []event.Reason{event.ReasonPermanentStatus, event.ReasonOutcomeUnknown, event.ReasonPayloadMissing}}, []int{0, 3}},
		{"reason that nothing has", replay.Selector{States: selectDead, Reasons: []event.Reason{event.ReasonPayloadMissing}}, nil},
		{"status", replay.Selector{States: selectDead, Statuses: []int32{503}}, []int{1}},
		{"statuses", replay.Selector{States: selectDead, Statuses: []int32{410, 503, 504}}, []int{0, 1}},
		{"status of the done", replay.Selector{States: selectBoth, Statuses: []int32{204, 410}}, []int{0, 4}},
		{"reason of both", replay.Selector{States: selectBoth, Reasons: []event.Reason{event.ReasonPermanentStatus}}, []int{0}},
		{"died after, which is inclusive", replay.Selector{States: selectDead, DiedAfter: at(20)}, []int{2, 3}},
		{"died before, which is exclusive", replay.Selector{States: selectDead, DiedBefore: at(20)}, []int{0, 1}},
		{"died in a window, of both", replay.Selector{States: selectBoth, DiedAfter: at(10), DiedBefore: at(21)}, []int{1, 2}},
		{"done that died after", replay.Selector{States: selectDone, DiedAfter: at(0)}, nil},
		{"done that died before", replay.Selector{States: selectDone, DiedBefore: at(3600)}, nil},
		{"all together", replay.Selector{
			States: selectDead, Reasons: []event.Reason{event.ReasonAttemptsExhausted}, Statuses: []int32{503}, DiedAfter: at(10), DiedBefore: at(11),
		}, []int{1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newReplay(t, tc.x)
			counted, err := s.CountReplay(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			plan(t, s, r)
			same(t, "counted", status(t, s, r).Matched, counted.Matched)
			expected := []uuid.UUID{}
			for _, i := range tc.want {
				expected = append(expected, ids[i])
			}
			same(t, "selected", expected, column[uuid.UUID](t, s, "SELECT event_id FROM replay_item WHERE replay_id = $1 ORDER BY 1", r.ID))
		})
	}
}

// Of an event that was delivered several times, its latest run is replayed.
func TestReplayTakesTheLatestRun(t *testing.T) {
	s := newStore(t)
	id := newDead(t, s, 1)[0]
	for _, step := range []struct {
		states  []event.State
		run     int
		verdict event.Verdict
	}{
		{selectDead, 2, event.VerdictDone},
		{selectDone, 3, event.VerdictDone},
		{selectBoth, 4, event.VerdictDead},
		{selectBoth, 5, event.VerdictDone},
	} {
		r := plan(t, s, newReplay(t, replay.Selector{States: step.states, Events: []event.ID{id}}))
		wantStatus(t, s, r, progress{Matched: 1, Planned: 1})
		run(t, s, r, 10)
		c := claimOne(t, s)
		same(t, "run", step.run, c.Token.Delivery.Run)
		finish(t, s, step.verdict, c)
	}
	none := plan(t, s, newReplay(t, replay.Selector{States: selectDead}))
	wantStatus(t, s, none, progress{Completed: true})
	same(t, "attempts of each run", []int32{1, 1, 1, 1, 1}, column[int32](t, s, "SELECT count(*)::int FROM attempt GROUP BY run ORDER BY run"))
}

// What dies after the plan is no part of it.
func TestPlanIsFrozen(t *testing.T) {
	s := newStore(t)
	newDead(t, s, 2)
	r := plan(t, s, newReplay(t, replay.Selector{States: selectDead}))
	newDead(t, s, 2)
	plan(t, s, r)
	wantStatus(t, s, r, progress{Matched: 2, Planned: 2})
}

func TestPlanAtOnce(t *testing.T) {
	const planners = 6
	url := migrated(t)
	s := openStore(t, url)
	newDead(t, s, 20)
	r := newReplay(t, replay.Selector{States: selectDead})
	errs := make([]error, planners)
	stores := make([]*Store, planners)
	for i := range stores {
		stores[i] = openStore(t, url)
	}
	parallel(planners, func(i int) {
		mine := r
		if i == 0 {
			mine.Spec = "another"
		}
		errs[i] = stores[i].PlanReplay(t.Context(), mine)
	})
	var changed int
	for _, err := range errs {
		if errors.Is(err, replay.ErrChanged) {
			changed++
		} else if err != nil {
			t.Error(err)
		}
	}
	if changed != 1 && changed != planners-1 {
		t.Errorf("%d of %d planners were told that the spec differs", changed, planners)
	}
	wantStatus(t, s, r, progress{Matched: 20, Planned: 20})
}

// A replay that stopped between two batches goes on from anywhere.
func TestReplayGoesOn(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	ids := newDead(t, s, 25)
	r := plan(t, s, newReplay(t, replay.Selector{States: selectDead}))
	if queued, _, err := s.RunReplay(t.Context(), r.ID, nil, 10); queued != 10 || err != nil {
		t.Fatalf("queued %d, %v", queued, err)
	}
	wantStatus(t, s, r, progress{Matched: 25, Queued: 10, Open: 10, Planned: 15})
	finish(t, s, event.VerdictDone, claim(t, s, want("a"))...)
	wantStatus(t, s, r, progress{Matched: 25, Queued: 10, Succeeded: 10, Planned: 15}) // not completed
	s.Close()

	s = openStore(t, url)
	plan(t, s, r)
	if queued, skipped := run(t, s, r, 10); queued != 15 || skipped != 0 {
		t.Errorf("queued %d, skipped %d", queued, skipped)
	}
	claims := claim(t, s, want("a"))
	same(t, "claimed", ids[10:], events(claims))
	finish(t, s, event.VerdictDone, claims...)
	wantStatus(t, s, r, progress{Matched: 25, Queued: 25, Succeeded: 25, Completed: true})
}

// However many run a replay at once, and however many replays select the same
// delivery, one new run is started.
func TestReplaysAtOnce(t *testing.T) {
	const runners, dead = 6, 60
	url := migrated(t)
	s := openStore(t, url)
	newDead(t, s, dead)
	replays := []replay.Request{plan(t, s, newReplay(t, replay.Selector{States: selectDead})), plan(t, s, newReplay(t, replay.Selector{States: selectDead}))}
	stores := make([]*Store, runners)
	for i := range stores {
		stores[i] = openStore(t, url)
	}
	queued, skipped, errs := make([]int, runners), make([]int, runners), make([]error, runners)
	parallel(runners, func(i int) {
		for {
			q, k, err := stores[i].RunReplay(t.Context(), replays[i%2].ID, nil, 7)
			queued[i], skipped[i] = queued[i]+q, skipped[i]+k
			if errs[i] = err; err != nil || q+k == 0 {
				return
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	total := [2]int{}
	for i := range runners {
		total[0] += queued[i]
		total[1] += skipped[i]
	}
	same(t, "queued and skipped", [2]int{dead, dead}, total)
	same(t, "runs", dead, value[int](t, s, "SELECT count(*)::int FROM delivery WHERE run = 2"))
	first, second := status(t, s, replays[0]), status(t, s, replays[1])
	same(t, "both together", []int64{dead, dead, dead}, []int64{first.Queued + second.Queued, first.Queued + first.Skipped, second.Queued + second.Skipped})
}

func TestReplaySkips(t *testing.T) {
	for _, tc := range []struct {
		name   string
		states []event.State
		// meanwhile happens between the plan and the run.
		meanwhile func(*testing.T, *Store)
		want      string
		present   []string
	}{
		{"another replay's run is open", selectDead, func(t *testing.T, s *Store) {
			run(t, s, plan(t, s, newReplay(t, replay.Selector{States: selectDead})), 10)
		}, "AlreadyPending", nil},
		{"another replay's run has ended", selectDead, func(t *testing.T, s *Store) {
			run(t, s, plan(t, s, newReplay(t, replay.Selector{States: selectDead})), 10)
			finish(t, s, event.VerdictDone, claimOne(t, s))
		}, "TakenByAnotherReplay", nil},
		{"another replay's run is dead", selectDead, func(t *testing.T, s *Store) {
			run(t, s, plan(t, s, newReplay(t, replay.Selector{States: selectDead})), 10)
			finish(t, s, event.VerdictDead, claimOne(t, s))
		}, "TakenByAnotherReplay", nil},
		{"a done one was replayed", selectDone, func(t *testing.T, s *Store) {
			run(t, s, plan(t, s, newReplay(t, replay.Selector{States: selectDone})), 10)
			finish(t, s, event.VerdictDone, claimOne(t, s))
		}, "TakenByAnotherReplay", nil},
		{"the dead letter expired", selectDead, func(t *testing.T, s *Store) {
			execute(t, s, "UPDATE dead_letter SET expires_at = now()")
			maintain(t, s)
		}, "Purged", nil},
		{"the payload is gone", selectDead, func(t *testing.T, s *Store) { execute(t, s, "DELETE FROM event") }, "PayloadPurged", nil},
		{"the destination is gone", selectDead, func(*testing.T, *Store) {}, "DestinationGone", []string{"b"}},
		{"all destinations are gone", selectDone, func(*testing.T, *Store) {}, "DestinationGone", []string{}},
		{"the payload of a done one is gone", selectDone, func(t *testing.T, s *Store) { execute(t, s, "DELETE FROM event") }, "PayloadPurged", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			enqueueNew(t, s, 1, "a")
			v := event.VerdictDead
			if tc.states[0] == event.StateDone {
				v = event.VerdictDone
			}
			finish(t, s, v, claimOne(t, s))
			r := plan(t, s, newReplay(t, replay.Selector{States: tc.states}))
			tc.meanwhile(t, s)
			before := value[int](t, s, "SELECT count(*)::int FROM delivery")
			if queued, skipped, err := s.RunReplay(t.Context(), r.ID, tc.present, 10); queued != 0 || skipped != 1 || err != nil {
				t.Errorf("queued %d, skipped %d: %v", queued, skipped, err)
			}
			same(t, "reasons", []string{tc.want}, skips(t, s, r))
			same(t, "deliveries", before, value[int](t, s, "SELECT count(*)::int FROM delivery"))
			got := wantStatus(t, s, r, progress{Matched: 1, Skipped: 1, Completed: true})
			same(t, "skips", map[string]replay.Skips{
				"AlreadyPending": {AlreadyPending: 1}, "PayloadPurged": {PayloadPurged: 1}, "Purged": {Purged: 1}, "TakenByAnotherReplay": {TakenByAnotherReplay: 1},
				"DestinationGone": {DestinationGone: 1},
			}[tc.want], got.Skips)
		})
	}
}

// The sample is of the oldest events, each of them once however many
// deliveries of it there are, and stays through the replay's life.
func TestReplaySample(t *testing.T) {
	s := newStore(t)
	ids := enqueueNew(t, s, 30, "a", "b")
	finish(t, s, event.VerdictDead, claim(t, s, want("a"), want("b"))...)
	r := newReplay(t, replay.Selector{States: selectDead})
	counted, err := s.CountReplay(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "counted", int64(60), counted.Matched)
	same(t, "sample of what was counted", ids[:20], counted.Sample)
	plan(t, s, r)
	same(t, "sample of the plan", ids[:20], status(t, s, r).Sample)
	run(t, s, r, 100)
	finish(t, s, event.VerdictDone, claim(t, s, want("a"), want("b"))...)
	got := status(t, s, r)
	same(t, "completed", true, got.CompletedAt != nil)
	same(t, "sample in the end", ids[:20], got.Sample)
}

// The result of a replay stays when what it counted is purged.
func TestReplayStatusThroughItsLife(t *testing.T) {
	s := newStore(t)
	ids := newDead(t, s, 6)
	r := plan(t, s, newReplay(t, replay.Selector{States: selectDead}))
	execute(t, s, "DELETE FROM event WHERE id = $1", ids[5])
	run(t, s, r, 4)
	wantStatus(t, s, r, progress{Matched: 6, Queued: 5, Skipped: 1, Open: 5})
	claims := claim(t, s, want("a"))
	finish(t, s, event.VerdictDone, claims[:2]...)
	finish(t, s, event.VerdictDead, claims[2])
	finish(t, s, event.VerdictFailed, claims[3])
	finish(t, s, event.VerdictReleased, claims[4])
	wantStatus(t, s, r, progress{Matched: 6, Queued: 5, Skipped: 1, Succeeded: 2, Dead: 1, Open: 2, Failed: 1})
	lapse(t, s)
	finish(t, s, event.VerdictDone, claim(t, s, want("a"))...)
	final := progress{Matched: 6, Queued: 5, Skipped: 1, Succeeded: 4, Dead: 1, Completed: true}
	completed := wantStatus(t, s, r, final)

	execute(t, s, "DELETE FROM settled")
	execute(t, s, "UPDATE dead_letter SET expires_at = now()")
	maintain(t, s)
	again := wantStatus(t, s, r, final)
	same(t, "status", completed, again)
}

// What is planned for destinations that are gone is told before a plan is
// made, does not keep the others from being replayed, and can be replayed
// when they are back.
func TestReplayWithoutADestination(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 3, "a", "b")
	finish(t, s, event.VerdictDead, claim(t, s, want("a"), want("b"))...)
	r := newReplay(t, replay.Selector{States: selectDead})
	r.Present = []string{"a", "c"}
	counted, err := s.CountReplay(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "counted", []int64{6, 3, 3}, []int64{counted.Matched, counted.Skipped, counted.Skips.DestinationGone})
	plan(t, s, r)
	if queued, skipped, err := s.RunReplay(t.Context(), r.ID, r.Present, 10); queued != 3 || skipped != 3 || err != nil {
		t.Fatalf("queued %d, skipped %d: %v", queued, skipped, err)
	}
	finish(t, s, event.VerdictFailed, claim(t, s, want("a", most(1)))...)
	got := wantStatus(t, s, r, progress{Matched: 6, Queued: 3, Skipped: 3, Open: 3, Failed: 1})
	same(t, "open runs", []replay.OpenRuns{{Destination: "a", Open: 3, Failed: 1}}, got.OpenAt)
	same(t, "stranded", nil, got.Stranded(r.Present))
	same(t, "stranded without a", got.OpenAt, got.Stranded([]string{"b"}))
	same(t, "stranded, for all that is known", nil, got.Stranded(nil))

	back := plan(t, s, newReplay(t, replay.Selector{States: selectDead}))
	if queued, skipped := run(t, s, back, 10); queued != 3 || skipped != 0 {
		t.Errorf("when it is back: queued %d, skipped %d", queued, skipped)
	}
}
