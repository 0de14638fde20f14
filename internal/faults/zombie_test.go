package faults

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/store"
)

var _ = Describe("late writes", func() {
	row("3,000 late writes",
		"250 deliveries were claimed by one worker, and by another when the leases were over; then all that the first one could write was written (complete, fail, dead-letter, heartbeat), once while the second held them, and again by both when a third one had delivered",
		func(w *world) {
			const events = 250
			w.begin(setting{})
			w.ingress()
			w.acceptMany(events)
			s, err := store.Open(w.URL, store.Options{Name: "late writer"})
			if err != nil {
				w.t.Fatal(err)
			}
			defer s.Close()

			late := w.claimAll(s, "first", events)
			current := w.claimAll(s, "second", events)
			for i, c := range current {
				if c.Token.Attempt != 2 {
					w.t.Fatalf("claim %d is attempt %d, want 2", i, c.Token.Attempt)
				}
			}
			before := w.deliveries()
			w.writeLate(s, late)
			if after := w.deliveries(); after != before {
				w.t.Errorf("the deliveries were changed by what was refused")
			}
			w.did("%d late writes while another worker held the deliveries", w.result.LateWrites)
			w.worker()
			w.until(w.Drained)
			w.writeLate(s, late)
			w.writeLate(s, current)
			w.did("late writes after the deliveries were done")
			if n := w.Number("SELECT count(*) FROM settled WHERE attempt = 3"); n != events {
				w.t.Errorf("%d deliveries are done with the third attempt, want %d", n, events)
			}
		}, short)
})

// acceptMany has a number of events accepted.
func (w *world) acceptMany(n int) {
	w.t.Helper()
	const senders = 25
	s := rig.NewSender(w.t, senders)
	var running sync.WaitGroup
	errs := make([]error, senders)
	for i := range senders {
		running.Go(func() {
			for range n / senders {
				key := uuid.NewString()
				if a, err := w.send(s, key, body(key)); err != nil || a.Status/100 != 2 {
					errs[i] = fmt.Errorf("answered with %d, %w", a.Status, err)
				}
			}
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// claimAll claims a number of deliveries, as soon as they can be claimed, for
// a second.
func (w *world) claimAll(s *store.Store, worker string, n int) []*store.Claim {
	w.t.Helper()
	var claims []*store.Claim
	w.until(func() error {
		more, err := s.Claim(w.ctx, worker, []store.Want{{
			Destination: handler, Most: n, MostBytes: 1 << 30, Lease: time.Second, MaxAttempts: 20, KeepLedger: time.Hour,
		}})
		claims = append(claims, more...)
		if err == nil {
			err = atLeast(len(claims), n, "claims")
		}
		return err
	})
	return claims
}

// writeLate writes with claims that hold no more whatever a worker can write,
// and counts what has effect.
func (w *world) writeLate(s *store.Store, claims []*store.Claim) {
	w.t.Helper()
	count := func(took []bool, err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, ok := range took {
			w.result.LateWrites++
			if ok {
				w.result.LateAccepted++
			}
		}
	}
	for _, verdict := range []event.Verdict{event.VerdictDone, event.VerdictFailed, event.VerdictDead} {
		var outcomes []store.Outcome
		for _, c := range claims {
			o := store.Outcome{Claim: c, Verdict: verdict, Status: 200, KeepLedger: time.Hour, KeepEnded: time.Hour}
			if verdict == event.VerdictDead {
				o.Reason = event.ReasonAttemptsExhausted
			}
			outcomes = append(outcomes, o)
		}
		count(s.Complete(w.ctx, outcomes))
	}
	leases := make([]time.Duration, len(claims))
	for i := range leases {
		leases[i] = time.Hour
	}
	count(s.Renew(w.ctx, claims, leases))
	if n := w.result.LateAccepted; n > 0 {
		w.t.Errorf("%d late writes were accepted", n)
	}
}

// deliveries is a digest of all that is open, ledger included.
func (w *world) deliveries() (digest string) {
	w.t.Helper()
	err := w.Pool.QueryRow(w.ctx, `SELECT md5((SELECT string_agg(d::text, ',' ORDER BY event_id) FROM delivery d)
		|| (SELECT string_agg(a::text, ',' ORDER BY event_id, attempt) FROM attempt a) || (SELECT count(*) FROM outcome)
		|| (SELECT count(*) FROM settled) || (SELECT count(*) FROM dead_letter))`).Scan(&digest)
	if err != nil {
		w.t.Fatal(err)
	}
	return digest
}
