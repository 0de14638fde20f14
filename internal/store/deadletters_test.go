package store

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
)

func TestDeadLetters(t *testing.T) {
	s := newStore(t)
	// Six events of two types for two destinations, of which all are dead but
	// the last; a letter that a replay has taken up is no longer among them.
	var ids []event.ID
	for i := range 6 {
		sub := submission(t, digits(i), to("a", "b"), typed([]string{"push", "ping"}[i%2]), body(strings.Repeat("x", 100)))
		enqueue(t, s, sub)
		ids = append(ids, sub.Event.ID)
	}
	for _, name := range []string{"a", "b"} {
		for _, c := range claim(t, s, want(name)) {
			if c.Event.ID != ids[5] {
				finish(t, s, event.VerdictDead, c)
			}
		}
	}
	execute(t, s, "UPDATE dead_letter SET replayed_by = $1 WHERE event_id = $2", uuid.New(), ids[4])
	execute(t, s, "UPDATE dead_letter SET reason = 'OutcomeUnknown', last_status = NULL WHERE event_id = $1", ids[3])
	execute(t, s, "UPDATE dead_letter SET reason = 'Other' WHERE event_id <> $1", ids[3])

	number := map[event.ID]string{}
	for i, id := range ids {
		number[id] = digits(i)
	}
	read := func(f DeadLetterFilter) (found string, pages int) {
		t.Helper()
		if f.Limit == 0 {
			f.Limit, f.Bytes = 100, 1<<20
		}
		for {
			page, err := s.DeadLetters(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				return strings.TrimSpace(found), pages
			}
			pages++
			for i := range page {
				l := &page[i]
				found += number[l.Key.Event] + l.Key.Destination.Name + " "
				if l.Event == nil || len(l.Event.Body) != 100 || l.Event.Key != number[l.Key.Event] || l.EndedAt == nil || l.Attempts != 1 || l.Key.Run != 1 {
					t.Errorf("a dead letter is %+v", l)
				}
			}
			f.After = &page[len(page)-1]
		}
	}
	all := ""
	for i := range 4 {
		all += digits(i) + "a " + digits(i) + "b "
	}
	all = strings.TrimSpace(all)
	only := func(parts ...string) string { return strings.Join(parts, " ") }
	one, two, three, four := digits(0), digits(1), digits(2), digits(3)
	for _, tc := range []struct {
		name   string
		filter DeadLetterFilter
		want   string
		pages  int
	}{
		{"all", DeadLetterFilter{}, all, 1},
		{"page by page", DeadLetterFilter{Limit: 3, Bytes: 1 << 20}, all, 3},
		{"by bytes", DeadLetterFilter{Limit: 100, Bytes: 150}, all, 4},
		{"one at a time", DeadLetterFilter{Limit: 100, Bytes: 1}, all, 8},
		{"destination", DeadLetterFilter{Destination: "b"}, only(one+"b", two+"b", three+"b", four+"b"), 1},
		{"types", DeadLetterFilter{Types: []string{"ping"}}, only(two+"a", two+"b", four+"a", four+"b"), 1},
		{"reasons", DeadLetterFilter{Reasons: []event.Reason{event.ReasonOutcomeUnknown}}, only(four+"a", four+"b"), 1},
		{"other namespace", DeadLetterFilter{Namespace: "nowhere"}, "", 0},
		{"other endpoint", DeadLetterFilter{Endpoint: "nothing"}, "", 0},
	} {
		if got, pages := read(tc.filter); got != tc.want || pages != tc.pages {
			t.Errorf("%s: got %q on %d pages, want %q on %d", tc.name, got, pages, tc.want, tc.pages)
		}
	}
	execute(t, s, "DELETE FROM event")
	execute(t, s, "DELETE FROM held_event")
	page, err := s.DeadLetters(t.Context(), DeadLetterFilter{Limit: 1, Bytes: 1})
	if err != nil || len(page) != 1 || page[0].Event != nil || page[0].ReceivedAt != nil {
		t.Errorf("without its event: %+v, %v", page, err)
	}
}
