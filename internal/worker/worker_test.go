package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

func TestNew(t *testing.T) {
	s, err := store.Open("postgres://nobody@127.0.0.1:1/none", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	complete := func() Options {
		return Options{
			Name: "worker", Store: s, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
			Sender: func(pipeline.Destination) (Sender, error) { return sendFunc(nil), nil },
		}
	}
	c := config(destination("a", "http://unused"))
	w, err := New(c, complete())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "poll interval", time.Second, w.opts.PollInterval)
	same(t, "drain timeout", 25*time.Second, w.opts.DrainTimeout)
	for what, change := range map[string]func(*Options){
		"Name":       func(o *Options) { o.Name = "" },
		"Store":      func(o *Options) { o.Store = nil },
		"Sender":     func(o *Options) { o.Sender = nil },
		"Logger":     func(o *Options) { o.Logger = nil },
		"Registerer": func(o *Options) { o.Registerer = nil },
	} {
		o := complete()
		change(&o)
		if _, err := New(c, o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("without %s: %v", what, err)
		}
	}
	o := complete()
	refused := errors.New("no such secret")
	o.Sender = func(pipeline.Destination) (Sender, error) { return nil, refused }
	if _, err := New(c, o); !errors.Is(err, refused) || !strings.Contains(err.Error(), "payments/github") {
		t.Errorf("got %v", err)
	}
}

func TestWakeWidensWhatIsPending(t *testing.T) {
	for _, tc := range []struct {
		looks []look
		want  look
	}{
		{[]look{lookMore}, lookMore},
		{[]look{lookMore, lookMore}, lookMore},
		{[]look{lookMore, lookAll}, lookAll},
		{[]look{lookAll, lookMore, lookMore}, lookAll},
	} {
		w := &Worker{found: make(chan look, 1)}
		for _, how := range tc.looks {
			w.wake(how)
		}
		same(t, "pending", tc.want, <-w.found)
		same(t, "pending after that", 0, len(w.found))
	}
}

func TestJitter(t *testing.T) {
	least, most := time.Hour, time.Duration(0)
	for range 10_000 {
		d := jitter(time.Second)
		least, most = min(least, d), max(most, d)
	}
	// Never later than the second in which an expired lease is taken over.
	if least < 700*time.Millisecond || most > 950*time.Millisecond || most-least < 200*time.Millisecond {
		t.Errorf("between %s and %s", least, most)
	}
	same(t, "jitter of nothing", 0, jitter(0))
}

func TestPauseEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pause(ctx, never)
	}()
	receive(t, "the end of the pause", ended)
}

func TestRenewInterval(t *testing.T) {
	for lease, want := range map[int]time.Duration{6: 600 * time.Millisecond, 60: 6 * time.Second, 3600: 6 * time.Second} {
		c := config(destination("a", "http://unused"))
		c.Endpoints[0].LeaseSeconds = lease
		same(t, "interval", want, (&Worker{lanes: newLanes(c)}).renewInterval())
	}
}

// A lease is renewed when a third of it has passed, and not again before
// another third has.
func TestLeasesDue(t *testing.T) {
	l := newLanes(config(destination("a", "http://unused")))
	start := time.Now()
	s := newHeldSet()
	h := &held{lane: l.all[0], confirmed: start}
	s.add(h)
	due := func(after time.Duration) int { return len(s.due(start.Add(after))) }
	same(t, "due", []int{0, 1, 1}, []int{due(19 * time.Second), due(20 * time.Second), due(time.Hour)})
	same(t, "left", 40*time.Second, s.leaseLeft(h, start.Add(20*time.Second)))
	s.confirm(h, start.Add(21*time.Second))
	same(t, "due after a renewal", []int{0, 1}, []int{due(40 * time.Second), due(41 * time.Second)})
	same(t, "left after a renewal", 59*time.Second, s.leaseLeft(h, start.Add(22*time.Second)))
	same(t, "removed", []bool{true, false}, []bool{s.remove(h), s.remove(h)})
	same(t, "due after the end", 0, due(time.Hour))
}

func TestKeeps(t *testing.T) {
	endpoint := func(events, dead int) pipeline.Endpoint {
		return pipeline.Endpoint{Retention: pipeline.Retention{EventsSeconds: events, DeadLettersSeconds: dead}}
	}
	c := &pipeline.Config{Endpoints: []pipeline.Endpoint{endpoint(10, 20), endpoint(10, 20), endpoint(30, 20), endpoint(30, 10)}}
	want := []store.Keep{{Events: 10 * time.Second, Ledger: 20 * time.Second}, {Events: 30 * time.Second, Ledger: 30 * time.Second}}
	same(t, "keeps", want, Keeps(c))
}

func TestQueueGauges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const owed = 12
	r.enqueue(owed, 10, "a")
	c := config(destination("a", "http://unused"), destination("idle", "http://unused"))
	w := r.prepare(c)
	// Two are left claimed, three failed, one is dead, one is done.
	claims, err := r.store.Claim(t.Context(), "worker", w.lanes.wants(lookAll, time.Now()))
	if err != nil || len(claims) < 7 {
		t.Fatalf("claimed %d, %v", len(claims), err)
	}
	var outcomes []store.Outcome
	for i, c := range claims[2:] {
		o := store.Outcome{Claim: c, Verdict: event.VerdictReleased, KeepLedger: time.Hour, KeepEnded: time.Hour}
		switch {
		case i < 3:
			o.Verdict, o.Delay = event.VerdictFailed, time.Hour
		case i < 4:
			o.Verdict, o.Reason = event.VerdictDead, event.ReasonAttemptsExhausted
		case i < 5:
			o.Verdict = event.VerdictDone
		}
		outcomes = append(outcomes, o)
	}
	if _, err := r.store.Complete(t.Context(), outcomes); err != nil {
		t.Fatal(err)
	}
	r.execute("UPDATE delivery SET next_at = now() - interval '100 seconds' WHERE state = 'pending'")

	w.upkeepOnce(t.Context())
	want := map[string]float64{"pending": owed - 7, "claimed": 2, "failed": 3, "dead": 1}
	for state, n := range want {
		same(t, state, n, w.metric("ackrail_queue_deliveries", "destination", "a", "state", state))
		same(t, state+" of a destination without deliveries", 0, w.metric("ackrail_queue_deliveries", "destination", "idle", "state", state))
	}
	same(t, "series", 8, len(w.series("ackrail_queue_deliveries")))
	counts, err := r.store.Counts(t.Context(), w.lanes.refs())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{
		"pending": float64(counts[0].Pending), "claimed": float64(counts[0].Claimed), "failed": float64(counts[0].Failed), "dead": float64(counts[0].Dead),
	}
	same(t, "counts of the store", want, got)
	if oldest := w.metric("ackrail_queue_oldest_due_seconds", "destination", "a"); oldest < 100 || oldest > 100+patience.Seconds() {
		t.Errorf("the oldest has been due for %v s, want 100", oldest)
	}
	for _, reason := range reasons {
		n := 0.0
		if reason == event.ReasonAttemptsExhausted {
			n = 1
		}
		same(t, "dead of "+string(reason), n, w.metric("ackrail_dead_letters", "destination", "a", "reason", string(reason)))
	}
	same(t, "series of dead letters", 8, len(w.series("ackrail_dead_letters")))
	same(t, "expiring", 1, w.metric("ackrail_dead_letters_expiring", "destination", "a"))
	if age := w.metric("ackrail_dead_letters_oldest_age_seconds"); age <= 0 || age > patience.Seconds() {
		t.Errorf("the oldest dead letter died %v s ago", age)
	}
	r.execute("UPDATE dead_letter SET replayed_by = gen_random_uuid()")
	w.upkeepOnce(t.Context())
	for _, name := range []string{"ackrail_dead_letters", "ackrail_dead_letters_expiring", "ackrail_dead_letters_oldest_age_seconds"} {
		same(t, name+" when all were taken up", 0, w.metric(name))
	}
	same(t, "oldest of the idle one", 0, w.metric("ackrail_queue_oldest_due_seconds", "destination", "idle"))
}

// The worker does the database's housekeeping: partitions ahead, dead letters
// that have expired.
func TestUpkeep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.enqueue(1, 10, "a")
	r.execute(`INSERT INTO dead_letter (event_id, destination_id, run, attempt, attempts, size, event_expires_at, reason, error_class, last_error, died_at, expires_at)
		SELECT $1, destination_id, 1, 1, 1, 0, now(), 'PermanentStatus', '', '', now(), now() FROM delivery`, uuid.New())
	r.execute("UPDATE chore SET due_at = '-infinity'")
	w := r.prepare(config(destination("a", "http://unused")))
	w.upkeepOnce(t.Context())
	same(t, "logged", []int{1, 1}, []int{w.logs.count("Partitions changed"), w.logs.count("Dead letters expired")})
	same(t, "dead letters", 0, value[int](r, "SELECT count(*) FROM dead_letter"))
	if n := value[int](r, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'event'::regclass"); n < 2 {
		t.Errorf("the events have %d partitions", n)
	}
}
