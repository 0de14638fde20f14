package invariant

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
)

// contract are the answers of docs/ingress.md.
var contract = []int{
	http.StatusOK, http.StatusAccepted, http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound,
	http.StatusMethodNotAllowed, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
	http.StatusUnprocessableEntity, http.StatusServiceUnavailable,
}

// answers judges what senders were told (I1): a 2xx names an event that is there and is what was sent, and anything else
// is a refusal of the contract.
func (c *checker) answers() {
	told := map[string]bool{}
	for i := range c.sends {
		s := &c.sends[i]
		if s.Status == 0 {
			continue
		}
		c.checked(I1)
		switch {
		case !slices.Contains(contract, s.Status):
			c.violated(I1, ofSend(s).say("an answer of the contract", "status %d", s.Status))
		case s.Status == http.StatusServiceUnavailable && s.RetryAfter == "":
			c.violated(I1, ofSend(s).say("a Retry-After with 503", "none"))
		case s.acknowledged() && !told[s.EventID]:
			told[s.EventID] = true
			c.answer(s)
		}
	}
}

func (c *checker) answer(s *Send) {
	v := ofSend(s)
	id, err := uuid.Parse(s.EventID)
	if err != nil {
		c.violated(I1, v.say("an event's id in the 2xx", "%q", s.EventID))
		return
	}
	e := c.stored[id]
	switch {
	case e == nil && c.expired(v.endpoint, s.At):
	case e == nil && c.expect.LossAnnounced:
		c.verdict.Lost++
	case e == nil:
		c.violated(c.dropped(v.endpoint, true), v.say("the event in the database", "no such event"))
	case e.endpoint != v.endpoint || e.key != s.Key:
		c.violated(I1, v.say(fmt.Sprintf("the event of endpoint %s, key %q", v.endpoint, s.Key), "an event of endpoint %s, key %q", e.endpoint, e.key))
	}
}

// dropped is the invariant that is broken when something accepted is not there.
func (c *checker) dropped(endpoint event.EndpointRef, acknowledged bool) string {
	switch {
	case c.resting(endpoint):
		return I10
	case acknowledged:
		return I1
	}
	return I3
}

// owed judges whether each event is owed to all destinations of its endpoint, whatever became of that (I1, I10).
func (c *checker) owed() {
	for i := range c.events {
		e := &c.events[i]
		endpoint := c.endpoints[e.endpoint]
		if endpoint == nil || c.expired(e.endpoint, e.received) {
			continue
		}
		invariant := c.dropped(e.endpoint, len(c.acknowledged[e.id]) > 0)
		for j := range endpoint.Destinations {
			to := event.DestinationRef{Endpoint: e.endpoint, Name: endpoint.Destinations[j].Name}
			if slices.Contains(c.expect.Later, to) {
				continue
			}
			c.checked(invariant)
			if !slices.ContainsFunc(c.pairs[pair{e.id, to}], (*run).known) {
				c.violated(invariant, ofEvent(e).say("a delivery to "+to.Name+", open, done or dead", "none"))
			}
		}
	}
}

// keys judges that a key stands for one event inside its window, of which the first wins (I2).
func (c *checker) keys() {
	for n, events := range c.byName {
		c.checked(I2)
		for i := 1; i < len(events); i++ {
			if within := c.window(n.endpoint); within == 0 || events[i].received.Sub(events[i-1].received) < within {
				c.violated(I2, ofEvent(events[i]).say("one event for the key", "also event %s, accepted %s before", events[i-1].id,
					events[i].received.Sub(events[i-1].received)))
			}
		}
	}
	for n, sends := range c.sent {
		c.answersForKey(n, sends)
	}
}

// window is how long a key of an endpoint is kept, 0 for ever.
func (c *checker) window(ref event.EndpointRef) time.Duration {
	if endpoint := c.endpoints[ref]; endpoint != nil {
		return endpoint.Retention.Dedup()
	}
	return 0
}

func (c *checker) answersForKey(n name, sends []*Send) {
	var last, accepted *Send
	for _, s := range sends {
		if !s.acknowledged() {
			continue
		}
		c.checked(I2)
		window := c.window(n.endpoint)
		recent := func(earlier *Send) bool {
			return earlier != nil && (window == 0 || s.Answered.Sub(earlier.At) < window)
		}
		id, _ := uuid.Parse(s.EventID) // answers judges it
		switch {
		case recent(last) && last.EventID != s.EventID && (!c.expect.LossAnnounced || !c.lost(last)):
			c.violated(I2, ofSend(s).say("one id for the key", "before that id %s", last.EventID))
		case s.Status == http.StatusAccepted && recent(accepted) && accepted.EventID == s.EventID:
			c.violated(I2, ofSend(s).say("a key that is accepted once", "202 twice"))
		case s.Status == http.StatusAccepted && c.stored[id] != nil && c.stored[id].body != s.Body && c.bodySent(c.stored[id], false):
			c.violated(I2, ofSend(s).say("the body that was accepted first", "the body of another request with the key"))
		}
		last = s
		if s.Status == http.StatusAccepted {
			accepted = s
		}
	}
}

// lost reports whether the event of an answer is not in the database.
func (c *checker) lost(s *Send) bool {
	id, err := uuid.Parse(s.EventID)
	return err != nil || c.stored[id] == nil
}

// bodySent reports whether a request that was forged, or one that was not, brought an event's body under its key.
func (c *checker) bodySent(e *stored, forged bool) bool {
	return slices.ContainsFunc(c.sent[name{e.endpoint, e.key}], func(s *Send) bool { return s.Forged == forged && s.Body == e.body })
}

// bodies judges that every body is what was sent (I11).
func (c *checker) bodies() {
	for i := range c.events {
		e := &c.events[i]
		sends := c.sent[name{e.endpoint, e.key}]
		if len(sends) == 0 || c.expect.SendersUnknown {
			continue
		}
		c.checked(I11)
		if !c.bodySent(e, false) && !c.bodySent(e, true) {
			c.violated(I11, ofEvent(e).say(fmt.Sprintf("stored as sent: %x", sends[0].Body[:8]), "%x, %d bytes", e.body[:8], e.size))
		}
	}
	for _, r := range c.runs {
		c.bodiesOf(r)
	}
}

func (c *checker) bodiesOf(r *run) {
	for _, receipt := range r.receipts {
		var want [32]byte
		switch e, sends := c.stored[r.key.Event], c.acknowledged[r.key.Event]; {
		case e != nil:
			want = e.body
		case len(sends) == 1:
			want = sends[0].Body
		default:
			continue // there is no telling
		}
		c.checked(I11)
		if receipt.Body != want {
			c.violated(I11, of(r).say(fmt.Sprintf("received as stored: %x", want[:8]), "%x in attempt %d", receipt.Body[:8], receipt.Attempt))
		}
	}
}

// forgeries judges that what cannot be trusted is refused, and that nothing is there that nobody sent (I12).
func (c *checker) forgeries() {
	if c.expect.SendersUnknown {
		return
	}
	for i := range c.sends {
		s := &c.sends[i]
		if !s.Forged {
			continue
		}
		c.checked(I12)
		if s.acknowledged() {
			c.violated(I12, ofSend(s).say("a forged request to be refused", "status %d", s.Status))
		}
	}
	for i := range c.events {
		e := &c.events[i]
		sends := c.sent[name{e.endpoint, e.key}]
		c.checked(I12)
		switch {
		case len(sends) == 0:
			c.violated(I12, ofEvent(e).say("events that somebody sent", "an event that nobody sent"))
		case !slices.ContainsFunc(sends, func(s *Send) bool { return !s.Forged }), c.bodySent(e, true) && !c.bodySent(e, false):
			c.violated(I12, ofEvent(e).say("nothing of a forged request", "an event of one"))
		}
	}
}
