package store

import (
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

func reserved(n int) func(*Want) { return func(w *Want) { w.Reserved = n } }

// What comes in goes before runs of replays, however long these have waited,
// and some of a claim can be kept free of them.
func TestLiveGoesBeforeReplays(t *testing.T) {
	for _, tc := range []struct {
		name           string
		change         []func(*Want)
		live, replayed int
	}{
		{"room for all", nil, 3, 5},
		{"room for some", []func(*Want){most(4)}, 3, 1},
		{"room for live ones", []func(*Want){most(2)}, 2, 0},
		{"some reserved", []func(*Want){most(6), reserved(4)}, 3, 2},
		{"less reserved than taken", []func(*Want){most(6), reserved(2)}, 3, 3},
		{"all reserved", []func(*Want){most(6), reserved(6)}, 3, 0},
		{"bytes for some", []func(*Want){mostBytes(3*36 + 1)}, 3, 1},
		{"from a time on", []func(*Want){since(time.Now().Add(-time.Hour))}, 3, 5},
		{"replays from a time on", []func(*Want){func(w *Want) { w.SinceReplays = time.Now().Add(-time.Hour) }}, 3, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			newDead(t, s, 5)
			run(t, s, plan(t, s, newReplay(t, replay.Selector{States: selectDead})), 10)
			execute(t, s, "UPDATE delivery SET next_at = now() - interval '1 day'")
			enqueueNew(t, s, 3, "a", "b")
			var live, replayed int
			claims := claim(t, s, want("a", tc.change...))
			for _, c := range claims {
				if c.Replay == nil {
					live++
				} else {
					replayed++
				}
			}
			same(t, "claimed", []int{tc.live, tc.replayed}, []int{live, replayed})
			for _, c := range claims {
				if old := time.Since(c.Seen) > time.Hour; old != (c.Replay != nil) {
					t.Errorf("seen %s, of replay %v", c.Seen, c.Replay)
				}
			}
			finish(t, s, event.VerdictDone, claims...)
		})
	}
}
