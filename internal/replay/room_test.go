package replay

import "testing"

// The window grows while workers empty it, shrinks while they do not, and is
// never exceeded.
func TestRoom(t *testing.T) {
	for _, tc := range []struct {
		name         string
		window       int64
		filled       bool
		open, failed int64
		room, after  int64
	}{
		{"at first", firstWindow, false, 0, 0, 128, 128},
		{"emptied", 128, true, 0, 0, 256, 256},
		{"half emptied", 128, true, 64, 0, 192, 256},
		{"emptied, but it was not full", 128, false, 0, 0, 128, 128},
		{"between", 128, true, 96, 0, 32, 128},
		{"not emptied", 128, true, 97, 0, -33, 64},
		{"stuck", 128, true, 128, 0, -64, 64},
		{"never below", leastWindow, true, leastWindow, 0, 0, leastWindow},
		{"never above", mostWindow, true, 0, 0, mostWindow, mostWindow},
		{"what waits for its next attempt is no work", 128, true, 5000, 5000, 256, 256},
		{"but there is an end to it", 128, true, mostOpen - 3, mostOpen - 3, 3, 256},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &Pace{window: tc.window, filled: tc.filled}
			if got := p.room(&Status{Open: tc.open, Failed: tc.failed}, []string{"handler"}); got != tc.room || p.window != tc.after {
				t.Errorf("room for %d in a window of %d, want %d in %d", got, p.window, tc.room, tc.after)
			}
		})
	}
}

// What waits at a destination that is gone leaves the room to the others.
func TestRoomBesideTheStranded(t *testing.T) {
	status := Status{Open: 128 + mostOpen, Failed: 28 + mostOpen, OpenAt: []OpenRuns{{"handler", 28, 28}, {"old", 100 + mostOpen, mostOpen}}}
	for _, tc := range []struct {
		present []string
		room    int64
	}{{nil, -128}, {[]string{"handler"}, 256}, {[]string{"handler", "old"}, -128}} {
		p := &Pace{window: 128, filled: true}
		if got := p.room(&status, tc.present); got != tc.room {
			t.Errorf("destinations %q: room for %d, want %d", tc.present, got, tc.room)
		}
	}
}
