package replay

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// Step is how often Advance is meant to be called while a replay has
// deliveries to start.
const Step = time.Second

// The bounds of what a replay has in the queue. Whatever comes in goes before
// it; but replays take turns among themselves, and what waits is counted at
// each look.
const (
	firstWindow = 128
	leastWindow = 16
	mostWindow  = 1024
	// mostOpen bounds the runs that have not ended, those that wait for
	// their next attempt included: a handler that still fails is not asked
	// to fail once more for everything.
	mostOpen = 10_000
)

// slice bounds the time for which one Advance starts batches.
const slice = time.Second

// Pace says how many runs of one replay may be started now. It follows the
// workers: it lets in what they end in two to four steps, at least leastWindow
// and at most mostWindow, so that the queue never holds much of a replay that
// may yet be suspended. It is not safe for concurrent use.
type Pace struct {
	limiter *rate.Limiter // nil: no bound
	// window is how many runs may wait for a worker, or be with one.
	window int64
	// filled: the last step ended because the window was full.
	filled bool
}

// NewPace returns the pace of a replay that may start maxPerSecond runs per
// second, 0 for no bound. It begins with an empty bucket: replacing it, as a
// process that takes over does, never makes the replay faster.
func NewPace(maxPerSecond int) *Pace {
	p := &Pace{window: firstWindow}
	if maxPerSecond > 0 {
		p.limiter = newLimiter(maxPerSecond)
		p.limiter.AllowN(time.Now(), maxPerSecond)
	}
	return p
}

// newLimiter returns a limiter that saves up what a step may start.
func newLimiter(maxPerSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(maxPerSecond), maxPerSecond)
}

// Advance starts as many runs of a planned replay as its pace allows now, and
// returns the status after that. It takes a second or little more. The errors
// are ErrNotPlanned and those of the database; what was started before one is
// not lost.
func Advance(ctx context.Context, s Store, r Request, p *Pace) (Status, error) {
	status, err := s.ReplayStatus(ctx, r.ID)
	if err != nil {
		return Status{}, err
	}
	room := p.room(&status, r.Present)
	moved := false
	for began := time.Now(); time.Since(began) < slice && status.Planned() > 0; {
		batch := min(batchSize, room, p.tokens())
		if batch <= 0 {
			break
		}
		queued, skipped, err := s.RunReplay(ctx, r.ID, r.Present, int(batch))
		if err != nil {
			return Status{}, err
		}
		if queued+skipped == 0 {
			break // another process was faster
		}
		moved = true
		p.spend(queued)
		room -= int64(queued)
		status.Queued += int64(queued)
		status.Skipped += int64(skipped)
	}
	p.filled = room <= 0
	if !moved {
		return status, nil
	}
	_ = s.Wake(ctx)
	return s.ReplayStatus(ctx, r.ID)
}

// room fits the window to what the workers have ended since the last step,
// and returns how many runs fit in. What no worker can end, since its
// destination is gone, takes up no room.
func (p *Pace) room(status *Status, present []string) int64 {
	open, failed := status.Open, status.Failed
	for _, stranded := range status.Stranded(present) {
		open -= stranded.Open
		failed -= stranded.Failed
	}
	busy := open - failed
	switch {
	case p.filled && busy <= p.window/2:
		p.window = min(2*p.window, mostWindow)
	case busy > p.window/4*3:
		p.window = max(p.window/2, leastWindow)
	}
	return min(p.window-busy, mostOpen-open)
}

func (p *Pace) tokens() int64 {
	if p.limiter == nil {
		return batchSize
	}
	return int64(p.limiter.Tokens())
}

func (p *Pace) spend(n int) {
	if p.limiter != nil {
		p.limiter.AllowN(time.Now(), n)
	}
}
