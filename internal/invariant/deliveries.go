package invariant

import (
	"fmt"
	"slices"
	"time"

	"github.com/ackrail/ackrail/internal/event"
)

// places judges that each run is in one place, and once all is drained in one that is terminal (I3).
func (c *checker) places() {
	for _, r := range c.runs {
		if !r.known() {
			continue
		}
		c.checked(I3)
		switch places := len(r.open) + len(r.ended); {
		case places > 1:
			c.violated(I3, of(r).say("one state", "%s", r.states()))
		case places == 0 && !c.expired(r.key.Destination.Endpoint, r.tries[0].started):
			c.violated(c.vanished(r), of(r).say("open, done or dead", "in the ledger only"))
		case c.expect.Drained && len(r.open) > 0 && !c.resting(r.key.Destination.Endpoint):
			c.violated(I3, of(r).say("done or dead", "%s", r.states()))
		}
	}
}

func (c *checker) vanished(r *run) string {
	if c.resting(r.key.Destination.Endpoint) {
		return I10
	}
	return I3
}

// states tells where a run is.
func (r *run) states() string {
	var text string
	for _, o := range r.open {
		text += fmt.Sprintf(", %s with attempt %d", o.state, o.Attempt)
	}
	for _, e := range r.ended {
		text += fmt.Sprintf(", %s with attempt %d", e.state, e.Attempt)
	}
	if text == "" {
		return "nowhere"
	}
	return text[2:]
}

// ownerless judges how soon somebody took over what its owner did not finish (I3).
func (c *checker) ownerless() {
	for _, r := range c.runs {
		endpoint, destination := c.endpoints[r.key.Destination.Endpoint], c.destinations[r.key.Destination]
		if destination == nil || c.resting(r.key.Destination.Endpoint) {
			continue
		}
		// A lease is renewed as long as the exchange goes on.
		bound := endpoint.Lease() + destination.HTTP.Timeout() + c.expect.Slack
		for i, t := range r.tries {
			next, ok := r.after(i)
			if !t.unknown() || !ok {
				continue
			}
			c.checked(I3)
			gap := next.Sub(t.started)
			c.verdict.LongestGap = max(c.verdict.LongestGap, gap)
			if gap > bound {
				c.violated(I3, of(r).say(fmt.Sprintf("attempt %d to be followed within %s", t.Attempt, bound), "%s", gap))
			}
		}
	}
}

// after returns when the delivery was next taken after its try at a position.
func (r *run) after(i int) (time.Time, bool) {
	if i+1 < len(r.tries) {
		return r.tries[i+1].started, true
	}
	if len(r.ended) > 0 {
		return r.ended[0].at, true
	}
	return time.Time{}, false
}

// fence judges that only the current attempt had effect (I5).
func (c *checker) fence() {
	for _, r := range c.runs {
		for i, t := range r.tries {
			c.checked(I5)
			c.fenceTry(r, i, t)
		}
		if len(r.ended) > 1 {
			c.violated(I5, of(r).say("one end", "%s", r.states()))
		}
		if len(r.tries) == 0 {
			continue
		}
		last := r.tries[len(r.tries)-1].Attempt
		for _, e := range r.ended {
			if e.Attempt < last {
				c.violated(I5, of(r).say(fmt.Sprintf("the end with the last attempt, %d", last), "%s with attempt %d, which had lost its claim", e.state, e.Attempt))
			}
		}
		for _, o := range r.open {
			if o.Attempt < last {
				c.violated(I5, of(r).say(fmt.Sprintf("the state of the last attempt, %d", last), "%s with attempt %d", o.state, o.Attempt))
			}
		}
	}
}

func (c *checker) fenceTry(r *run, i int, t *try) {
	ends := len(t.outcomes)
	if t.settled {
		ends++
	}
	if ends > 1 {
		c.violated(I5, of(r).say(fmt.Sprintf("one outcome of attempt %d", t.Attempt), "%d", ends))
	}
	if i+1 == len(r.tries) {
		return
	}
	next := r.tries[i+1]
	if next.Attempt == t.Attempt {
		c.violated(I5, of(r).say(fmt.Sprintf("attempt %d once", t.Attempt), "started %s apart by %s and %s", next.started.Sub(t.started), t.worker, next.worker))
	}
	for _, o := range t.outcomes {
		switch {
		case o.ended.After(next.started.Add(c.expect.Skew)):
			c.violated(I5, of(r).say(fmt.Sprintf("no effect of attempt %d once attempt %d had begun", t.Attempt, next.Attempt),
				"%s recorded %s later", o.verdict, o.ended.Sub(next.started)))
		case o.verdict == event.VerdictDead:
			c.violated(I5, of(r).say(fmt.Sprintf("no attempt after the end with attempt %d", t.Attempt), "attempt %d", next.Attempt))
		}
	}
}

// limits judges how often was tried, and when it will be again (I7).
func (c *checker) limits() {
	for _, r := range c.runs {
		destination := c.destinations[r.key.Destination]
		if destination == nil {
			continue
		}
		counted := slices.DeleteFunc(slices.Clone(r.tries), (*try).released)
		c.checked(I7)
		if most := destination.Retry.MaxAttempts; len(counted) > most {
			c.violated(I7, of(r).say(fmt.Sprintf("at most %d attempts", most), "%d", len(counted)))
		}
		for i := range r.open {
			c.checked(I7)
			c.nextAttempt(r, &r.open[i])
		}
	}
}

func (c *checker) nextAttempt(r *run, o *openRow) {
	endpoint, destination := c.endpoints[r.key.Destination.Endpoint], c.destinations[r.key.Destination]
	var wait time.Duration
	switch event.State(o.state) {
	case event.StateClaimed:
		wait = endpoint.Lease()
	case event.StateFailed:
		wait = destination.Retry.MaxBackoff()
	}
	t := r.try(o.Attempt)
	switch {
	case o.next == nil:
		c.violated(I7, of(r).say("a time for the next attempt", "none, or an infinite one"))
	case o.next.After(c.now.Add(wait + c.expect.Skew)):
		c.violated(I7, of(r).say(fmt.Sprintf("the next attempt within %s while %s", wait, o.state), "in %s", o.next.Sub(c.now)))
	case o.state == string(event.StateFailed) && t != nil && len(t.outcomes) > 0 && o.next.Before(t.outcomes[0].ended.Add(-c.expect.Skew)):
		c.violated(I7, of(r).say(fmt.Sprintf("the next attempt after attempt %d failed", o.Attempt), "%s before", t.outcomes[0].ended.Sub(*o.next)))
	}
}
