package invariant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/ingress"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/worker"
)

// enqueue is an ingress.Enqueuer.
type enqueue func(context.Context, store.Submission) (store.Receipt, error)

func (e enqueue) Enqueue(ctx context.Context, s store.Submission) (store.Receipt, error) {
	return e(ctx, s)
}

// answerEarly answers before the commit, which for one event never comes.
func answerEarly(key string) func(*rig, ingress.Enqueuer) ingress.Enqueuer {
	return func(_ *rig, next ingress.Enqueuer) ingress.Enqueuer {
		return enqueue(func(ctx context.Context, s store.Submission) (store.Receipt, error) {
			if s.Event.Key == key {
				return store.Receipt{EventID: s.Event.ID}, nil
			}
			return next.Enqueue(ctx, s)
		})
	}
}

// owesLess commits an event without one of its deliveries.
func owesLess(key string) func(*rig, ingress.Enqueuer) ingress.Enqueuer {
	return func(_ *rig, next ingress.Enqueuer) ingress.Enqueuer {
		return enqueue(func(ctx context.Context, s store.Submission) (store.Receipt, error) {
			if s.Event.Key == key {
				s.Destinations = s.Destinations[:1]
			}
			return next.Enqueue(ctx, s)
		})
	}
}

// reencode is what parsing and writing does to JSON.
func reencode(body []byte) []byte {
	var content any
	if json.Unmarshal(body, &content) != nil {
		return body
	}
	again, err := json.Marshal(content)
	if err != nil {
		return body
	}
	return again
}

func reencodeIn(_ *rig, next ingress.Enqueuer) ingress.Enqueuer {
	return enqueue(func(ctx context.Context, s store.Submission) (store.Receipt, error) {
		e := *s.Event
		e.Body = reencode(e.Body)
		s.Event = &e
		return next.Enqueue(ctx, s)
	})
}

// send is a worker.Sender.
type send func(context.Context, *deliver.Request) deliver.Outcome

func (s send) Send(ctx context.Context, r *deliver.Request) deliver.Outcome { return s(ctx, r) }

func reencodeOut(_ *rig, next worker.Sender) worker.Sender {
	return send(func(ctx context.Context, r *deliver.Request) deliver.Outcome {
		e, again := *r.Event, *r
		e.Body = reencode(e.Body)
		again.Event = &e
		return next.Send(ctx, &again)
	})
}

// pretend claims a success for one of the first requests.
func pretend(_ *rig, next worker.Sender) worker.Sender {
	var once atomic.Bool
	return send(func(ctx context.Context, r *deliver.Request) deliver.Outcome {
		if string(r.Event.Body) == plain && once.CompareAndSwap(false, true) {
			return deliver.Outcome{Verdict: event.VerdictDone, Status: http.StatusOK}
		}
		return next.Send(ctx, r)
	})
}

// misquote takes one failure for another.
func misquote(_ *rig, next worker.Sender) worker.Sender {
	return send(func(ctx context.Context, r *deliver.Request) deliver.Outcome {
		o := next.Send(ctx, r)
		if o.Status == http.StatusServiceUnavailable {
			o.Status = http.StatusBadGateway
		}
		return o
	})
}

// faulty is a worker's store, of which a bug replaces a part.
type faulty struct {
	worker.Store
	r        *rig
	claim    func(ctx context.Context, worker string, wants []store.Want) ([]*store.Claim, error)
	complete func(ctx context.Context, outcomes []store.Outcome) ([]bool, error)
	maintain func(ctx context.Context) error
}

func (f *faulty) Claim(ctx context.Context, worker string, wants []store.Want) ([]*store.Claim, error) {
	if f.claim == nil {
		return f.Store.Claim(ctx, worker, wants)
	}
	return f.claim(ctx, worker, wants)
}

func (f *faulty) Complete(ctx context.Context, outcomes []store.Outcome) ([]bool, error) {
	if f.complete == nil {
		return f.Store.Complete(ctx, outcomes)
	}
	return f.complete(ctx, outcomes)
}

func (f *faulty) Maintain(ctx context.Context, keeps []store.Keep) (store.Maintained, error) {
	did, err := f.Store.Maintain(ctx, keeps)
	if err == nil && f.maintain != nil {
		err = f.maintain(ctx)
	}
	return did, err
}

// exec runs a statement by the way of the bug.
func (f *faulty) exec(ctx context.Context, sql string, args ...any) error {
	_, err := f.r.pool.Exec(ctx, sql, args...)
	return err
}

// lose deletes the delivery of an event instead of recording how it ended.
func lose(key string) func(*rig, worker.Store) worker.Store {
	return func(r *rig, next worker.Store) worker.Store {
		f := &faulty{Store: next, r: r}
		f.complete = func(ctx context.Context, outcomes []store.Outcome) ([]bool, error) {
			err := f.exec(ctx, `DELETE FROM delivery WHERE state = 'claimed' AND event_id = (SELECT id FROM event WHERE idempotency_key = $1)`, key)
			if err != nil {
				return nil, err
			}
			return next.Complete(ctx, outcomes)
		}
		return f
	}
}

// hasty sends an event to the handler before it claims it.
func hasty(key string) func(*rig, worker.Store) worker.Store {
	return func(r *rig, next worker.Store) worker.Store {
		f := &faulty{Store: next, r: r}
		var once atomic.Bool
		f.claim = func(ctx context.Context, worker string, wants []store.Want) ([]*store.Claim, error) {
			if once.CompareAndSwap(false, true) {
				if err := f.sendAhead(ctx, key); err != nil {
					return nil, err
				}
			}
			return next.Claim(ctx, worker, wants)
		}
		return f
	}
}

func (f *faulty) sendAhead(ctx context.Context, key string) error {
	var id uuid.UUID
	if err := f.r.pool.QueryRow(ctx, "SELECT id FROM event WHERE idempotency_key = $1", key).Scan((*[16]byte)(&id)); err != nil {
		return err
	}
	to, err := f.r.sender(f.r.config.Endpoints[0].Destinations[0])
	if err != nil {
		return err
	}
	o := to.Send(ctx, &deliver.Request{Event: &event.Event{ID: id, Endpoint: github, Body: []byte(plain)}, Run: 1, Attempt: 1})
	if o.Verdict != event.VerdictDone {
		return fmt.Errorf("sent ahead: %s", o.Error)
	}
	return nil
}

// unfenced records a success whoever owns the delivery by now.
func unfenced(r *rig, next worker.Store) worker.Store {
	f := &faulty{Store: next, r: r}
	f.complete = func(ctx context.Context, outcomes []store.Outcome) ([]bool, error) {
		took, err := next.Complete(ctx, outcomes)
		for i := range took {
			t := outcomes[i].Claim.Token
			if took[i] || err != nil || outcomes[i].Verdict != event.VerdictDone {
				continue
			}
			took[i] = true
			err = f.exec(ctx, `INSERT INTO settled (event_id, destination_id, run, attempt, attempts, size, status, latency_ms, settled_at, expires_at)
				SELECT event_id, destination_id, run, $2, $2, size, status, latency_ms, now(), expires_at FROM settled
				WHERE event_id = $1 AND attempt > $2`, t.Delivery.Event, t.Attempt)
		}
		return took, err
	}
	return f
}

// stubborn gives what failed for the last time one attempt more.
func stubborn(r *rig, next worker.Store) worker.Store {
	f := &faulty{Store: next, r: r}
	f.claim = func(ctx context.Context, worker string, wants []store.Want) ([]*store.Claim, error) {
		for i := range wants {
			wants[i].MaxAttempts++
		}
		return next.Claim(ctx, worker, wants)
	}
	f.complete = func(ctx context.Context, outcomes []store.Outcome) ([]bool, error) {
		for i := range outcomes {
			if o := &outcomes[i]; o.Reason == event.ReasonAttemptsExhausted && o.Claim.Attempts == maxAttempts {
				o.Verdict, o.Reason = event.VerdictFailed, ""
			}
		}
		return next.Complete(ctx, outcomes)
	}
	return f
}

// stamp writes when attempts begin by the clock of a worker that is off.
func stamp(off string) func(*rig, worker.Store) worker.Store {
	return func(r *rig, next worker.Store) worker.Store {
		f := &faulty{Store: next, r: r}
		f.claim = func(ctx context.Context, worker string, wants []store.Want) ([]*store.Claim, error) {
			claims, err := next.Claim(ctx, worker, wants)
			for _, c := range claims {
				t := c.Token
				err = f.exec(ctx, `UPDATE attempt SET started_at = started_at + $1::text::interval
					WHERE event_id = $2 AND run = $3 AND attempt = $4 AND destination_id = (
						SELECT d.id FROM destination d JOIN endpoint e ON e.id = d.endpoint_id WHERE e.name = $5 AND d.name = $6)`,
					off, t.Delivery.Event, t.Delivery.Run, t.Attempt, t.Delivery.Destination.Endpoint.Name, t.Delivery.Destination.Name)
				if err != nil {
					return nil, err
				}
			}
			return claims, err
		}
		return f
	}
}

// tidyUp takes what is held for what nobody needs.
func tidyUp(r *rig, next worker.Store) worker.Store {
	f := &faulty{Store: next, r: r}
	f.maintain = func(ctx context.Context) error {
		return f.exec(ctx, `DELETE FROM delivery d USING destination n, endpoint e
			WHERE n.id = d.destination_id AND e.id = n.endpoint_id AND e.name = $1`, held.Name)
	}
	return f
}

// planned is a store of replays in which planning anew has an effect.
type planned struct {
	replay.Store
	r *rig
	// again is what planning does to a replay that is there, by its id.
	again string
}

func (p *planned) PlanReplay(ctx context.Context, request replay.Request) error {
	if _, err := p.r.pool.Exec(ctx, p.again, request.ID); err != nil {
		return err
	}
	return p.Store.PlanReplay(ctx, request)
}

// repeat takes everything again.
func repeat(r *rig, next replay.Store) replay.Store {
	return &planned{next, r, `UPDATE replay_item SET state = 'planned', run = run + 1 WHERE replay_id = $1`}
}

// forgetEarlierRuns keeps the ledger of the last run only.
func forgetEarlierRuns(r *rig, next replay.Store) replay.Store {
	return &planned{next, r, `DELETE FROM attempt a USING replay_item i
		WHERE i.replay_id = $1 AND i.event_id = a.event_id AND i.destination_id = a.destination_id AND i.run = a.run`}
}
