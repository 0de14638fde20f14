package ingress

import (
	"sync/atomic"

	"golang.org/x/time/rate"
)

// linesPerSecond bounds what one gate lets into the log: enough to see what
// is going on, too little for a flood of bad requests to drown the rest.
const linesPerSecond = 5

// gate lets a few log lines a second through and counts the others.
type gate struct {
	limiter    *rate.Limiter
	suppressed atomic.Int64
}

func newGate() *gate {
	return &gate{limiter: rate.NewLimiter(linesPerSecond, linesPerSecond)}
}

// pass reports whether a line may be written, and how many were not since
// the last one that was.
func (g *gate) pass() (suppressed int64, ok bool) {
	if !g.limiter.Allow() {
		g.suppressed.Add(1)
		return 0, false
	}
	return g.suppressed.Swap(0), true
}
