package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/worker"
)

// What live events meet: a handler that takes a while, with room for some at
// once.
const (
	replayedAtOnce  = 64
	replayHandler   = 10 * time.Millisecond
	livePerSecond   = 50
	liveAlone       = 15 * time.Second
	mostReplayTurns = 3
)

// measureReplay compares how long live events take to their destination while
// a replay runs with how long they take alone.
func measureReplay(ctx context.Context, e *env) ([]figure, error) {
	n := e.scaled(100_000, 20)
	s, url, err := e.open(ctx, 16)
	if err != nil {
		return nil, err
	}
	f := newFigure(fmt.Sprintf("p95 of live events beside a replay of %d ÷ alone", n), "ms", atMost(3, 1.5))
	for round := range min(e.rounds, mostReplayTurns) {
		ep := endpoint(nowhere)
		ep.Name = fmt.Sprint("replay-", round)
		ep.Destinations[0].MaxConcurrency = replayedAtOnce
		if err := bury(ctx, e, s, url, &ep, n); err != nil {
			return nil, fmt.Errorf("making dead letters: %w", err)
		}
		alone, beside, took, err := liveBesideReplay(ctx, e, s, &ep)
		if err != nil {
			return nil, err
		}
		progress("  %s, round %d: %.1f ms against %.1f ms; the replay took %.0f s", f.Name, round+1, beside, alone, took.Seconds())
		f.add(beside, alone)
		f.Note = fmt.Sprintf("%d live events/s; the last replay delivered %.0f/s", livePerSecond, float64(n)/took.Seconds())
	}
	return []figure{f}, nil
}

// liveBesideReplay returns the 95th percentiles of live events alone and
// beside a replay of all that is dead, in milliseconds, and how long that took.
func liveBesideReplay(ctx context.Context, e *env, s *store.Store, ep *pipeline.Endpoint) (alone, beside float64, took time.Duration, err error) {
	clock := &stopwatch{pending: map[event.ID]time.Time{}}
	w, err := worker.New(configuration(*ep), worker.Options{
		Name:       "bench",
		Store:      s,
		Sender:     func(pipeline.Destination) (worker.Sender, error) { return clock, nil },
		Logger:     slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return 0, 0, 0, err
	}
	running, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { w.Run(running) })
	defer all.Wait()
	defer stop()

	// The first second does not count.
	if _, err := clock.live(ctx, e, s, ep, after(time.Second)); err != nil {
		return 0, 0, 0, err
	}
	if alone, err = clock.live(ctx, e, s, ep, after(liveAlone)); err != nil {
		return 0, 0, 0, err
	}
	ended := make(chan struct{})
	var failed error
	start := time.Now()
	all.Go(func() {
		defer close(ended)
		failed = replayAll(ctx, s, ep)
		took = time.Since(start)
	})
	beside, err = clock.live(ctx, e, s, ep, ended)
	<-ended
	return alone, beside, took, errors.Join(failed, err)
}

func after(d time.Duration) <-chan struct{} {
	ended := make(chan struct{})
	time.AfterFunc(d, func() { close(ended) })
	return ended
}

// replayAll replays all that is dead as the operator does.
func replayAll(ctx context.Context, s *store.Store, ep *pipeline.Endpoint) error {
	r := replay.Request{
		ID: uuid.New(), Namespace: ep.Namespace, Name: ep.Name, Endpoint: ep.Ref(), Present: []string{ep.Destinations[0].Name},
		Selector: replay.Selector{States: []event.State{event.StateDead}},
	}
	if err := s.PlanReplay(ctx, r); err != nil {
		return err
	}
	pace := replay.NewPace(0)
	tick := time.NewTicker(replay.Step)
	defer tick.Stop()
	for {
		status, err := replay.Advance(ctx, s, r, pace)
		switch {
		case err != nil:
			return err
		case status.CompletedAt != nil && status.Succeeded == status.Matched:
			return nil
		case status.CompletedAt != nil:
			return fmt.Errorf("the replay ended with %+v", status)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bury makes dead letters.
func bury(ctx context.Context, e *env, s *store.Store, url string, ep *pipeline.Endpoint, n int) error {
	if err := fill(ctx, s, url, ref(ep), n, e.body, 0); err != nil {
		return err
	}
	var since time.Time
	for {
		claims, err := s.Claim(ctx, "bench", []store.Want{{
			Destination: ref(ep), Most: 500, MostBytes: 1 << 30, Lease: time.Hour, MaxAttempts: 1, KeepLedger: time.Hour, Since: since,
		}})
		if err != nil || len(claims) == 0 {
			return err
		}
		outcomes := make([]store.Outcome, len(claims))
		for i, c := range claims {
			since = c.Seen
			outcomes[i] = store.Outcome{Claim: c, Verdict: event.VerdictDead, Reason: event.ReasonPermanentStatus, KeepLedger: time.Hour, KeepEnded: 24 * time.Hour}
		}
		if _, err := s.Complete(ctx, outcomes); err != nil {
			return err
		}
	}
}

// stopwatch is a handler that takes some time, and tells how long live events
// were on their way to it.
type stopwatch struct {
	mu      sync.Mutex
	pending map[event.ID]time.Time
	took    []float64 // milliseconds
}

// Send takes its time.
func (c *stopwatch) Send(ctx context.Context, r *deliver.Request) deliver.Outcome {
	select {
	case <-time.After(replayHandler):
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if start, ok := c.pending[r.Event.ID]; ok {
		delete(c.pending, r.Event.ID)
		c.took = append(c.took, time.Since(start).Seconds()*1000)
	}
	return deliver.Outcome{Verdict: event.VerdictDone, Status: 200}
}

// live stores events at a steady rate, whatever becomes of them, until ended
// is closed, and returns the 95th percentile, in milliseconds, of the time
// from then to the end of their exchanges.
func (c *stopwatch) live(ctx context.Context, e *env, s *store.Store, ep *pipeline.Endpoint, ended <-chan struct{}) (float64, error) {
	notifier := store.NewNotifier(s)
	defer notifier.Close()
	q := store.NewEnqueuer(s, store.EnqueuerOptions{OnCommit: notifier.Notify})
	defer q.Close()
	body := makeBody(e.body)
	var calls sync.WaitGroup
	failures := make(chan error, 1)
	tick := time.NewTicker(time.Second / livePerSecond)
	defer tick.Stop()
	for going := true; going; {
		select {
		case <-ended:
			going = false
			continue
		case <-ctx.Done():
			going = false
			continue
		case <-tick.C:
		}
		calls.Go(func() {
			if err := c.store(ctx, q, ep, body); err != nil {
				select {
				case failures <- err:
				default:
				}
			}
		})
	}
	calls.Wait()
	select {
	case err := <-failures:
		return 0, err
	default:
	}
	return c.take(ctx)
}

func (c *stopwatch) store(ctx context.Context, q *store.Enqueuer, ep *pipeline.Endpoint, body []byte) error {
	id, err := event.NewID()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.pending[id] = time.Now()
	c.mu.Unlock()
	_, err = q.Enqueue(ctx, store.Submission{
		Event:        &event.Event{ID: id, Endpoint: ep.Ref(), Key: id.String(), Type: "push", ContentType: "application/json", Body: body},
		Destinations: []string{ep.Destinations[0].Name}, KeepEvent: ep.Retention.Events(), KeepKey: ep.Retention.Dedup(),
	})
	return err
}

// take waits until all live events have arrived, and returns how long 95 of
// 100 took at most.
func (c *stopwatch) take(ctx context.Context) (float64, error) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		c.mu.Lock()
		took, left := c.took, len(c.pending)
		if left == 0 {
			c.took = nil
		}
		c.mu.Unlock()
		if left == 0 && len(took) == 0 {
			return 0, errors.New("no live event was measured")
		}
		if left == 0 {
			slices.Sort(took)
			return quantile(took, 0.95), nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
