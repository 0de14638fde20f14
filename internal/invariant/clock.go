package invariant

import (
	"fmt"
	"time"
)

// moment is a time that the database wrote.
type moment struct {
	at   time.Time
	what string
}

// clock judges that all times are the database's (I9): none before the test or after now, and each after what led to it.
func (c *checker) clock() {
	for i := range c.events {
		e := &c.events[i]
		c.inBounds(ofEvent(e), moment{e.received, "accepted"})
		if e.expires.Before(e.received) {
			c.violated(I9, ofEvent(e).say("an event that expires after it was accepted", "%s before", e.received.Sub(e.expires)))
		}
	}
	for p, runs := range c.pairs {
		var life []moment
		if e := c.stored[p.event]; e != nil {
			life = append(life, moment{e.received, "accepted"})
		}
		for _, r := range runs {
			life = c.life(r, life)
		}
	}
	for id, r := range c.replays {
		v := Violation{Replay: r.name}
		c.inBounds(v, moment{r.planned, "replay planned"})
		if r.completed != nil {
			c.inBounds(v, moment{*r.completed, "replay completed"})
			if r.completed.Before(r.planned.Add(-c.expect.Skew)) {
				c.violated(I9, v.say("a replay that is complete after it was planned", "%s before (%s)", r.planned.Sub(*r.completed), id))
			}
		}
	}
}

// life judges a run that follows a moment, and returns with what the next run follows.
func (c *checker) life(r *run, before []moment) []moment {
	step := func(m moment) {
		c.inBounds(of(r), m)
		if len(before) > 0 {
			if last := before[0]; m.at.Before(last.at.Add(-c.expect.Skew)) {
				c.violated(I9, of(r).say(fmt.Sprintf("run %d: %s after %s", r.key.Run, m.what, last.what), "%s before", last.at.Sub(m.at)))
			}
		}
		before = []moment{m}
	}
	for _, t := range r.tries {
		step(moment{t.started, fmt.Sprintf("attempt %d begun", t.Attempt)})
		for _, o := range t.outcomes {
			step(moment{o.ended, fmt.Sprintf("attempt %d ended", t.Attempt)})
		}
	}
	for _, e := range r.ended {
		step(moment{e.at, string(e.state)})
	}
	return before
}

func (c *checker) inBounds(v Violation, m moment) {
	c.checked(I9)
	switch since := c.expect.Since; {
	case !since.IsZero() && m.at.Before(since.Add(-c.expect.Skew)):
		c.violated(I9, v.say(m.what+" after the test began", "%s before", since.Sub(m.at)))
	case m.at.After(c.now.Add(c.expect.Skew)):
		c.violated(I9, v.say(m.what+" by now, as the database's clock says", "in %s", m.at.Sub(c.now)))
	}
}
