package invariant

import (
	"fmt"

	"github.com/ackrail/ackrail/internal/event"
)

// receiptsInLedger judges that the intent of every request was on record before it left, and that what the destination
// answered is what the ledger says (I4).
func (c *checker) receiptsInLedger() {
	for _, s := range c.strays {
		c.violated(I4, Violation{endpoint: event.EndpointRef{Namespace: s.Namespace, Name: s.Endpoint}}.say("requests with an event's id", "%q at %s", s.EventID, s.Destination))
	}
	for _, r := range c.runs {
		seen := map[int]bool{}
		for _, receipt := range r.receipts {
			if c.expired(r.key.Destination.Endpoint, receipt.At) {
				continue
			}
			c.checked(I4)
			c.receipt(r, receipt, seen[receipt.Attempt])
			seen[receipt.Attempt] = true
		}
	}
}

func (c *checker) receipt(r *run, receipt *Receipt, again bool) {
	t := r.numbered(receipt.Attempt)
	forgotten := c.expect.LossAnnounced && (t == nil || again || t.started.After(receipt.At))
	switch {
	case forgotten:
		c.verdict.Forgotten++
	case t == nil:
		c.violated(I4, of(r).say(fmt.Sprintf("attempt %d in the ledger, since it was received", receipt.Attempt), "%d attempts", len(r.tries)))
	case again:
		c.violated(I4, of(r).say(fmt.Sprintf("one request for attempt %d", receipt.Attempt), "one more"))
	case t.started.After(receipt.At.Add(c.expect.Skew)):
		c.violated(I4, of(r).say(fmt.Sprintf("attempt %d in the ledger before it is received", receipt.Attempt), "%s after", t.started.Sub(receipt.At)))
	case t.released():
		c.violated(I4, of(r).say(fmt.Sprintf("attempt %d not to be sent, as the ledger says", t.Attempt), "it was received"))
	default:
		if status := t.status(r); status != 0 && receipt.Status != 0 && status != receipt.Status {
			c.violated(I4, of(r).say(fmt.Sprintf("status %d of attempt %d in the ledger, as it was answered", receipt.Status, t.Attempt), "%d", status))
		}
	}
}

// status is what the ledger says that the attempt was answered, 0 for nothing.
func (t *try) status(r *run) int {
	if len(t.outcomes) > 0 {
		return t.outcomes[0].status
	}
	for _, e := range r.ended {
		if e.Attempt == t.Attempt && e.state == event.StateDone {
			return e.status
		}
	}
	return 0
}

// duplicates counts what a destination got again after it had answered with success. The ledger explains it: that the
// answer had arrived was never on record.
func (c *checker) duplicates() {
	for _, r := range c.runs {
		// unanswered: so far, the ledger has seen no success arrive.
		succeeded, unanswered := false, true
		for _, receipt := range r.receipts {
			t := r.numbered(receipt.Attempt)
			admitted := t != nil && t.answerless()
			if succeeded {
				c.verdict.Duplicates++
				c.checked(I4)
				if !admitted && !unanswered && !c.expect.LossAnnounced {
					c.verdict.Unexplained++
					c.violated(I4, of(r).say("a second success only after an attempt with unknown outcome", "attempt %d, with every outcome known", receipt.Attempt))
				}
			}
			if receipt.Status/100 == 2 {
				succeeded = true
				unanswered = unanswered && admitted
			}
		}
	}
}

// ledgerComplete judges that the ledger has all attempts of each run, and what is done was received (I4).
func (c *checker) ledgerComplete() {
	for _, r := range c.runs {
		for _, o := range r.orphans {
			c.violated(I4, of(r).say("an intent for each outcome", "%s of attempt %d, which was not begun", o.verdict, o.Attempt))
		}
		for _, o := range r.open {
			c.complete(r, o.Attempt, o.released)
		}
		for i := range r.ended {
			e := &r.ended[i]
			if c.expired(r.key.Destination.Endpoint, e.at) {
				continue
			}
			c.complete(r, e.Attempt, e.Attempt-e.attempts)
			c.ending(r, e)
		}
	}
}

// complete compares the number of the last claim, and how many of all do not count, with the ledger.
func (c *checker) complete(r *run, last, uncounted int) {
	c.checked(I4)
	want := last - max(uncounted-r.releases(), 0)
	if got := len(r.tries); got < want {
		c.violated(I4, of(r).say(fmt.Sprintf("%d attempts in the ledger", want), "%d", got))
	}
}

// releases counts the attempts that the ledger says were handed back.
func (r *run) releases() int {
	n := 0
	for _, t := range r.tries {
		if t.released() {
			n++
		}
	}
	return n
}

func (c *checker) ending(r *run, e *endedRow) {
	t := r.try(e.Attempt)
	switch {
	case e.state == event.StateDead:
		// A claim that found no attempt left has neither intent nor outcome.
		if t != nil && len(t.outcomes) == 0 {
			c.violated(I4, of(r).say(fmt.Sprintf("how attempt %d ended, in the ledger", e.Attempt), "nothing, but a dead letter"))
		}
	case c.expect.DestinationsUnknown:
	default:
		c.checked(I4)
		for _, receipt := range r.receipts {
			if receipt.Attempt == e.attempts && receipt.Status/100 == 2 {
				return
			}
		}
		c.violated(I4, of(r).say(fmt.Sprintf("attempt %d received, and answered with 2xx", e.attempts), "%s", r.received()))
	}
}

// received tells what the destination got.
func (r *run) received() string {
	if len(r.receipts) == 0 {
		return "nothing received"
	}
	var text string
	for _, receipt := range r.receipts {
		text += fmt.Sprintf(", attempt %d answered with %d", receipt.Attempt, receipt.Status)
	}
	return text[2:]
}
