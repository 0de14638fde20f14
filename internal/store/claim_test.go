package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/testenv"
)

// due sets when deliveries are due, seconds from now, in the order of ids.
func due(t *testing.T, s *Store, ids []event.ID, seconds ...float64) {
	t.Helper()
	for i, id := range ids {
		if n := execute(t, s, "UPDATE delivery SET next_at = now() + $2 * interval '1 second' WHERE event_id = $1", id, seconds[i]); n != 1 {
			t.Fatalf("%d deliveries of %s", n, id)
		}
	}
}

func TestClaimCarriesTheDelivery(t *testing.T) {
	s := newStore(t)
	sub := submission(t, "k")
	enqueue(t, s, sub)
	received := value[time.Time](t, s, "SELECT received_at FROM event")
	execute(t, s, "UPDATE event SET received_at = received_at - interval '1 hour'")
	execute(t, s, "UPDATE delivery SET next_at = next_at - interval '1 hour'")

	c := claimOne(t, s)
	if c.Age < time.Hour || c.Age > time.Hour+time.Minute {
		t.Errorf("age %s, want an hour", c.Age)
	}
	if !c.Seen.Equal(received.Add(-time.Hour)) {
		t.Errorf("seen %s, want %s", c.Seen, received.Add(-time.Hour))
	}
	expected := &Claim{
		Token:    event.Token{Delivery: event.DeliveryKey{Event: sub.Event.ID, Destination: dest("a"), Run: 1}, Attempt: 1},
		Attempts: 1,
		Event: event.Event{
			ID: sub.Event.ID, Endpoint: endpoint, Type: "push", ContentType: "application/json", TraceParent: "00-trace",
			Body: []byte("k"), ReceivedAt: received.Add(-time.Hour),
		},
		Age: c.Age, Seen: c.Seen, destination: c.destination,
	}
	if diff := diffUnexported(expected, c); diff != "" {
		t.Errorf("claim (-want +got):\n%s", diff)
	}
	left := value[float64](t, s, "SELECT extract(epoch FROM next_at - now())::float8 FROM delivery WHERE state = 'claimed' AND attempt = 1")
	if left <= 0 || left > 60 {
		t.Errorf("the lease ends in %v s, want 60", left)
	}
}

func TestClaimTakesTheLongestDueFirst(t *testing.T) {
	s := newStore(t)
	ids := enqueueNew(t, s, 6, "a")
	due(t, s, ids, -3, -1, 60, -5, -2, -4)
	for _, expected := range [][]int{{3, 5}, {0, 4}, {1}, {}} {
		wanted := []event.ID{}
		for _, i := range expected {
			wanted = append(wanted, ids[i])
		}
		same(t, "claimed", wanted, events(claim(t, s, want("a", most(2)))))
	}
}

func TestClaimIsBounded(t *testing.T) {
	for _, tc := range []struct {
		name  string
		sizes []int
		most  int
		bytes int64
		want  int
	}{
		{"rows", []int{1, 1, 1, 1}, 3, 100, 3},
		{"no rows", []int{1, 1}, 0, 100, 0},
		{"bytes, to the last one", []int{4, 4, 4, 4, 4}, 10, 8, 2},
		{"bytes, reached by the last one", []int{4, 4, 4, 4, 4}, 10, 9, 3},
		{"one too large alone", []int{50, 1, 1}, 10, 8, 1},
		{"one too large after others", []int{4, 50, 1, 1}, 10, 8, 2},
		{"empty ones cost nothing", []int{0, 0, 7, 0, 1, 0, 1}, 10, 8, 5},
		{"one byte", []int{1, 1}, 10, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			var ids []event.ID
			for i, size := range tc.sizes {
				sub := submission(t, digits(i), body(string(make([]byte, size))))
				enqueue(t, s, sub)
				ids = append(ids, sub.Event.ID)
				due(t, s, ids[i:], float64(i-100))
			}
			claims := claim(t, s, want("a", most(tc.most), mostBytes(tc.bytes)))
			same(t, "claimed", append([]uuid.UUID{}, ids[:tc.want]...), events(claims))
			// What did not fit is due to whoever asks next, from where this
			// claim says.
			next := want("a")
			if len(claims) > 0 {
				next.Since = claims[0].Seen
			}
			same(t, "claimed next", ids[tc.want:], events(claim(t, s, next)))
		})
	}
}

func TestClaimOfManyDestinations(t *testing.T) {
	const lanes, each = 40, 5
	s := newStore(t)
	var names []string
	for i := range lanes {
		names = append(names, fmt.Sprintf("d%d", i))
	}
	ids := enqueueNew(t, s, each, names...)
	wants := []Want{want("unknown"), {Destination: event.DestinationRef{Endpoint: event.EndpointRef{Namespace: "no", Name: "such"}, Name: "a"}, Most: 1}}
	for i, name := range names {
		wants = append(wants, want(name, most(i%each+1), func(w *Want) { w.Lease = time.Duration(i+1) * time.Hour }))
	}
	got := map[string][]event.ID{}
	for _, c := range claim(t, s, wants...) {
		name := c.Token.Delivery.Destination.Name
		got[name] = append(got[name], c.Token.Delivery.Event)
	}
	for i, name := range names {
		same(t, "claimed for "+name, ids[:i%each+1], got[name])
		lease := value[float64](t, s, `SELECT DISTINCT extract(epoch FROM next_at - now())::float8 FROM delivery
			WHERE state = 'claimed' AND destination_id = (SELECT id FROM destination WHERE name = $1)`, name)
		if hours := float64(i + 1); lease <= (hours-1)*3600 || lease > hours*3600 {
			t.Errorf("%s: the lease ends in %v s, want %v h", name, lease, hours)
		}
	}
}

func TestClaimOfNothing(t *testing.T) {
	s := newStore(t)
	for _, wants := range [][]Want{nil, {want("a")}} {
		if claims, err := s.Claim(t.Context(), "worker", wants); err != nil || len(claims) != 0 {
			t.Errorf("%d claims, %v", len(claims), err)
		}
	}
	if err := s.Register(t.Context(), []event.DestinationRef{dest("a")}); err != nil {
		t.Fatal(err)
	}
	before := contents(t, s)
	same(t, "claims", 0, len(claim(t, s, want("a"))))
	same(t, "contents", before, contents(t, s))
}

// Whatever races, a delivery has one owner.
func TestClaimsDoNotOverlap(t *testing.T) {
	const deliveries, workers = 300, 8
	url := migrated(t)
	stores := []*Store{openStore(t, url), openStore(t, url)}
	ids := enqueueNew(t, stores[0], deliveries, "a", "b")
	var mu sync.Mutex
	owners := map[event.DeliveryKey]int{}
	errs := make([]error, workers)
	parallel(workers, func(i int) {
		for {
			claims, err := stores[i%2].Claim(t.Context(), digits(i), []Want{want("a", most(7)), want("b", most(5))})
			if err != nil {
				errs[i] = err
				return
			}
			mu.Lock()
			for _, c := range claims {
				owners[c.Token.Delivery]++
			}
			all := len(owners) == 2*deliveries
			mu.Unlock()
			if all || len(claims) == 0 && i > 0 {
				// Only the first one goes on until all are found: what another
				// worker looked at in the same moment is skipped.
				return
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for key, n := range owners {
		if n != 1 {
			t.Errorf("%s has %d owners", key, n)
		}
	}
	same(t, "claimed", 2*len(ids), len(owners))
	same(t, "attempts", 2*deliveries, value[int](t, stores[0], "SELECT count(*)::int FROM attempt"))
	same(t, "attempts", 2*deliveries, value[int](t, stores[0], "SELECT count(*)::int FROM delivery WHERE attempt = 1 AND state = 'claimed'"))
}

func TestLeaseThatEndsIsDueAgain(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 1, "a")
	first := claimOne(t, s)
	same(t, "claims while the lease holds", 0, len(claim(t, s, want("a"))))
	lapse(t, s)
	second := claimOne(t, s)
	same(t, "delivery", first.Token.Delivery, second.Token.Delivery)
	same(t, "attempts", []int{1, 1, 2, 2}, []int{first.Token.Attempt, first.Attempts, second.Token.Attempt, second.Attempts})
	same(t, "ledger", []int32{1, 2}, column[int32](t, s, "SELECT attempt FROM attempt ORDER BY 1"))
}

// The claim's own commit writes the intents: whoever has a claim finds them.
func TestClaimWritesIntents(t *testing.T) {
	url := migrated(t)
	s, other := openStore(t, url), openStore(t, url)
	ids := enqueueNew(t, s, 3, "a")
	if _, err := s.Claim(t.Context(), "worker-1", []Want{want("a", func(w *Want) { w.KeepLedger = 5 * time.Hour })}); err != nil {
		t.Fatal(err)
	}
	same(t, "intents", sortedIDs(ids), column[uuid.UUID](t, other, `SELECT event_id FROM attempt
		WHERE run = 1 AND attempt = 1 AND worker = 'worker-1' AND started_at <= now() AND expires_at = started_at + interval '5 hours' ORDER BY 1`))
}

// Attempts never exceed the limit, across workers that vanish (I7). The last
// owner is fenced off all the same.
func TestAttemptsAreExhausted(t *testing.T) {
	s := newStore(t)
	id := enqueueNew(t, s, 1, "a")[0]
	var last *Claim
	for n := 1; n <= 3; n++ {
		last = claimOne(t, s)
		if last.Exhausted || last.Attempts != n {
			t.Fatalf("attempt %d: exhausted %v, attempts %d", n, last.Exhausted, last.Attempts)
		}
		lapse(t, s)
	}
	for range 2 { // whoever finds it exhausted may vanish as well
		c := claimOne(t, s)
		if !c.Exhausted || c.OutcomeKnown || c.Attempts != 3 || c.Token.Attempt <= last.Token.Attempt {
			t.Fatalf("exhausted %v, attempts %d, token %d after %d", c.Exhausted, c.Attempts, c.Token.Attempt, last.Token.Attempt)
		}
		same(t, "intents", []int32{1, 2, 3}, column[int32](t, s, "SELECT attempt FROM attempt ORDER BY 1"))
		same(t, "attempts shown", 3, list(t, s, Filter{})[0].Attempts)
		same(t, "late outcome", []bool{false}, complete(t, s, outcome(last, event.VerdictDone)))
		last = c
		lapse(t, s)
	}
	dead := outcome(last, event.VerdictDead)
	dead.Reason, dead.Status = event.ReasonOutcomeUnknown, 0
	same(t, "dead", []bool{true}, complete(t, s, dead))
	shown, err := s.ShowEvent(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	d := shown.Deliveries[0]
	same(t, "delivery", DeliveryRecord{
		Key: last.Token.Delivery, State: event.StateDead, Attempts: 3, Reason: event.ReasonOutcomeUnknown,
		ErrorClass: event.ErrorHTTPStatus, LastError: "status 410", Size: d.Size, EndedAt: d.EndedAt,
	}, d)
	for _, a := range shown.Attempts {
		if a.Result != AttemptUnknown {
			t.Errorf("attempt %d is %s, want %s", a.Attempt, a.Result, AttemptUnknown)
		}
	}
	same(t, "attempts in the ledger", 3, len(shown.Attempts))
}

// A limit that was lowered meanwhile ends a delivery at its next claim.
func TestLimitLoweredMeanwhile(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 1, "a")
	for range 2 {
		finish(t, s, event.VerdictFailed, claimOne(t, s))
		lapse(t, s)
	}
	claims := claim(t, s, want("a", func(w *Want) { w.MaxAttempts = 1 }))
	if len(claims) != 1 || !claims[0].Exhausted || !claims[0].OutcomeKnown || claims[0].Attempts != 2 {
		t.Fatalf("got %+v", claims)
	}
	// The ledger tells of attempts, and this claim was none.
	finish(t, s, event.VerdictDead, claims[0])
	same(t, "outcomes", 2, value[int](t, s, "SELECT count(*)::int FROM outcome"))
}

// An attempt that was handed back unsent does not count, but fences all the
// same.
func TestReleasedAttemptsDoNotCount(t *testing.T) {
	s := newStore(t)
	enqueueNew(t, s, 1, "a")
	for range 5 {
		c := claimOne(t, s)
		if c.Attempts != 1 || c.Exhausted {
			t.Fatalf("attempts %d, exhausted %v", c.Attempts, c.Exhausted)
		}
		release := outcome(c, event.VerdictReleased)
		same(t, "released", []bool{true}, complete(t, s, release))
		same(t, "released twice", []bool{false}, complete(t, s, release))
	}
	c := claimOne(t, s)
	same(t, "attempts", []int{6, 1}, []int{c.Token.Attempt, c.Attempts})
	finish(t, s, event.VerdictFailed, c)
	lapse(t, s)
	same(t, "attempts after a failure", 2, claimOne(t, s).Attempts)
	same(t, "attempts shown", 2, list(t, s, Filter{})[0].Attempts)
}

// The hint spares what lies before it; a look from the beginning finds it.
func TestSince(t *testing.T) {
	s := newStore(t)
	ids := enqueueNew(t, s, 4, "a")
	due(t, s, ids, -40, -30, -20, -10)
	hint := value[time.Time](t, s, "SELECT next_at FROM delivery WHERE event_id = $1", ids[2])
	claims := claim(t, s, want("a", since(hint)))
	same(t, "claimed from the hint", ids[2:], events(claims))
	last := value[time.Time](t, s, "SELECT next_at FROM delivery WHERE event_id = $1", ids[1])
	same(t, "claimed by a sweep", ids[:2], events(claim(t, s, want("a"))))
	for _, c := range claims {
		if !c.Seen.After(last) {
			t.Errorf("seen %s, which is not after %s", c.Seen, last)
		}
	}
}

// Deliveries outlive their event only by a fault, which must not stop the
// others.
func TestPayloadMissing(t *testing.T) {
	s := newStore(t)
	ids := enqueueNew(t, s, 3, "a")
	execute(t, s, "DELETE FROM event WHERE id = $1", ids[1])
	claims := claim(t, s, want("a"))
	var missing []bool
	for _, c := range claims {
		missing = append(missing, c.PayloadMissing)
		if c.PayloadMissing != c.Event.ReceivedAt.IsZero() {
			t.Errorf("received at %s", c.Event.ReceivedAt)
		}
	}
	same(t, "missing", []bool{false, true, false}, missing)
	dead := outcome(claims[1], event.VerdictDead)
	dead.Reason = event.ReasonPayloadMissing
	same(t, "dead", []bool{true}, complete(t, s, dead))
}

// A page that the server cannot read costs the events on it, and no others.
func TestDamagedEvent(t *testing.T) {
	server := testenv.Server(t, map[string]string{"fsync": "off", "autovacuum": "off"})
	if err := Migrate(t.Context(), server.URL(), t.Logf); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, server.URL())
	const events = 100 // on several pages
	enqueueNew(t, s, events, "a")
	restore := testenv.Damage(t, server, "event_default", 0)
	s.pool.Reset()
	damaged := 0
	for range 2 {
		for _, c := range claim(t, s, want("a", most(events/2))) {
			if c.PayloadMissing != (c.Damage != nil) || c.PayloadMissing == (len(c.Event.Body) > 0) || c.PayloadMissing == (c.Age > 0) {
				t.Errorf("payload missing %t, damage %v, body %q, age %s", c.PayloadMissing, c.Damage, c.Event.Body, c.Age)
			}
			if c.Damage != nil {
				damaged++
				continue
			}
			same(t, "done", []bool{true}, complete(t, s, outcome(c, event.VerdictDone)))
		}
	}
	if damaged == 0 || damaged > events/2 {
		t.Errorf("%d of %d events are damaged", damaged, events)
	}
	restore()
	s.pool.Reset()
	execute(t, s, "UPDATE delivery SET next_at = now()")
	for _, c := range claim(t, s, want("a", most(events))) {
		if c.PayloadMissing {
			t.Error("an event is missing on the restored page")
		}
		damaged--
	}
	same(t, "not claimed again", 0, damaged)
}

// Claims while deliveries change hands: nothing is lost, nothing is shared.
func TestClaimWhileLeasesEnd(t *testing.T) {
	const deliveries, workers, rounds = 60, 6, 40
	url := migrated(t)
	stores := []*Store{openStore(t, url), openStore(t, url)}
	enqueueNew(t, stores[0], deliveries, "a")
	var mu sync.Mutex
	ended := map[event.ID]int{}
	errs := make([]error, workers)
	parallel(workers, func(i int) {
		random := rand.New(rand.NewPCG(7, uint64(i)))
		for range rounds {
			lease := time.Duration(random.IntN(3)) * time.Millisecond
			claims, err := stores[i%2].Claim(t.Context(), digits(i), []Want{want("a", most(10), func(w *Want) { w.Lease, w.MaxAttempts = lease, 10_000 })})
			if err != nil {
				errs[i] = err
				return
			}
			var outcomes []Outcome
			for _, c := range claims {
				outcomes = append(outcomes, outcome(c, []event.Verdict{event.VerdictDone, event.VerdictReleased}[random.IntN(2)]))
			}
			took, err := stores[i%2].Complete(t.Context(), outcomes)
			if err != nil {
				errs[i] = err
				return
			}
			mu.Lock()
			for n, ok := range took {
				if ok && outcomes[n].Verdict == event.VerdictDone {
					ended[outcomes[n].Claim.Token.Delivery.Event]++
				}
			}
			mu.Unlock()
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for id, n := range ended {
		if n != 1 {
			t.Errorf("%s ended %d times", id, n)
		}
	}
	settled := column[uuid.UUID](t, stores[0], "SELECT event_id FROM settled ORDER BY 1")
	got := []uuid.UUID{}
	for id := range ended {
		got = append(got, id)
	}
	same(t, "settled", settled, sortedIDs(got))
	same(t, "open and settled", deliveries, len(settled)+value[int](t, stores[0], "SELECT count(*)::int FROM delivery"))
	if slices.Contains(column[bool](t, stores[0], "SELECT attempt - released BETWEEN 0 AND attempt FROM delivery"), false) {
		t.Error("more attempts were released than made")
	}
}
