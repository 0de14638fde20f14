package invariant

import (
	"context"
	"slices"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
)

// The invariants, as docs/architecture.md numbers them.
const (
	I1  = "I1"  // a 2xx means that the event and its deliveries are committed
	I2  = "I2"  // one event per idempotency key
	I3  = "I3"  // every delivery becomes done or dead, once
	I4  = "I4"  // at least once, and the ledger comes first
	I5  = "I5"  // only the current attempt has effect
	I6  = "I6"  // ordered destinations; there are none yet
	I7  = "I7"  // attempts are bounded, and the time of the next one is sane
	I8  = "I8"  // a replay happens once and starts new runs beside the old ones
	I9  = "I9"  // the database compares times
	I10 = "I10" // no change of an object drops accepted events
	I11 = "I11" // body bytes out are body bytes in
	I12 = "I12" // nothing is accepted by default
)

var all = []string{I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12}

// Expect says what holds beside the data.
type Expect struct {
	// Config has every endpoint that there was, as it is at the end. Leases, retention and limits come from here (of what
	// changed meanwhile it takes the most generous), and which destinations every event of an endpoint is owed to.
	Config *pipeline.Config
	// Later are destinations that were added after the first event: nothing is owed to them but what was started.
	Later []event.DestinationRef
	// Gone are endpoints of Config that were deleted. What they took is still there.
	Gone []event.EndpointRef
	// Drained: no delivery may be left open, but those of endpoints that are suspended or gone.
	Drained bool
	// Slack is how long a delivery may stay without an owner beyond its lease: a sweep of the workers, and all the time
	// in which nobody could claim. 15 s if zero.
	Slack time.Duration
	// Since is the database's clock when the test began (see Clock); nothing may be older. Zero: not judged.
	Since time.Time
	// Skew is by how much clocks may be apart or have jumped: the database's, and those that the history was written by.
	// 2 ms if zero, which is good for processes of one machine.
	Skew time.Duration
	// LossAnnounced: acknowledged events may be missing, since a standby was promoted that was not in sync. They, and
	// what destinations got that the database forgot, are counted and no violations.
	LossAnnounced bool
	// SendersUnknown and DestinationsUnknown: the history does not have them, so nothing is compared with it.
	SendersUnknown, DestinationsUnknown bool
}

const (
	defaultSlack = 15 * time.Second
	defaultSkew  = 2 * time.Millisecond
)

// Check reads the database, in one snapshot, and compares all sources. The error says that this was not possible;
// violations are in the verdict. Senders must have stopped; workers may go on.
func Check(ctx context.Context, databaseURL string, h *History, e Expect) (*Verdict, error) {
	d, err := load(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	d.sends, d.receipts, d.notes = h.contents()
	return judge(d, e), nil
}

// checker judges facts by one rule after the other.
type checker struct {
	*facts
	expect       Expect
	endpoints    map[event.EndpointRef]*pipeline.Endpoint
	destinations map[event.DestinationRef]*pipeline.Destination
	verdict      *Verdict
}

func judge(d *data, e Expect) *Verdict {
	if e.Slack == 0 {
		e.Slack = defaultSlack
	}
	if e.Skew == 0 {
		e.Skew = defaultSkew
	}
	// What came after the snapshot is not in it.
	d.receipts = slices.DeleteFunc(d.receipts, func(r Receipt) bool { return r.At.After(d.now.Add(e.Skew)) })
	c := &checker{
		facts: arrange(d), expect: e, verdict: &Verdict{Checked: map[string]int{}, Deliveries: map[event.State]int{}},
		endpoints: map[event.EndpointRef]*pipeline.Endpoint{}, destinations: map[event.DestinationRef]*pipeline.Destination{},
	}
	if e.Config != nil {
		for i := range e.Config.Endpoints {
			endpoint := &e.Config.Endpoints[i]
			c.endpoints[endpoint.Ref()] = endpoint
			for j := range endpoint.Destinations {
				d := &endpoint.Destinations[j]
				c.destinations[event.DestinationRef{Endpoint: endpoint.Ref(), Name: d.Name}] = d
			}
		}
	}
	c.count()
	for _, rule := range []func(){
		c.answers, c.owed, c.keys, c.places, c.ownerless, c.receiptsInLedger, c.duplicates, c.ledgerComplete, c.fence,
		c.limits, c.runsConsecutive, c.replaysOnce, c.clock, c.bodies, c.forgeries,
	} {
		rule()
	}
	c.addTimelines()
	return c.verdict
}

// checked counts a fact that an invariant was compared with.
func (c *checker) checked(invariant string) { c.verdict.Checked[invariant]++ }

// resting reports whether an endpoint's deliveries wait for somebody: it is suspended or gone.
func (c *checker) resting(ref event.EndpointRef) bool {
	endpoint := c.endpoints[ref]
	return endpoint != nil && !endpoint.Suspend.Delivers() || slices.Contains(c.expect.Gone, ref)
}

// expired reports whether what arose at a time may have been removed by now, by the endpoint's retention.
func (c *checker) expired(ref event.EndpointRef, at time.Time) bool {
	endpoint := c.endpoints[ref]
	if endpoint == nil {
		return false
	}
	keep := min(endpoint.Retention.Events(), endpoint.Retention.DeadLetters())
	return keep > 0 && c.now.Sub(at) > keep
}

// violated adds a violation.
func (c *checker) violated(invariant string, v Violation) {
	v.Invariant = invariant
	c.verdict.Violations = append(c.verdict.Violations, v)
}

// of is the start of a violation by a run.
func of(r *run) Violation {
	return Violation{EventID: r.key.Event.String(), Delivery: r.key.String(), endpoint: r.key.Destination.Endpoint}
}

// ofEvent is the start of a violation by an event.
func ofEvent(e *stored) Violation {
	return Violation{EventID: e.id.String(), Key: e.key, endpoint: e.endpoint}
}

// ofSend is the start of a violation by a request.
func ofSend(s *Send) Violation {
	return Violation{EventID: s.EventID, Key: s.Key, endpoint: event.EndpointRef{Namespace: s.Namespace, Name: s.Endpoint}}
}
