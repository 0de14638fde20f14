package invariant

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
)

// name is what a sender calls an event.
type name struct {
	endpoint event.EndpointRef
	key      string
}

// pair is an event owed to a destination, whatever the run.
type pair struct {
	event       event.ID
	destination event.DestinationRef
}

// run is everything about one run of a delivery, in the order of attempts or of time.
type run struct {
	key      event.DeliveryKey
	open     []openRow
	ended    []endedRow
	tries    []*try
	receipts []*Receipt
	// orphans are outcomes of attempts that are not in the ledger.
	orphans []outcomeRow
}

// try is an attempt in the ledger with its outcomes, of which there should be one at most.
type try struct {
	attemptRow
	// number is what the request says: attempts that were released before do not count.
	number   int
	outcomes []outcomeRow
	// settled: the run is done with this attempt.
	settled bool
	// running: its claim holds.
	running bool
}

func (t *try) released() bool {
	return slices.ContainsFunc(t.outcomes, func(o outcomeRow) bool { return o.verdict == event.VerdictReleased })
}

// unknown reports whether nobody saw how the attempt ended.
func (t *try) unknown() bool { return len(t.outcomes) == 0 && !t.settled && !t.running }

// answerless reports whether the ledger admits that the destination may have got the request and the worker no answer.
func (t *try) answerless() bool {
	return t.unknown() || t.running || len(t.outcomes) > 0 && t.outcomes[0].verdict == event.VerdictFailed && t.outcomes[0].status == 0 ||
		len(t.outcomes) > 0 && t.outcomes[0].verdict == event.VerdictDead && t.outcomes[0].status == 0
}

// facts are the data by what they are about.
type facts struct {
	*data
	stored map[event.ID]*stored
	byName map[name][]*stored
	sent   map[name][]*Send
	// acknowledged are the names that senders were told of an event.
	acknowledged map[event.ID][]*Send
	runs         map[event.DeliveryKey]*run
	pairs        map[pair][]*run // by run
	queued       map[item]itemRow
	// strays are receipts of what is no event's id.
	strays []*Receipt
}

// item is what a replay may take once.
type item struct {
	replay uuid.UUID
	pair   pair
}

func arrange(d *data) *facts {
	f := &facts{
		data: d, stored: map[event.ID]*stored{}, byName: map[name][]*stored{}, sent: map[name][]*Send{},
		acknowledged: map[event.ID][]*Send{}, runs: map[event.DeliveryKey]*run{}, pairs: map[pair][]*run{}, queued: map[item]itemRow{},
	}
	slices.SortFunc(d.events, func(a, b stored) int { return cmp.Or(a.received.Compare(b.received), slices.Compare(a.id[:], b.id[:])) })
	for i := range d.events {
		e := &d.events[i]
		f.stored[e.id] = e
		n := name{e.endpoint, e.key}
		f.byName[n] = append(f.byName[n], e)
	}
	for i := range d.sends {
		s := &d.sends[i]
		n := name{event.EndpointRef{Namespace: s.Namespace, Name: s.Endpoint}, s.Key}
		f.sent[n] = append(f.sent[n], s)
		if id, err := uuid.Parse(s.EventID); err == nil && s.acknowledged() {
			f.acknowledged[id] = append(f.acknowledged[id], s)
		}
	}
	f.arrangeRuns()
	f.arrangeReceipts()
	f.arrangePairs()
	for _, i := range d.items {
		if i.state == "queued" {
			f.queued[item{i.replay, pair{i.event, d.destinations[i.destination]}}] = i
		}
	}
	return f
}

func (f *facts) run(key event.DeliveryKey) *run {
	r := f.runs[key]
	if r == nil {
		r = &run{key: key}
		f.runs[key] = r
	}
	return r
}

func (f *facts) runOf(r row) *run {
	return f.run(event.DeliveryKey{Event: r.Event, Destination: f.destinations[r.Destination], Run: r.Run})
}

func (f *facts) arrangeRuns() {
	for _, o := range f.open {
		r := f.runOf(o.row)
		r.open = append(r.open, o)
	}
	for _, e := range f.ended {
		r := f.runOf(e.row)
		r.ended = append(r.ended, e)
	}
	slices.SortFunc(f.attempts, func(a, b attemptRow) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), a.started.Compare(b.started))
	})
	for _, a := range f.attempts {
		r := f.runOf(a.row)
		r.tries = append(r.tries, &try{attemptRow: a})
	}
	slices.SortFunc(f.outcomes, func(a, b outcomeRow) int { return a.ended.Compare(b.ended) })
	for _, o := range f.outcomes {
		r := f.runOf(o.row)
		if t := r.try(o.Attempt); t != nil {
			t.outcomes = append(t.outcomes, o)
		} else {
			r.orphans = append(r.orphans, o)
		}
	}
	for _, r := range f.runs {
		r.number()
	}
}

// try returns an attempt, nil if the ledger does not have it.
func (r *run) try(attempt int) *try {
	i := slices.IndexFunc(r.tries, func(t *try) bool { return t.Attempt == attempt })
	if i < 0 {
		return nil
	}
	return r.tries[i]
}

// number gives tries the numbers that their requests carry, and finds out how they ended.
func (r *run) number() {
	// unsent: claims that found no attempt left are neither in the ledger nor do they count. They are where it has holes.
	released, unsent := 0, r.uncounted()-r.releases()
	last := 0
	for _, t := range r.tries {
		holes := min(max(t.Attempt-last-1, 0), max(unsent, 0))
		released, unsent, last = released+holes, unsent-holes, t.Attempt
		t.number = t.Attempt - released
		if t.released() {
			released++
		}
		t.settled = slices.ContainsFunc(r.ended, func(e endedRow) bool { return e.state == event.StateDone && e.Attempt == t.Attempt })
		t.running = slices.ContainsFunc(r.open, func(o openRow) bool { return o.state == string(event.StateClaimed) && o.Attempt == t.Attempt })
	}
}

// uncounted is how many claims the delivery says do not count.
func (r *run) uncounted() int {
	for _, o := range r.open {
		return o.released
	}
	for _, e := range r.ended {
		return e.Attempt - e.attempts
	}
	return 0
}

// numbered returns the attempt whose request carries a number. One that was released was not sent, so it is the last
// choice.
func (r *run) numbered(number int) *try {
	var found *try
	for _, t := range r.tries {
		if t.number == number && (found == nil || found.released()) {
			found = t
		}
	}
	return found
}

func (f *facts) arrangeReceipts() {
	for i := range f.receipts {
		c := &f.receipts[i]
		id, err := uuid.Parse(c.EventID)
		if err != nil {
			f.strays = append(f.strays, c)
			continue
		}
		to := event.DestinationRef{Endpoint: event.EndpointRef{Namespace: c.Namespace, Name: c.Endpoint}, Name: c.Destination}
		r := f.run(event.DeliveryKey{Event: id, Destination: to, Run: c.Run})
		r.receipts = append(r.receipts, c)
	}
}

func (f *facts) arrangePairs() {
	for key, r := range f.runs {
		p := pair{key.Event, key.Destination}
		f.pairs[p] = append(f.pairs[p], r)
	}
	for _, runs := range f.pairs {
		slices.SortFunc(runs, func(a, b *run) int { return cmp.Compare(a.key.Run, b.key.Run) })
	}
}

// known reports whether the database has the run: a destination may claim to have got what there is not.
func (r *run) known() bool { return len(r.open)+len(r.ended)+len(r.tries) > 0 }

// replay returns which replay started the run.
func (r *run) replay() *uuid.UUID {
	for _, o := range r.open {
		return o.replay
	}
	for _, e := range r.ended {
		return e.replay
	}
	return nil
}
