package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

// fullLanes are lanes d0, d1, … with 4 slots each, that hold so many
// deliveries of 100 bytes.
func fullLanes(holds ...int) *lanes {
	all, _ := many(len(holds), "http://unused", concurrency(4))
	l := newLanes(config(all...))
	l.laneBytes, l.totalBytes = 1000, 4000
	for i, n := range holds {
		take(l, i, n, 100)
	}
	return l
}

// take has a lane hold n deliveries more.
func take(l *lanes, i, n int, size int64) {
	l.all[i].inFlight += n
	l.all[i].bytes += int64(n) * size
	l.bytes += int64(n) * size
}

// claimed are n deliveries for a lane.
func claimed(l *lanes, i, n, size int, seen time.Time) []*store.Claim {
	var claims []*store.Claim
	for range n {
		c := &store.Claim{Seen: seen, Event: event.Event{Body: make([]byte, size)}}
		c.Token.Delivery.Destination = l.all[i].ref
		claims = append(claims, c)
	}
	return claims
}

// asked says for each want, as "lane: deliveries, bytes", what it is.
func asked(wants []store.Want) []string {
	all := []string{}
	for _, w := range wants {
		all = append(all, fmt.Sprintf("%s: %d, %d", w.Destination.Name, w.Most, w.MostBytes))
	}
	return all
}

func TestWants(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name  string
		lanes *lanes
		more  []int // lanes that may have more
		look  look
		want  []string
	}{
		{"all are free", fullLanes(0, 0), nil, lookAll, []string{"d0: 4, 1000", "d1: 4, 1000"}},
		{"nobody has more", fullLanes(0, 0), nil, lookMore, []string{}},
		{"one has more", fullLanes(0, 1), []int{1}, lookMore, []string{"d1: 3, 900"}},
		{"one has more and no slot", fullLanes(0, 4), []int{1}, lookMore, []string{}},
		{"some slots are taken", fullLanes(1, 3), nil, lookAll, []string{"d0: 3, 900", "d1: 1, 700"}},
		{"no slot is free", fullLanes(4, 0), nil, lookAll, []string{"d1: 4, 1000"}},
		{"a lane's bytes are used up", func() *lanes { l := fullLanes(0, 0); take(l, 0, 1, 1000); return l }(), nil, lookAll, []string{"d1: 4, 1000"}},
		{"a lane's bytes are exceeded", func() *lanes { l := fullLanes(0, 0); take(l, 0, 1, 1500); return l }(), nil, lookAll, []string{"d1: 4, 1000"}},
		{"few bytes are left in all", func() *lanes { l := fullLanes(0, 0, 0); take(l, 0, 1, 3800); return l }(), nil, lookAll, []string{"d1: 4, 100", "d2: 4, 100"}},
		{
			"all bytes are used up: one delivery for those that have none",
			func() *lanes { l := fullLanes(0, 1, 0); take(l, 2, 2, 2500); return l }(), nil, lookAll, []string{"d0: 1, 1"},
		},
		{"an empty delivery has a slot too", func() *lanes { l := fullLanes(0); take(l, 0, 4, 0); return l }(), nil, lookAll, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, i := range tc.more {
				tc.lanes.all[i].more = true
			}
			same(t, "asked", tc.want, asked(tc.lanes.wants(tc.look, now)))
		})
	}
}

// What a claim brings is bounded however many destinations there are, and
// every one of them gets something.
func TestWantsAreSharedOut(t *testing.T) {
	for _, n := range []int{1, 3, 200, 499, 500, 501, 1000} {
		all, _ := many(n, "http://unused", concurrency(1000))
		l := newLanes(config(all...))
		wants := l.wants(lookAll, time.Now())
		if len(wants) != n {
			t.Errorf("%d lanes: %d are asked", n, len(wants))
		}
		deliveries, bytes := 0, int64(0)
		for _, w := range wants {
			if w.Most < 1 || w.MostBytes < 1 {
				t.Fatalf("%d lanes: %s gets %d deliveries, %d bytes", n, w.Destination, w.Most, w.MostBytes)
			}
			deliveries += w.Most
			bytes += w.MostBytes
		}
		if deliveries > max(claimBatch, n) || bytes > totalBytes {
			t.Errorf("%d lanes: %d deliveries and %d bytes are asked for", n, deliveries, bytes)
		}
	}
}

func TestWantCarriesTheConfiguration(t *testing.T) {
	since := time.Now()
	l := fullLanes(0)
	l.all[0].since, l.all[0].swept = since, since
	want := []store.Want{{
		Destination: event.DestinationRef{Endpoint: github, Name: "d0"}, Most: 4, Reserved: 2, MostBytes: 1000,
		Lease: time.Minute, MaxAttempts: 3, KeepLedger: 24 * time.Hour, Since: since,
	}}
	same(t, "wants", want, l.wants(lookAll, since))
}

func TestAdmitKnowsWhoHasMore(t *testing.T) {
	for _, tc := range []struct {
		name    string
		n, size int
		most    int
		bytes   int64
		more    bool
	}{
		{"nothing", 0, 0, 2, 1000, false},
		{"less than its share", 1, 10, 2, 1000, false},
		{"its share", 2, 10, 2, 1000, true},
		{"all slots", 4, 10, 4, 1000, true},
		{"all bytes of its share", 1, 100, 2, 100, true},
		{"more bytes than its share", 1, 150, 2, 100, true},
		{"all bytes of the lane", 2, 500, 4, 1500, true},
		{"all bytes there are", 3, 1400, 4, 5000, true},
		{"empty ones", 2, 0, 3, 1000, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := fullLanes(0)
			wants := l.wants(lookAll, time.Now())
			wants[0].Most, wants[0].Reserved, wants[0].MostBytes = tc.most, 0, tc.bytes
			l.admit(wants, claimed(l, 0, tc.n, tc.size, time.Now()), time.Now())
			n := l.all[0]
			same(t, "more", tc.more, n.more)
			same(t, "held", []int64{int64(tc.n), int64(tc.n * tc.size), int64(tc.n * tc.size)}, []int64{int64(n.inFlight), n.bytes, l.bytes})
			same(t, "asked again at once", tc.more && l.hasRoom(n), l.anyMore())
		})
	}
}

// Who was not asked for lack of room is asked when there is some.
func TestNobodyIsForgotten(t *testing.T) {
	l := fullLanes(4, 0)
	l.wants(lookMore, time.Now())
	same(t, "more, when it was not to be asked", false, l.all[0].more)
	wants := l.wants(lookAll, time.Now())
	same(t, "more", true, l.all[0].more)
	l.admit(wants, nil, time.Now())
	same(t, "more after others were asked", true, l.all[0].more)
	same(t, "somebody waits for the slot", true, l.release(l.all[0], 100, false))
	same(t, "asked", []string{"d0: 1, 700"}, asked(l.wants(lookMore, time.Now())))
	l.admit(l.wants(lookMore, time.Now()), nil, time.Now())
	same(t, "somebody waits for the next slot", false, l.release(l.all[0], 100, false))

	// And others wait for the bytes.
	l = fullLanes(0, 1)
	take(l, 0, 1, 4000)
	l.wants(lookAll, time.Now())
	same(t, "asked while the bytes are used up", []string{}, asked(l.wants(lookMore, time.Now())))
	l.all[0].more = false
	same(t, "somebody waits for the bytes", true, l.release(l.all[0], 4000, false))
	same(t, "asked", []string{"d1: 3, 900"}, asked(l.wants(lookMore, time.Now())))
}

// Replays have half of a lane's slots at most, and at least one; whoever waits
// for one of these is asked when it is free, and not before.
func TestReplaysLeaveSlotsFree(t *testing.T) {
	id := uuid.New()
	replayed := func(l *lanes, n int) []*store.Claim {
		claims := claimed(l, 0, n, 10, time.Now())
		for _, c := range claims {
			c.Replay = &id
		}
		return claims
	}
	l := fullLanes(0)
	wants := l.wants(lookAll, time.Now())
	same(t, "at first", []int{4, 2}, []int{wants[0].Most, wants[0].Reserved})
	l.admit(wants, replayed(l, 2), time.Now())
	same(t, "asked again at once", false, l.anyMore())
	same(t, "asked", []string{}, asked(l.wants(lookMore, time.Now())))
	wants = l.wants(lookAll, time.Now())
	same(t, "when replays have theirs", []int{2, 2}, []int{wants[0].Most, wants[0].Reserved})
	l.admit(wants, claimed(l, 0, 1, 10, time.Now()), time.Now())
	same(t, "asked again at once for replays", false, l.anyMore())
	same(t, "somebody waits for a slot", false, l.release(l.all[0], 10, false))
	same(t, "somebody waits for a replay's slot", true, l.release(l.all[0], 10, true))
	wants = l.wants(lookMore, time.Now())
	same(t, "then", []int{3, 2}, []int{wants[0].Most, wants[0].Reserved})
	l.admit(wants, nil, time.Now())
	same(t, "nobody waits", false, l.anyMore() || l.release(l.all[0], 10, true))

	l = fullLanes(0)
	l.all[0].destination.MaxConcurrency = 1
	same(t, "of one slot", 0, l.wants(lookAll, time.Now())[0].Reserved)
	l.totalBytes = 0
	same(t, "without bytes", []int{1, 0}, []int{l.wants(lookAll, time.Now())[0].Most, l.wants(lookAll, time.Now())[0].Reserved})
}

// Where to look for live events and for runs of replays are two questions.
func TestHintsOfReplays(t *testing.T) {
	start := time.Now()
	l := fullLanes(0)
	n := l.all[0]
	n.destination.MaxConcurrency = 1000
	claims := append(claimed(l, 0, 1, 1, start), claimed(l, 0, 1, 1, start.Add(-time.Hour))...)
	claims[1].Replay = &uuid.UUID{}
	l.admit(l.wants(lookAll, start), claims, start)
	want := l.wants(lookAll, start)[0]
	same(t, "since", start.Add(-5*time.Second), want.Since)
	same(t, "since, for replays", start.Add(-time.Hour-5*time.Second), want.SinceReplays)
	same(t, "since, of a sweep", time.Time{}, l.wants(lookAll, start.Add(time.Minute))[0].SinceReplays)
}

func TestHint(t *testing.T) {
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	l := fullLanes(0)
	n := l.all[0]
	n.destination.MaxConcurrency = 1000
	look := func(now time.Time) []store.Want { return l.wants(lookAll, now) }

	// The first look is from the beginning.
	wants := look(at(100))
	same(t, "since", time.Time{}, wants[0].Since)
	l.admit(wants, nil, at(100))
	same(t, "since, when nothing was found", time.Time{}, n.since)
	wants = look(at(100))
	l.admit(wants, claimed(l, 0, 1, 1, at(90)), at(100))
	same(t, "since", at(85), n.since)

	wants = look(at(101))
	same(t, "since of the next look", at(85), wants[0].Since)
	l.admit(wants, claimed(l, 0, 1, 1, at(95)), at(101))
	same(t, "since", at(90), n.since)
	l.admit(look(at(102)), claimed(l, 0, 1, 1, at(92)), at(102))
	same(t, "since does not go back", at(90), n.since)
	l.admit(look(at(103)), nil, at(103))
	same(t, "since stays when nothing was found", at(90), n.since)

	// A sweep is due some time after the last one, whether or not all lanes
	// are asked then.
	n.more = true
	same(t, "since before a sweep is due", at(90), l.wants(lookMore, at(109))[0].Since)
	same(t, "since of the sweep", time.Time{}, l.wants(lookMore, at(110))[0].Since)
	same(t, "since of the sweep, since the first one failed", time.Time{}, look(at(111))[0].Since)
	wants = look(at(112))
	l.admit(wants, claimed(l, 0, 1, 1, at(40)), at(112))
	same(t, "since after the sweep found something", at(35), n.since)
	same(t, "since of the look after the sweep", at(35), look(at(113))[0].Since)
	l.admit(look(at(113)), claimed(l, 0, 1, 1, at(112)), at(113))
	same(t, "since", at(107), n.since)
	l.admit(look(at(122)), nil, at(122))
	same(t, "since after a sweep that found nothing", at(107), n.since)
}

func TestLanesAreThoseOfTheConfiguration(t *testing.T) {
	c := config(destination("a", "http://unused"), destination("b", "http://unused"))
	c.Endpoints = append(c.Endpoints, pipeline.Endpoint{Namespace: "payments", Name: "stripe", Destinations: []pipeline.Destination{destination("a", "http://unused")}})
	var names []string
	for _, ref := range newLanes(c).refs() {
		names = append(names, ref.String())
	}
	if diff := cmp.Diff([]string{"payments/github/a", "payments/github/b", "payments/stripe/a"}, names); diff != "" {
		t.Error(diff)
	}
}
