package eventreplay

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/replay"
)

// memory is what is remembered of a replay from one look to the next. A
// Reconciler that has forgotten it is slower for a moment, no more.
type memory struct {
	uid  types.UID
	pace *replay.Pace

	// The database's URL, which Secret it was read from and when.
	url       string
	secretRef v1alpha1.DatabaseSecretRef
	readAt    time.Time

	last     replay.Status
	pause    time.Duration
	forecast replay.Forecast
}

// patience returns how long to wait for the next look at a replay that only
// waits for its runs to end: longer while nothing changes.
func (m *memory) patience(now *replay.Status) time.Duration {
	if now.Same(&m.last) && m.pause > 0 {
		m.pause = min(2*m.pause, longestPause)
	} else {
		m.pause = replay.Step
	}
	m.last = *now
	return m.pause
}

// outlook returns how a replay that was just looked at goes on. What was
// measured before it was suspended says nothing about the time after.
func (m *memory) outlook(r *v1alpha1.EventReplay, now *replay.Status) replay.Outlook {
	if r.Spec.Suspend {
		m.forecast = replay.Forecast{}
		return replay.Outlook{}
	}
	return m.forecast.Look(now, time.Now())
}

// memories are those of all replays that are being worked on, by name. The
// queue gives each of them to one worker at a time.
type memories struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*memory
}

// of returns what is remembered of an object: nothing, if another object had
// its name.
func (s *memories) of(r *v1alpha1.EventReplay) *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	m := s.all[name]
	if m == nil || m.uid != r.UID {
		m = &memory{uid: r.UID, pace: replay.NewPace(int(r.Spec.MaxPerSecond))}
		s.all[name] = m
	}
	return m
}

func (s *memories) forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, name)
}
