package invariant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ackrail/ackrail/internal/event"
)

// Verdict is what Check found.
type Verdict struct {
	Violations []Violation
	// Checked counts by invariant the facts that it was compared with; none is no proof.
	Checked map[string]int

	// Sends are all requests of senders: acknowledged with 2xx, refused, or unanswered, whose outcome is unknown to them.
	Sends, Acknowledged, Refused, Unanswered int
	// Lost are acknowledged events that are not there after a loss that was announced, and Forgotten what destinations got
	// that the database does not know any more.
	Lost, Forgotten int
	Events          int
	// Deliveries are all runs, by state.
	Deliveries map[event.State]int
	// Attempts are those in the ledger: of them Released were handed back unsent, and nobody saw how Unknown ended.
	Attempts, Released, Unknown int
	// Receipts are what destinations got: of them Duplicates came after a success of the same run, and the ledger explains
	// all but Unexplained.
	Receipts, Duplicates, Unexplained int
	// LongestGap is the longest that it took from the beginning of an attempt with unknown outcome until the delivery was
	// taken up again.
	LongestGap time.Duration
}

// Violation is one fact that breaks an invariant.
type Violation struct {
	Invariant string
	// What it is about, as far as it is known. Delivery is "event/destination/run".
	EventID, Key, Delivery, Replay string
	Expected, Found                string
	// Timeline is the event's life as all sources tell it, with what was done to the system meanwhile. Only violations that
	// the report shows have one, and of several about one event the first.
	Timeline []string

	endpoint event.EndpointRef
}

// say completes a violation.
func (v Violation) say(expected, found string, args ...any) Violation {
	v.Expected, v.Found = expected, fmt.Sprintf(found, args...)
	return v
}

func (v *Violation) compare(other *Violation) int {
	position := func(v *Violation) int { return slices.Index(all, v.Invariant) }
	return cmp.Or(cmp.Compare(position(v), position(other)), cmp.Compare(v.EventID, other.EventID), cmp.Compare(v.Key, other.Key),
		cmp.Compare(v.Delivery, other.Delivery), cmp.Compare(v.Expected, other.Expected), cmp.Compare(v.Found, other.Found))
}

// Broken returns the invariants that are violated, in their order.
func (v *Verdict) Broken() []string {
	var broken []string
	for _, i := range all {
		if v.violations(i) > 0 {
			broken = append(broken, i)
		}
	}
	return broken
}

func (v *Verdict) violations(invariant string) int {
	n := 0
	for i := range v.Violations {
		if v.Violations[i].Invariant == invariant {
			n++
		}
	}
	return n
}

// Err returns the report as an error, nil if nothing is violated.
func (v *Verdict) Err() error {
	if len(v.Violations) == 0 {
		return nil
	}
	return errors.New(v.String())
}

// shown bounds how many violations of an invariant are described; the others are counted.
const shown = 5

// String returns the report.
func (v *Verdict) String() string {
	var b strings.Builder
	if broken := v.Broken(); len(broken) == 0 {
		b.WriteString("no invariant is violated\n")
	} else {
		fmt.Fprintf(&b, "violated: %s\n", strings.Join(broken, ", "))
	}
	v.writeCounts(&b)
	for _, i := range all {
		v.writeInvariant(&b, i)
	}
	described, told := map[string]int{}, map[string]bool{}
	for i := range v.Violations {
		violation := &v.Violations[i]
		if described[violation.Invariant]++; described[violation.Invariant] > shown {
			continue
		}
		violation.write(&b)
		if told[violation.EventID] && violation.Timeline == nil {
			b.WriteString("  the event's timeline stands above\n")
		}
		told[violation.EventID] = violation.EventID != ""
	}
	for _, i := range all {
		if more := described[i] - shown; more > 0 {
			fmt.Fprintf(&b, "\n%s … and %d more\n", i, more)
		}
	}
	return b.String()
}

func (v *Verdict) writeCounts(b *strings.Builder) {
	fmt.Fprintf(b, "sends: %d (%d acknowledged, %d refused, %d unanswered)\n", v.Sends, v.Acknowledged, v.Refused, v.Unanswered)
	fmt.Fprintf(b, "events: %d\n", v.Events)
	var states []string
	for _, s := range []event.State{event.StatePending, event.StateClaimed, event.StateFailed, event.StateDone, event.StateDead} {
		if n := v.Deliveries[s]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, s))
		}
	}
	fmt.Fprintf(b, "deliveries: %s\n", cmp.Or(strings.Join(states, ", "), "none"))
	fmt.Fprintf(b, "attempts: %d (%d released, %d with unknown outcome)\n", v.Attempts, v.Released, v.Unknown)
	fmt.Fprintf(b, "receipts: %d (%d duplicates, %d of them unexplained)\n", v.Receipts, v.Duplicates, v.Unexplained)
	if v.Lost+v.Forgotten > 0 {
		fmt.Fprintf(b, "announced loss: %d acknowledged events, %d receipts\n", v.Lost, v.Forgotten)
	}
	if v.LongestGap > 0 {
		fmt.Fprintf(b, "longest without an owner: %s\n", v.LongestGap.Round(time.Millisecond))
	}
}

func (v *Verdict) writeInvariant(b *strings.Builder, invariant string) {
	fmt.Fprintf(b, "%-4s", invariant)
	switch n := v.violations(invariant); {
	case invariant == I6:
		b.WriteString("not applicable: there are no ordered destinations\n")
	case n > 0:
		fmt.Fprintf(b, "VIOLATED, %d times, %d facts compared\n", n, v.Checked[invariant])
	case v.Checked[invariant] == 0:
		b.WriteString("nothing to compare\n")
	default:
		fmt.Fprintf(b, "held, %d facts compared\n", v.Checked[invariant])
	}
}

func (v *Violation) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s", v.Invariant)
	for _, part := range []struct{ name, value string }{
		{"event", v.EventID}, {"key", v.Key}, {"delivery", v.Delivery}, {"replay", v.Replay},
	} {
		if part.value != "" {
			fmt.Fprintf(b, " %s %s", part.name, part.value)
		}
	}
	fmt.Fprintf(b, "\n  expected: %s\n  found:    %s\n", v.Expected, v.Found)
	for _, line := range v.Timeline {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// count fills in what needs no judgement.
func (c *checker) count() {
	v := c.verdict
	v.Sends, v.Receipts, v.Events, v.Attempts = len(c.sends), len(c.receipts), len(c.events), len(c.attempts)
	for i := range c.sends {
		switch s := &c.sends[i]; {
		case s.Status == 0:
			v.Unanswered++
		case s.acknowledged():
			v.Acknowledged++
		default:
			v.Refused++
		}
	}
	for _, o := range c.open {
		v.Deliveries[event.State(o.state)]++
	}
	for _, e := range c.ended {
		v.Deliveries[e.state]++
	}
	for _, r := range c.runs {
		v.Released += r.releases()
		for _, t := range r.tries {
			if t.unknown() {
				v.Unknown++
			}
		}
	}
}
