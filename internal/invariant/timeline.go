package invariant

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
)

const (
	// nearby is how long before and after an event's life what was done to the system is shown with it.
	nearby = 5 * time.Second
	// maxLines bounds a timeline.
	maxLines = 60
)

// line is something that happened, as one source tells it.
type line struct {
	at     time.Time
	source string
	text   string
}

// addTimelines sorts the violations and gives those that are shown a timeline, each event once.
func (c *checker) addTimelines() {
	violations := c.verdict.Violations
	slices.SortFunc(violations, func(a, b Violation) int { return a.compare(&b) })
	described, told := map[string]int{}, map[string]bool{}
	byEvent := map[event.ID][]*run{}
	if len(violations) > 0 {
		for key, r := range c.runs {
			byEvent[key.Event] = append(byEvent[key.Event], r)
		}
	}
	for i := range violations {
		v := &violations[i]
		about := cmp.Or(v.EventID, v.Key)
		if described[v.Invariant]++; described[v.Invariant] <= shown && !told[about] {
			v.Timeline = c.timeline(v, byEvent)
			told[about] = about != ""
		}
	}
}

func (c *checker) timeline(v *Violation, byEvent map[event.ID][]*run) []string {
	id, _ := uuid.Parse(v.EventID) // none: the nil id, of which there is nothing
	var lines []line
	n := name{v.endpoint, v.Key}
	if e := c.stored[id]; e != nil {
		lines = append(lines, line{e.received, "database", fmt.Sprintf("event %s accepted, %d bytes %x", e.id, e.size, e.body[:8])})
		n = name{e.endpoint, e.key}
	}
	for _, s := range c.sent[n] {
		lines = append(lines, s.line())
	}
	if len(c.sent[n]) == 0 {
		for _, s := range c.acknowledged[id] {
			lines = append(lines, s.line())
		}
	}
	for _, r := range byEvent[id] {
		lines = append(lines, r.lines()...)
	}
	for i, row := range c.queued {
		if i.pair.event == id {
			r := c.replays[i.replay]
			lines = append(lines, line{r.planned, "database", fmt.Sprintf("%s/%d planned by replay %s", i.pair.destination.Name, row.run, r.name)})
		}
	}
	order(lines)
	if len(lines) == 0 {
		return nil
	}
	first, last := lines[0].at, lines[len(lines)-1].at
	for _, done := range c.notes {
		if done.at.After(first.Add(-nearby)) && done.at.Before(last.Add(nearby)) {
			lines = append(lines, line{done.at, "done", done.text})
		}
	}
	order(lines)
	return render(lines)
}

func order(lines []line) {
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.source, b.source), cmp.Compare(a.text, b.text))
	})
}

// render writes lines with the time since the first.
func render(lines []line) []string {
	var text []string
	for i, l := range lines {
		if i == maxLines {
			return append(text, fmt.Sprintf("… and %d more", len(lines)-i))
		}
		at := fmt.Sprintf("%+.3fs", l.at.Sub(lines[0].at).Seconds())
		if i == 0 {
			at = l.at.UTC().Format("15:04:05.000")
		}
		text = append(text, fmt.Sprintf("%12s %-11s %s", at, l.source, l.text))
	}
	return text
}

func (s *Send) line() line {
	what := "sent"
	if s.Forged {
		what = "sent a forgery"
	}
	text := fmt.Sprintf("%s, key %q, body %x", what, s.Key, s.Body[:8])
	switch {
	case s.Status == 0:
		return line{s.At, "sender", text + ": no answer, " + cmp.Or(s.Err, "the outcome is unknown")}
	case s.EventID != "":
		text += fmt.Sprintf(": %d, event %s", s.Status, s.EventID)
	case s.RetryAfter != "":
		text += fmt.Sprintf(": %d, Retry-After %s", s.Status, s.RetryAfter)
	default:
		text += fmt.Sprintf(": %d", s.Status)
	}
	return line{s.At, "sender", fmt.Sprintf("%s, after %s", text, s.Answered.Sub(s.At).Round(time.Millisecond))}
}

// lines tells the life of a run.
func (r *run) lines() []line {
	var lines []line
	who := fmt.Sprintf("%s/%d", r.key.Destination.Name, r.key.Run)
	for _, t := range r.tries {
		text := fmt.Sprintf("%s attempt %d by %s", who, t.Attempt, t.worker)
		if t.number != t.Attempt {
			text += fmt.Sprintf(", counts as %d", t.number)
		}
		if t.unknown() {
			text += ", outcome unknown"
		}
		lines = append(lines, line{t.started, "ledger", text})
		for _, o := range t.outcomes {
			lines = append(lines, o.line(who))
		}
	}
	for _, o := range r.orphans {
		lines = append(lines, o.line(who))
	}
	for _, o := range r.open {
		if o.next != nil {
			lines = append(lines, line{*o.next, "database", fmt.Sprintf("%s %s with attempt %d, due then", who, o.state, o.Attempt)})
		}
	}
	for _, e := range r.ended {
		text := fmt.Sprintf("%s %s with attempt %d, status %d", who, e.state, e.Attempt, e.status)
		if e.reason != "" {
			text += ", " + string(e.reason)
		}
		lines = append(lines, line{e.at, "database", text})
	}
	for _, receipt := range r.receipts {
		text := fmt.Sprintf("%s attempt %d received, body %x", who, receipt.Attempt, receipt.Body[:8])
		if receipt.Status == 0 {
			text += ", not answered"
		} else {
			text += fmt.Sprintf(", answered with %d", receipt.Status)
		}
		lines = append(lines, line{receipt.At, "destination", text})
	}
	return lines
}

func (o *outcomeRow) line(who string) line {
	text := fmt.Sprintf("%s attempt %d %s, status %d", who, o.Attempt, o.verdict, o.status)
	if o.class != "" {
		text += ", " + o.class
	}
	return line{o.ended, "ledger", text}
}
