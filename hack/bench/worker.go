package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/worker"
)

// measureBurnDown compares how fast a worker claims, carries out (nothing) and
// completes what is in a queue, ledger and fencing included, with River.
func measureBurnDown(ctx context.Context, e *env) ([]figure, error) {
	n := e.scaled(50_000, 5)
	s, url, err := e.open(ctx, 5)
	if err != nil {
		return nil, err
	}
	peer, err := newRiver(ctx, e)
	if err != nil {
		return nil, err
	}
	f := newFigure("claim → nothing → complete ÷ River", "deliveries/s", atLeast(2, 3))
	ep := endpoint(nowhere)
	return []figure{f}, e.interleave(ctx, &f, func(ctx context.Context) (float64, error) {
		if err := fill(ctx, s, url, ref(&ep), n, e.body, 0); err != nil {
			return 0, err
		}
		return drain(ctx, s, s, &ep, n)
	}, func(ctx context.Context) (float64, error) { return peer.burnDown(ctx, n) })
}

// drain has a worker carry out n deliveries, which are all that wait, and
// returns how many it did per second.
func drain(ctx context.Context, s *store.Store, as worker.Store, ep *pipeline.Endpoint, n int) (float64, error) {
	count := &counter{until: int64(n), done: make(chan struct{})}
	w, err := worker.New(configuration(*ep), worker.Options{
		Name:       "bench",
		Store:      as,
		Sender:     func(pipeline.Destination) (worker.Sender, error) { return count, nil },
		Logger:     slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	start := time.Now()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.Run(running)
	}()
	select {
	case <-count.done:
	case <-ctx.Done():
	}
	stop()
	<-stopped // the last outcomes are recorded
	took := time.Since(start)
	counts, err := s.Counts(ctx, []event.DestinationRef{ref(ep)})
	if err != nil {
		return 0, err
	}
	if left := counts[0].Pending + counts[0].Claimed + counts[0].Failed; left > 0 {
		return 0, fmt.Errorf("%d deliveries are left", left)
	}
	return float64(n) / took.Seconds(), nil
}

// counter is a sender that sends nothing.
type counter struct {
	n, until int64
	done     chan struct{}
}

// Send takes no time.
func (c *counter) Send(context.Context, *deliver.Request) deliver.Outcome {
	if atomic.AddInt64(&c.n, 1) == c.until {
		close(c.done)
	}
	return deliver.Outcome{Verdict: event.VerdictDone, Status: 200}
}
