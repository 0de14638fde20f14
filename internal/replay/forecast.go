package replay

import "time"

// What a Forecast looks back on.
const (
	lookBack  = time.Minute
	markEvery = 5 * time.Second
	// farthest is how far ahead it looks.
	farthest = 365 * 24 * time.Hour
)

// Forecast measures how fast one replay goes on, and tells from that how long
// it will take. The zero value has measured nothing. It is not safe for
// concurrent use.
type Forecast struct {
	// marks are what there was to see at some moments, markEvery apart, the
	// first of them lookBack ago or a little more.
	marks []mark
}

type mark struct {
	at    time.Time
	ended int64
}

// Outlook is how fast a replay goes on and for how long: both are zero while
// nothing can be said.
type Outlook struct {
	// PerSecond is how many of its deliveries have ended per second, or were
	// skipped.
	PerSecond float64
	// Left is after how long it will have ended if it goes on like that.
	Left time.Duration
}

// Look takes a status into account, and returns the outlook by the last
// minute. Nothing can be said in the first seconds, when nothing has ended for
// a minute, or if more than a year is left. Times are those of this process,
// with a monotonic clock.
func (f *Forecast) Look(s *Status, now time.Time) Outlook {
	ended := s.Skipped + s.Succeeded + s.Dead
	if n := len(f.marks); n == 0 || now.Sub(f.marks[n-1].at) >= markEvery {
		f.marks = append(f.marks, mark{now, ended})
	}
	for len(f.marks) > 1 && now.Sub(f.marks[1].at) >= lookBack {
		f.marks = f.marks[1:]
	}
	took, progress := now.Sub(f.marks[0].at), ended-f.marks[0].ended
	if took < markEvery || progress <= 0 {
		return Outlook{}
	}
	left := float64(took) / float64(progress) * float64(s.Matched-ended)
	if left > float64(farthest) {
		return Outlook{}
	}
	return Outlook{PerSecond: float64(progress) / took.Seconds(), Left: time.Duration(left)}
}
