package worker

import (
	"sync"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

const (
	// claimBatch bounds the deliveries of one claim over all lanes. Larger
	// statements gain nothing and hold more when a worker dies.
	claimBatch = 500
	// laneBytes bounds the bodies that one lane holds in memory. The last
	// one that it takes may exceed it, as with totalBytes.
	laneBytes = 16 << 20
	// totalBytes is from where on a lane holds one delivery at a time, so
	// that many hanging destinations cannot exhaust the memory, and none of
	// them can starve another.
	totalBytes = 128 << 20
	// hintMargin is by how much the look for due deliveries reaches behind
	// the last one seen, for transactions that commit late. What comes even
	// later is found by a sweep.
	hintMargin = 5 * time.Second
	// sweepInterval is how often a lane is asked for due deliveries from the
	// beginning of time rather than from where it last had some.
	sweepInterval = 10 * time.Second
)

// lane is one destination's share of a worker.
type lane struct {
	ref         event.DestinationRef
	destination *pipeline.Destination
	endpoint    *pipeline.Endpoint
	sender      Sender
	metrics     laneMetrics

	// Below: guarded by lanes.mu.

	inFlight int
	bytes    int64
	// replays are those in flight that a replay has started.
	replays int
	// more: the last claim took all that it might, or the lane had no room
	// when all were asked, so more may be due.
	more bool
	// moreReplays: the last claim took as many runs of replays as it might,
	// so more may be due.
	moreReplays bool
	// since is where the next look starts.
	since time.Time
	// sinceReplays is the same for runs of replays.
	sinceReplays time.Time
	// swept is when a look last started at the beginning of time.
	swept time.Time
}

// lanes hands out the slots of all destinations.
type lanes struct {
	laneBytes, totalBytes int64
	sweepInterval         time.Duration

	mu    sync.Mutex
	all   []*lane
	byRef map[event.DestinationRef]*lane
	bytes int64
}

func newLanes(c *pipeline.Config) *lanes {
	l := &lanes{
		laneBytes: laneBytes, totalBytes: totalBytes, sweepInterval: sweepInterval,
		byRef: map[event.DestinationRef]*lane{},
	}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		for j := range e.Destinations {
			d := &e.Destinations[j]
			n := &lane{ref: event.DestinationRef{Endpoint: e.Ref(), Name: d.Name}, destination: d, endpoint: e}
			l.all = append(l.all, n)
			l.byRef[n.ref] = n
		}
	}
	return l
}

// refs returns the destinations of all lanes.
func (l *lanes) refs() []event.DestinationRef {
	refs := make([]event.DestinationRef, len(l.all))
	for i, n := range l.all {
		refs[i] = n.ref
	}
	return refs
}

// look says how far a search for work reaches.
type look int

const (
	// lookMore asks only lanes that may have more.
	lookMore look = iota
	// lookAll asks every lane with a free slot.
	lookAll
)

// wants says what the lanes with free slots would take. A claim's deliveries
// and bytes are shared out evenly among the lanes that are asked; those that
// get their whole share are asked again at once.
func (l *lanes) wants(how look, now time.Time) []store.Want {
	l.mu.Lock()
	defer l.mu.Unlock()
	var asked []*lane
	for _, n := range l.all {
		switch {
		case !n.endpoint.Suspend.Delivers():
			// Nobody asks for it, so what is due waits where it is.
		case !l.hasRoom(n):
			// What it was to be asked for must not be forgotten.
			n.more = n.more || how == lookAll
		case n.more || n.moreReplays && n.roomForReplays() > 0 || how == lookAll:
			asked = append(asked, n)
		}
	}
	wants := make([]store.Want, len(asked))
	share := max(1, claimBatch/max(1, len(asked)))
	bytes := max(1, (l.totalBytes-l.bytes)/int64(max(1, len(asked))))
	for i, n := range asked {
		wants[i] = n.want(share, min(bytes, l.laneBytes-n.bytes))
		if l.bytes >= l.totalBytes {
			wants[i].Most, wants[i].Reserved = 1, max(1-n.roomForReplays(), 0)
		}
		if now.Sub(n.swept) >= l.sweepInterval {
			wants[i].Since, wants[i].SinceReplays = time.Time{}, time.Time{}
		}
	}
	return wants
}

// hasRoom reports whether a lane may take a delivery more.
func (l *lanes) hasRoom(n *lane) bool {
	if n.inFlight == 0 {
		return true
	}
	return n.inFlight < n.destination.MaxConcurrency && n.bytes < l.laneBytes && l.bytes < l.totalBytes
}

// roomForReplays is how many runs of replays a lane may take more: together
// they have half of its slots, so that what comes in finds a free one however
// slow the handler is. They need not be as many.
func (n *lane) roomForReplays() int {
	return max((n.destination.MaxConcurrency+1)/2-n.replays, 0)
}

func (n *lane) want(share int, bytes int64) store.Want {
	most := min(n.destination.MaxConcurrency-n.inFlight, share)
	return store.Want{
		Destination:  n.ref,
		Most:         most,
		Reserved:     max(most-n.roomForReplays(), 0),
		MostBytes:    bytes,
		Lease:        n.endpoint.Lease(),
		MaxAttempts:  n.destination.Retry.MaxAttempts,
		KeepLedger:   n.endpoint.Retention.Ledger(),
		Since:        n.since,
		SinceReplays: n.sinceReplays,
	}
}

// admit takes slots for what a claim returned that was made at a time.
func (l *lanes) admit(wants []store.Want, claims []*store.Claim, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	type share struct {
		live, replays     int
		bytes             int64
		seen, seenReplays time.Time
	}
	got := make(map[*lane]share, len(wants))
	for _, c := range claims {
		n := l.byRef[c.Token.Delivery.Destination]
		size := int64(len(c.Event.Body))
		g := got[n]
		g.bytes += size
		n.inFlight++
		if c.Replay == nil {
			g.live++
			g.seen = c.Seen
		} else {
			g.replays++
			g.seenReplays = c.Seen
			n.replays++
		}
		got[n] = g
		n.bytes += size
		l.bytes += size
	}
	for i := range wants {
		w := &wants[i]
		n := l.byRef[w.Destination]
		g := got[n]
		n.more = g.live+g.replays > 0 && (g.live+g.replays >= w.Most || g.bytes >= w.MostBytes || !l.hasRoom(n))
		// Where there was no room for them, some may wait unseen.
		n.moreReplays = g.replays >= w.Most-w.Reserved
		swept := w.Since.IsZero()
		if swept {
			n.swept = at
		}
		n.since = hint(n.since, g.seen, g.live, swept)
		n.sinceReplays = hint(n.sinceReplays, g.seenReplays, g.replays, swept)
	}
}

// hint returns where the next look for due deliveries starts, after one that
// found n, the last of them due at a time. A sweep that found something may
// have left more that is as old: the next look goes on from there, even if
// that is a step back.
func hint(since, seen time.Time, n int, swept bool) time.Time {
	if next := seen.Add(-hintMargin); n > 0 && (swept || next.After(since)) {
		return next
	}
	return since
}

// anyMore reports whether a lane with a free slot may have more.
func (l *lanes) anyMore() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.all {
		if (n.more || n.moreReplays && n.roomForReplays() > 0) && l.hasRoom(n) {
			return true
		}
	}
	return false
}

// release gives a slot back and reports whether somebody waits for it.
func (l *lanes) release(n *lane, size int64, replayed bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.bytes >= l.totalBytes
	n.inFlight--
	n.bytes -= size
	l.bytes -= size
	if replayed {
		n.replays--
	}
	return n.more || n.moreReplays && replayed || full && l.bytes < l.totalBytes
}
