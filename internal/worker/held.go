package worker

import (
	"context"
	"sync"
	"time"

	"github.com/ackrail/ackrail/internal/store"
)

// held is a delivery that this worker holds.
type held struct {
	claim *store.Claim
	lane  *lane
	// cancel ends the exchange with the destination.
	cancel context.CancelFunc
	// claimed is when the claim began, by this process's clock.
	claimed time.Time
	// confirmed is when the lease was last known to start: before the
	// statement that set it was sent, so that it ends no earlier than
	// confirmed + lease by the database's clock. It measures a duration of
	// this process only. Guarded by heldSet.mu.
	confirmed time.Time
}

// heldSet is what a worker holds and has no outcome for yet.
type heldSet struct {
	mu  sync.Mutex
	set map[*held]struct{}
}

func newHeldSet() *heldSet { return &heldSet{set: map[*held]struct{}{}} }

func (s *heldSet) add(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set[h] = struct{}{}
}

// remove takes a delivery out and reports whether it was still there.
func (s *heldSet) remove(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.set[h]
	delete(s.set, h)
	return ok
}

// due returns the deliveries whose lease has run for a third of its time.
func (s *heldSet) due(now time.Time) []*held {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*held
	for h := range s.set {
		if now.Sub(h.confirmed) >= h.lane.endpoint.Lease()/3 {
			due = append(due, h)
		}
	}
	return due
}

// confirm records that leases were set anew at a time.
func (s *heldSet) confirm(h *held, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.confirmed = at
}

// leaseLeft returns for how long a lease certainly still holds.
func (s *heldSet) leaseLeft(h *held, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.lane.endpoint.Lease() - now.Sub(h.confirmed)
}
