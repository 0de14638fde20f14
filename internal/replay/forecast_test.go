package replay_test

import (
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/replay"
)

func TestForecast(t *testing.T) {
	// A look is at so many seconds, when so many have ended.
	type look struct{ at, ended int64 }
	steady := func(from, to, perSecond int64) (looks []look) {
		for at := from; at <= to; at++ {
			looks = append(looks, look{at, at * perSecond})
		}
		return looks
	}
	for _, tc := range []struct {
		name    string
		matched int64
		looks   []look
		want    time.Duration
		rate    float64
	}{
		{"the first look", 100, []look{{0, 10}}, 0, 0},
		{"too early", 100, steady(0, 4, 2), 0, 0},
		{"just in time", 100, steady(0, 5, 2), 45 * time.Second, 2},
		{"steady", 1000, steady(0, 300, 2), 200 * time.Second, 2},
		{"taken over half-way", 1000, steady(300, 310, 2), 190 * time.Second, 2},
		{"nothing ends", 100, []look{{0, 10}, {10, 10}, {20, 10}}, 0, 0},
		{"nothing has ended for a minute", 100, []look{{0, 0}, {10, 50}, {20, 50}, {30, 50}, {40, 50}, {50, 50}, {60, 50}, {70, 50}}, 0, 0},
		{"something ended in the last minute", 100, []look{{0, 0}, {10, 50}, {20, 50}, {30, 50}, {40, 50}, {50, 50}, {60, 50}}, time.Minute, 50.0 / 60},
		{"faster than a minute ago", 10_000, append(steady(0, 100, 1), look{130, 700}, look{160, 1300}), 435 * time.Second, 20},
		{"at the end", 100, steady(0, 50, 2), 0, 2},
		{"beyond any plan", 1 << 60, steady(0, 100, 1), 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var f replay.Forecast
			var got replay.Outlook
			began := time.Now()
			for _, l := range tc.looks {
				// Whatever has become of them, they have ended.
				status := replay.Status{Matched: tc.matched, Skipped: l.ended / 3, Dead: l.ended / 3, Succeeded: l.ended - 2*(l.ended/3)}
				got = f.Look(&status, began.Add(time.Duration(l.at)*time.Second))
			}
			if want := (replay.Outlook{PerSecond: tc.rate, Left: tc.want}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}
