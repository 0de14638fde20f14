package store

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
)

func renew(t testing.TB, s *Store, lease time.Duration, claims ...*Claim) []bool {
	t.Helper()
	holds, err := s.Renew(t.Context(), claims, slices.Repeat([]time.Duration{lease}, len(claims)))
	if err != nil {
		t.Fatal(err)
	}
	return holds
}

// What each verdict leaves behind.
func TestComplete(t *testing.T) {
	s := newStore(t)
	for _, tc := range []struct {
		verdict event.Verdict
		want    DeliveryRecord
		attempt AttemptRecord
	}{
		{
			event.VerdictDone,
			DeliveryRecord{State: event.StateDone, Attempts: 1, LastStatus: 204},
			AttemptRecord{Result: AttemptResult(event.VerdictDone), Status: 204},
		}, {
			event.VerdictFailed,
			DeliveryRecord{State: event.StateFailed, Attempts: 1},
			AttemptRecord{Result: AttemptResult(event.VerdictFailed), Status: 503, ErrorClass: event.ErrorHTTPStatus, Error: "status 503", Excerpt: "try later"},
		}, {
			event.VerdictDead,
			DeliveryRecord{
				State: event.StateDead, Attempts: 1, LastStatus: 410, Reason: event.ReasonPermanentStatus, ErrorClass: event.ErrorHTTPStatus, LastError: "status 410",
			},
			AttemptRecord{Result: AttemptResult(event.VerdictDead), Status: 410, ErrorClass: event.ErrorHTTPStatus, Error: "status 410", Excerpt: "gone"},
		}, {
			event.VerdictReleased,
			DeliveryRecord{State: event.StatePending},
			AttemptRecord{Result: AttemptResult(event.VerdictReleased)},
		},
	} {
		t.Run(string(tc.verdict), func(t *testing.T) {
			to := to(string(tc.verdict))
			sub := submission(t, string(tc.verdict), to)
			enqueue(t, s, sub)
			c := claim(t, s, want(string(tc.verdict)))[0]
			finish(t, s, tc.verdict, c)
			shown, err := s.ShowEvent(t.Context(), sub.Event.ID)
			if err != nil {
				t.Fatal(err)
			}
			got, attempt := shown.Deliveries[0], shown.Attempts[0]
			open := tc.want.State == event.StatePending || tc.want.State == event.StateFailed
			if open != (got.NextAt != nil) || open != (got.EndedAt == nil) || attempt.EndedAt == nil || attempt.StartedAt.After(*attempt.EndedAt) {
				t.Errorf("next at %v, ended at %v, attempt from %v to %v", got.NextAt, got.EndedAt, attempt.StartedAt, attempt.EndedAt)
			}
			tc.want.Key, tc.want.Size, tc.want.NextAt, tc.want.EndedAt = c.Token.Delivery, len(sub.Event.Body), got.NextAt, got.EndedAt
			same(t, "delivery", tc.want, got)
			tc.attempt.Destination, tc.attempt.Run, tc.attempt.Attempt, tc.attempt.Worker = string(tc.verdict), 1, 1, "worker"
			tc.attempt.StartedAt, tc.attempt.EndedAt, tc.attempt.Latency = attempt.StartedAt, attempt.EndedAt, 12*time.Millisecond
			same(t, "attempts", []AttemptRecord{tc.attempt}, shown.Attempts)
		})
	}
	same(t, "dead letter kept for", "4 days", value[string](t, s, "SELECT (expires_at - died_at)::text FROM dead_letter"))
	same(t, "outcomes kept for", []string{"2 days"}, column[string](t, s, "SELECT DISTINCT (expires_at - ended_at)::text FROM outcome"))
}

// Whatever a worker reports that lost its lease, it changes nothing (I5).
func TestFencing(t *testing.T) {
	report := map[string]func(*testing.T, *Store, *Claim) []bool{
		"renewed": func(t *testing.T, s *Store, c *Claim) []bool { return renew(t, s, time.Hour, c) },
	}
	for _, v := range verdicts {
		report[string(v)] = func(t *testing.T, s *Store, c *Claim) []bool { return complete(t, s, outcome(c, v)) }
	}
	s := newStore(t)
	for name, report := range report {
		t.Run(name, func(t *testing.T) {
			for what, supersede := range map[string]func(c *Claim){
				"claimed by another": func(*Claim) { lapse(t, s); claimOne(t, s) },
				"done":               func(c *Claim) { finish(t, s, event.VerdictDone, c) },
				"dead":               func(c *Claim) { finish(t, s, event.VerdictDead, c) },
				"failed":             func(c *Claim) { finish(t, s, event.VerdictFailed, c) },
				"released":           func(c *Claim) { finish(t, s, event.VerdictReleased, c) },
				"claimed again after a failure": func(c *Claim) {
					finish(t, s, event.VerdictFailed, c)
					lapse(t, s)
					claimOne(t, s)
				},
				"gone": func(*Claim) { execute(t, s, "DELETE FROM delivery") },
			} {
				t.Run(what, func(t *testing.T) {
					execute(t, s, "DELETE FROM delivery")
					enqueueNew(t, s, 1, "a")
					c := claimOne(t, s)
					supersede(c)
					before := contents(t, s)
					same(t, "took effect", []bool{false}, report(t, s, c))
					same(t, "contents", before, contents(t, s))
				})
			}
		})
	}
}

// A worker may take a delivery over from itself, and report both attempts at
// once: the one that holds is told from the one that does not.
func TestFencingTellsAttemptsApart(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 1, "a")
	stale := claimOne(t, s)
	lapse(t, s)
	current := claimOne(t, s)
	same(t, "holds", []bool{false, true, false}, renew(t, s, time.Hour, stale, current, stale))
	same(t, "took effect", []bool{false, true}, complete(t, s, outcome(stale, event.VerdictFailed), outcome(current, event.VerdictDone)))
	same(t, "settled attempts", []int32{2}, column[int32](t, s, "SELECT attempt FROM settled"))
	same(t, "outcomes of failures", 0, value[int](t, s, "SELECT count(*)::int FROM outcome"))
}

// Of two outcomes of one claim in a batch, one is recorded.
func TestDoubleOutcomeInABatch(t *testing.T) {
	s := newStore(t)
	for _, first := range verdicts {
		for _, second := range verdicts {
			t.Run(string(first+" then "+second), func(t *testing.T) {
				execute(t, s, "TRUNCATE delivery, settled, dead_letter, outcome, attempt, tally, tally_delta")
				enqueueNew(t, s, 1, "a")
				c := claimOne(t, s)
				same(t, "took effect", []bool{true, false}, complete(t, s, outcome(c, first), outcome(c, second)))
				state := map[event.Verdict]event.State{
					event.VerdictDone: event.StateDone, event.VerdictDead: event.StateDead,
					event.VerdictFailed: event.StateFailed, event.VerdictReleased: event.StatePending,
				}
				var states []event.State
				for _, d := range list(t, s, Filter{}) {
					states = append(states, d.State)
				}
				same(t, "states", []event.State{state[first]}, states)
			})
		}
	}
}

func TestMixedBatch(t *testing.T) {
	s := newStore(t)
	ids := enqueueNew(t, s, 6, "a")
	claims := claim(t, s, want("a"))
	finish(t, s, event.VerdictDone, claims[4]) // the batch reports it once more
	execute(t, s, "UPDATE delivery SET attempt = attempt + 1 WHERE event_id = $1", ids[5])
	var batch []Outcome
	for i, v := range []event.Verdict{event.VerdictDone, event.VerdictFailed, event.VerdictDead, event.VerdictReleased, event.VerdictDead, event.VerdictDone} {
		batch = append(batch, outcome(claims[i], v))
	}
	order := rand.New(rand.NewPCG(3, 4)).Perm(len(batch))
	var shuffled []Outcome
	var expected []bool
	for _, i := range order {
		shuffled = append(shuffled, batch[i])
		expected = append(expected, i < 4)
	}
	same(t, "took effect", expected, complete(t, s, shuffled...))
	states := map[event.ID]event.State{}
	for _, d := range list(t, s, Filter{}) {
		states[d.Key.Event] = d.State
	}
	same(t, "states", map[event.ID]event.State{
		ids[0]: event.StateDone, ids[1]: event.StateFailed, ids[2]: event.StateDead, ids[3]: event.StatePending, ids[4]: event.StateDone, ids[5]: event.StateClaimed,
	}, states)
	same(t, "outcomes", []string{"dead", "failed", "released"}, column[string](t, s, "SELECT verdict FROM outcome ORDER BY 1"))
}

func TestDelayIsClamped(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 1, "a")
	for _, tc := range []struct{ delay, want time.Duration }{
		{0, 0},
		{-time.Hour, 0},
		{1500 * time.Millisecond, 1500 * time.Millisecond},
		{MaxDelay, MaxDelay},
		{MaxDelay + time.Hour, MaxDelay},
		{1<<63 - 1, MaxDelay},
		{-1 << 63, 0},
	} {
		for _, v := range []event.Verdict{event.VerdictFailed, event.VerdictReleased} {
			o := outcome(claim(t, s, want("a", func(w *Want) { w.MaxAttempts = 100 }))[0], v)
			o.Delay = tc.delay
			same(t, "took effect", []bool{true}, complete(t, s, o))
			got := value[float64](t, s, "SELECT extract(epoch FROM next_at - (SELECT max(ended_at) FROM outcome))::float8 FROM delivery")
			if got != tc.want.Seconds() {
				t.Errorf("%s after %s: due in %v s, want %s", v, tc.delay, got, tc.want)
			}
			lapse(t, s)
		}
	}
}

// What a destination answers must not keep its outcome from being recorded.
func TestRefusedTextIsStripped(t *testing.T) {
	s := newStore(t)
	for _, tc := range []struct {
		name   string
		change func(*Outcome)
	}{
		{"NUL in the excerpt", func(o *Outcome) { o.Excerpt = "a\x00b" }},
		{"invalid UTF-8 in the excerpt", func(o *Outcome) { o.Excerpt = "\xff" }},
		{"NUL in the error", func(o *Outcome) { o.Error = "\x00" }},
		{"both", func(o *Outcome) { o.Error, o.Excerpt = "\xc3\x28", "\x00" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, v := range []event.Verdict{event.VerdictFailed, event.VerdictDead} {
				execute(t, s, "TRUNCATE delivery, dead_letter, outcome, tally, tally_delta")
				enqueueNew(t, s, 7, "a")
				var batch []Outcome
				for i, c := range claim(t, s, want("a")) {
					o := outcome(c, v)
					if i == 0 || i == 4 {
						tc.change(&o)
					}
					batch = append(batch, o)
				}
				same(t, "took effect", slices.Repeat([]bool{true}, 7), complete(t, s, batch...))
				same(t, "outcomes", 7, value[int](t, s, "SELECT count(*)::int FROM outcome WHERE verdict = $1 AND status = $2", string(v), batch[0].Status))
				same(t, "outcomes with their text", 5, value[int](t, s, "SELECT count(*)::int FROM outcome WHERE excerpt = $1 AND error = $2",
					batch[1].Excerpt, batch[1].Error))
			}
		})
	}
}

func TestRenew(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 3, "a")
	claims := claim(t, s, want("a"))
	holds, err := s.Renew(t.Context(), []*Claim{claims[2], claims[0], claims[1]}, []time.Duration{3 * time.Hour, time.Hour, 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "holds", []bool{true, true, true}, holds)
	left := column[float64](t, s, "SELECT extract(epoch FROM next_at - now())::float8 / 3600 FROM delivery ORDER BY event_id")
	for i, hours := range left {
		if hours > float64(i+1) || hours < float64(i+1)-0.1 {
			t.Errorf("lease %d ends in %v h", i, hours)
		}
	}
	same(t, "attempts", []int32{1, 1, 1}, column[int32](t, s, "SELECT attempt FROM delivery"))
	// A lease that has ended is good as long as nobody took it over.
	lapse(t, s)
	same(t, "holds after its end", []bool{true}, renew(t, s, time.Hour, claims[0]))
	same(t, "claims", 2, len(claim(t, s, want("a"))))
}

func TestEmptyBatches(t *testing.T) {
	s := newStore(t)
	if took, err := s.Complete(t.Context(), nil); len(took) != 0 || err != nil {
		t.Errorf("complete: %v, %v", took, err)
	}
	if holds, err := s.Renew(t.Context(), nil, nil); len(holds) != 0 || err != nil {
		t.Errorf("renew: %v, %v", holds, err)
	}
	if counts, err := s.Counts(t.Context(), nil); len(counts) != 0 || err != nil {
		t.Errorf("counts: %v, %v", counts, err)
	}
}

// Batches with deliveries in common, in opposite orders, take turns.
func TestOverlappingBatchesDoNotDeadlock(t *testing.T) {
	const deliveries, rounds = 120, 12
	url := migrated(t)
	var c conflicts
	stores := []*Store{watch(t, openStore(t, url), &c), watch(t, openStore(t, url), &c)}
	for range rounds {
		enqueueNew(t, stores[0], deliveries, "a")
		claims := claim(t, stores[0], want("a"))
		var outcomes []Outcome
		for i, c := range claims {
			outcomes = append(outcomes, outcome(c, verdicts[i%2])) // done or failed
		}
		reversed := slices.Clone(outcomes)
		slices.Reverse(reversed)
		took := make([][]bool, 2)
		errs := make([]error, 4)
		parallel(4, func(i int) {
			switch i {
			case 0:
				took[0], errs[i] = stores[0].Complete(t.Context(), outcomes)
			case 1:
				took[1], errs[i] = stores[1].Complete(t.Context(), reversed)
			default:
				_, errs[i] = stores[i%2].Renew(t.Context(), claims, slices.Repeat([]time.Duration{time.Minute}, len(claims)))
			}
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(took[1])
		for i := range claims {
			if took[0][i] == took[1][i] {
				t.Fatalf("outcome %d was recorded twice or never", i)
			}
		}
		execute(t, stores[0], "DELETE FROM delivery")
	}
	if n := c.n.Load(); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// A heartbeat that comes between does not make an outcome look fenced off.
func TestHeartbeatsDoNotFence(t *testing.T) {
	s := newStore(t)
	var completed, refused atomic.Int64
	for range 6 {
		enqueueNew(t, s, 40, "a")
		claims := claim(t, s, want("a"))
		stop := make(chan struct{})
		var errs [5]error
		parallel(5, func(i int) {
			if i > 0 {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := s.Renew(t.Context(), claims, slices.Repeat([]time.Duration{time.Minute}, len(claims))); err != nil {
						errs[i] = err
						return
					}
				}
			}
			defer close(stop)
			for i, c := range claims {
				took, err := s.Complete(t.Context(), []Outcome{outcome(c, verdicts[i%len(verdicts)])})
				if err != nil {
					errs[0] = err
					return
				}
				completed.Add(1)
				if !took[0] {
					refused.Add(1)
				}
			}
		})
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		execute(t, s, "DELETE FROM delivery")
	}
	if n := refused.Load(); n > 0 {
		t.Errorf("%d of %d outcomes were refused", n, completed.Load())
	}
}

// An outcome that the schema cannot hold is an error, and not a lost one.
func TestImpossibleOutcome(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 1, "a")
	o := outcome(claimOne(t, s), event.VerdictDead)
	o.Reason = "" // dead for no reason
	_, err := s.Complete(t.Context(), []Outcome{o})
	if err == nil || errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "recording outcomes") || !isCode(err, "23514") {
		t.Errorf("got %v", err)
	}
	same(t, "states", []string{"claimed"}, column[string](t, s, "SELECT state FROM delivery"))
	if _, err := s.Complete(t.Context(), []Outcome{o, outcome(o.Claim, event.VerdictDone)}); err == nil {
		t.Error("a batch with it succeeds")
	}
}
