package invariant

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
)

// runsConsecutive judges that each run follows the end of the one before, which stays (I8).
func (c *checker) runsConsecutive() {
	for p, runs := range c.pairs {
		var before *run
		for _, r := range runs {
			if !r.known() {
				continue
			}
			c.checked(I8)
			c.follows(before, r)
			before = r
		}
		if before != nil {
			c.oncePerReplay(p, runs)
		}
	}
}

func (c *checker) follows(before, r *run) {
	earlier := 0
	if before != nil {
		earlier = before.key.Run
	}
	if r.key.Run != earlier+1 && !c.purged(r) {
		c.violated(I8, of(r).say(fmt.Sprintf("run %d before run %d", r.key.Run-1, r.key.Run), "run %d", earlier))
		return
	}
	if before == nil {
		return
	}
	if len(before.ended) == 0 {
		c.violated(I8, of(r).say(fmt.Sprintf("the end of run %d before run %d", earlier, r.key.Run), "%s", before.states()))
		return
	}
	end := &before.ended[0]
	if end.attempts > 0 && len(before.tries) == 0 && !c.expired(r.key.Destination.Endpoint, end.at) {
		c.violated(I8, of(before).say("the ledger of an earlier run to stay", "no attempt of %d", end.attempts))
	}
	if by := r.replay(); end.state == event.StateDead && by != nil && (end.replayedBy == nil || *end.replayedBy != *by) {
		c.violated(I8, of(before).say("a dead letter that replay "+c.replayName(*by)+" took", "%s", c.takenBy(end.replayedBy)))
	}
}

// purged reports whether what came before a run may be gone by now.
func (c *checker) purged(r *run) bool {
	e := c.stored[r.key.Event]
	return e == nil || c.expired(e.endpoint, e.received)
}

// oncePerReplay judges that no replay started two runs of a delivery, and each run one that had taken it.
func (c *checker) oncePerReplay(p pair, runs []*run) {
	started := map[uuid.UUID]*run{}
	for _, r := range runs {
		by := r.replay()
		if by == nil {
			if r.key.Run > 1 && len(r.open)+len(r.ended) > 0 {
				c.violated(I8, of(r).say("a replay that started the run", "none"))
			}
			continue
		}
		if first := started[*by]; first != nil {
			c.violated(I8, of(r).say("one run by replay "+c.replayName(*by), "also run %d", first.key.Run))
			continue
		}
		started[*by] = r
		if _, there := c.replays[*by]; !there {
			continue // removed since
		}
		if taken, ok := c.queued[item{*by, p}]; !ok || taken.run != r.key.Run-1 {
			c.violated(I8, of(r).say(fmt.Sprintf("run %d taken by replay %s", r.key.Run-1, c.replayName(*by)), "it took no such run"))
		}
	}
}

// replaysOnce judges that what a replay took is a run, and was taken by one replay (I8).
func (c *checker) replaysOnce() {
	taken := map[event.DeliveryKey]uuid.UUID{}
	for i, row := range c.queued {
		c.checked(I8)
		key := event.DeliveryKey{Event: i.pair.event, Destination: i.pair.destination, Run: row.run}
		v := Violation{EventID: key.Event.String(), Delivery: key.String(), endpoint: key.Destination.Endpoint}
		if other, twice := taken[key]; twice {
			c.violated(I8, v.say("a run that one replay takes", "taken by %s and %s", c.replayName(i.replay), c.replayName(other)))
		}
		taken[key] = i.replay
		next := key
		next.Run++
		r := c.runs[next]
		switch {
		case c.expired(key.Destination.Endpoint, c.replays[i.replay].planned):
		case r == nil || !r.known():
			c.violated(I8, v.say(fmt.Sprintf("run %d, started by replay %s", next.Run, c.replayName(i.replay)), "no such run"))
		case r.replay() != nil && *r.replay() != i.replay:
			c.violated(I8, v.say(fmt.Sprintf("run %d by replay %s", next.Run, c.replayName(i.replay)), "%s", c.takenBy(r.replay())))
		}
	}
}

func (c *checker) replayName(id uuid.UUID) string {
	if r, ok := c.replays[id]; ok {
		return r.name
	}
	return id.String()
}

func (c *checker) takenBy(id *uuid.UUID) string {
	if id == nil {
		return "taken by none"
	}
	return "taken by " + c.replayName(*id)
}
