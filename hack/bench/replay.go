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

// measureReplay compares how long live events take to their destination alone
// and while a replay runs, in turns.
func measureReplay(ctx context.Context, o *options, url string) error {
	s, err := store.Open(url, store.Options{MaxConns: 16, Name: "ackrail bench"})
	if err != nil {
		return err
	}
	defer s.Close()
	var ratios []float64
	for round := range o.rounds {
		e := endpoint()
		e.Name = fmt.Sprint("replay-", round)
		e.Destinations[0].MaxConcurrency = o.concurrency
		r, err := replayRound(ctx, o, s, &e)
		if err != nil {
			return err
		}
		ratios = append(ratios, r.beside.p95/r.alone.p95)
		fmt.Printf("round %d: live events alone p50 %.1f ms, p95 %.1f ms (%d); beside a replay of %d, which took %.0f s (%.0f/s), p50 %.1f ms, p95 %.1f ms (%d): ratio %.2f\n",
			round+1, r.alone.p50, r.alone.p95, r.alone.n, o.replay, r.took.Seconds(), float64(o.replay)/r.took.Seconds(),
			r.beside.p50, r.beside.p95, r.beside.n, ratios[round])
	}
	fmt.Printf("live p95 beside a replay over alone: median %.2f (%.2f - %.2f)\n", median(ratios), slices.Min(ratios), slices.Max(ratios))
	return nil
}

// latencies are in milliseconds, from the moment an event is to be stored to
// the end of its exchange.
type latencies struct {
	p50, p95 float64
	n        int
}

type replayResult struct {
	alone, beside latencies
	took          time.Duration
}

// replayRound measures on an endpoint of its own.
func replayRound(ctx context.Context, o *options, s *store.Store, e *pipeline.Endpoint) (result replayResult, err error) {
	progress("Making %d dead letters", o.replay)
	if err := bury(ctx, o, s, e); err != nil {
		return result, fmt.Errorf("making dead letters: %w", err)
	}
	clock := &stopwatch{took: o.handler, pending: map[event.ID]time.Time{}}
	w, err := worker.New(&pipeline.Config{Version: pipeline.Version, Endpoints: []pipeline.Endpoint{*e}}, worker.Options{
		Name:       "bench",
		Store:      s,
		Sender:     func(pipeline.Destination) (worker.Sender, error) { return clock, nil },
		Logger:     slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return result, err
	}
	running, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { w.Run(running) })
	defer all.Wait()
	defer stop()

	clock.warmUp(ctx, o, s, e)
	ended := make(chan struct{})
	time.AfterFunc(o.duration, func() { close(ended) })
	if result.alone, err = clock.live(ctx, o, s, e, ended); err != nil {
		return result, err
	}
	progress("Replaying")
	ended = make(chan struct{})
	var failed error
	start := time.Now()
	all.Go(func() {
		defer close(ended)
		failed = advance(ctx, s, e)
		result.took = time.Since(start)
	})
	beside, err := clock.live(ctx, o, s, e, ended)
	<-ended
	result.beside = beside
	return result, errors.Join(failed, err)
}

// advance replays all that is dead as the operator does.
func advance(ctx context.Context, s *store.Store, e *pipeline.Endpoint) error {
	r := replay.Request{
		ID: uuid.New(), Namespace: e.Namespace, Name: e.Name, Endpoint: e.Ref(), Present: []string{"handler"},
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

// bury makes the dead letters of a round.
func bury(ctx context.Context, o *options, s *store.Store, e *pipeline.Endpoint) error {
	filling := *o
	filling.deliveries = o.replay
	if err := fill(ctx, &filling, s, e); err != nil {
		return err
	}
	var since time.Time
	for {
		claims, err := s.Claim(ctx, "bench", []store.Want{{
			Destination: event.DestinationRef{Endpoint: e.Ref(), Name: "handler"}, Most: 500, MostBytes: 1 << 30,
			Lease: time.Hour, MaxAttempts: 1, KeepLedger: time.Hour, Since: since,
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
	took time.Duration

	mu      sync.Mutex
	pending map[event.ID]time.Time
	figures []float64
}

func (c *stopwatch) Send(ctx context.Context, r *deliver.Request) deliver.Outcome {
	select {
	case <-time.After(c.took):
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if start, ok := c.pending[r.Event.ID]; ok {
		delete(c.pending, r.Event.ID)
		c.figures = append(c.figures, time.Since(start).Seconds()*1000)
	}
	return deliver.Outcome{Verdict: event.VerdictDone, Status: 200}
}

// warmUp sends for a second what does not count.
func (c *stopwatch) warmUp(ctx context.Context, o *options, s *store.Store, e *pipeline.Endpoint) {
	ended := make(chan struct{})
	time.AfterFunc(time.Second, func() { close(ended) })
	_, _ = c.live(ctx, o, s, e, ended)
}

// live stores events at the rate of the options, whatever becomes of them,
// until ended is closed, waits for their exchanges, and returns their
// latencies.
func (c *stopwatch) live(ctx context.Context, o *options, s *store.Store, e *pipeline.Endpoint, ended <-chan struct{}) (latencies, error) {
	notifier := store.NewNotifier(s)
	defer notifier.Close()
	q := store.NewEnqueuer(s, store.EnqueuerOptions{OnCommit: notifier.Notify})
	defer q.Close()
	body := makeBody(o.body)
	var calls sync.WaitGroup
	failures := make(chan error, 1)
	tick := time.NewTicker(time.Second / time.Duration(o.live))
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
			if err := c.store(ctx, q, e, body); err != nil {
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
		return latencies{}, err
	default:
	}
	return c.take(ctx)
}

func (c *stopwatch) store(ctx context.Context, q *store.Enqueuer, e *pipeline.Endpoint, body []byte) error {
	id, err := event.NewID()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.pending[id] = time.Now()
	c.mu.Unlock()
	_, err = q.Enqueue(ctx, store.Submission{
		Event:        &event.Event{ID: id, Endpoint: e.Ref(), Key: id.String(), Type: "push", ContentType: "application/json", Body: body},
		Destinations: []string{"handler"}, KeepEvent: e.Retention.Events(), KeepKey: e.Retention.Dedup(),
	})
	return err
}

// take waits until all live events have arrived, and returns their latencies.
func (c *stopwatch) take(ctx context.Context) (latencies, error) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		c.mu.Lock()
		figures, left := c.figures, len(c.pending)
		if left == 0 {
			c.figures = nil
		}
		c.mu.Unlock()
		if left == 0 && len(figures) == 0 {
			return latencies{}, errors.New("no live event was measured")
		}
		if left == 0 {
			slices.Sort(figures)
			return latencies{p50: figures[len(figures)/2], p95: figures[len(figures)*95/100], n: len(figures)}, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return latencies{}, ctx.Err()
		}
	}
}
