package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

// measureBatching compares events that share commits with each in a statement
// of its own, on a connection of its own.
func measureBatching(ctx context.Context, e *env) ([]figure, error) {
	batched, _, err := e.open(ctx, store.DefaultFlushers)
	if err != nil {
		return nil, err
	}
	ep := endpoint(nowhere)
	var figures []figure
	for _, b := range []struct {
		callers int
		bounds
	}{{1, atLeast(0.95, 1)}, {8, atLeast(0.95, 1)}, {64, atLeast(2, 3)}, {256, atLeast(3, 4)}} {
		queues, err := e.direct(ctx, b.callers)
		if err != nil {
			return nil, err
		}
		f := newFigure(fmt.Sprintf("batched ÷ direct insert, %d callers", b.callers), "/s", b.bounds)
		err = e.interleave(ctx, &f, func(ctx context.Context) (float64, error) {
			q := store.NewEnqueuer(batched, store.EnqueuerOptions{})
			defer q.Close()
			return e.submitted(ctx, &ep, b.callers, func(int) *store.Enqueuer { return q })
		}, func(ctx context.Context) (float64, error) {
			return e.submitted(ctx, &ep, b.callers, func(caller int) *store.Enqueuer { return queues[caller] })
		})
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// direct returns a queue for each caller, which is none: each event is a
// statement of its own, on a connection that is open.
func (e *env) direct(ctx context.Context, callers int) ([]*store.Enqueuer, error) {
	url, err := e.migrated(ctx)
	if err != nil {
		return nil, err
	}
	// Very many connections at once need their time to be made.
	s, err := store.Open(url+"&connect_timeout=60", store.Options{MaxConns: callers, Name: "ackrail bench"})
	if err != nil {
		return nil, err
	}
	e.onEnd(s.Close)
	queues := make([]*store.Enqueuer, callers)
	for i := range queues {
		queues[i] = store.NewEnqueuer(s, store.EnqueuerOptions{Flushers: 1, MaxBatch: 1, FlushTimeout: time.Minute})
		e.onEnd(queues[i].Close)
	}
	ep := endpoint(nowhere)
	_, err = concurrently(callers, func(caller int) error { return submit(ctx, queues[caller], &ep, makeBody(e.body)) })
	return queues, err
}

// submitted has callers commit events for a turn, each through its queue, and
// returns how many they did per second.
func (e *env) submitted(ctx context.Context, ep *pipeline.Endpoint, callers int, queue func(caller int) *store.Enqueuer) (float64, error) {
	var n atomic.Int64
	body := makeBody(e.body)
	deadline := time.Now().Add(e.duration)
	took, err := concurrently(callers, func(caller int) error {
		for q := queue(caller); time.Now().Before(deadline); n.Add(1) {
			if err := submit(ctx, q, ep, body); err != nil {
				return err
			}
		}
		return nil
	})
	return float64(n.Load()) / took.Seconds(), err
}

// measureWakeUps compares commits that wake a listening worker with commits
// that do not.
func measureWakeUps(ctx context.Context, e *env) ([]figure, error) {
	s, _, err := e.open(ctx, 2+store.DefaultFlushers)
	if err != nil {
		return nil, err
	}
	listening, stop := context.WithCancel(ctx)
	defer stop()
	var wakeUps atomic.Int64
	go func() { _ = s.Listen(listening, func() { wakeUps.Add(1) }) }()
	notifier := store.NewNotifier(s)
	defer notifier.Close()
	ep := endpoint(nowhere)
	side := func(o store.EnqueuerOptions) turn {
		return func(ctx context.Context) (float64, error) {
			q := store.NewEnqueuer(s, o)
			defer q.Close()
			return e.submitted(ctx, &ep, 64, func(int) *store.Enqueuer { return q })
		}
	}
	f := newFigure("committed with wake-ups ÷ without, 64 callers", "/s", atLeast(0.95, 1))
	err = e.interleave(ctx, &f, side(store.EnqueuerOptions{OnCommit: notifier.Notify}), side(store.EnqueuerOptions{}))
	f.Note = fmt.Sprintf("%d wake-ups were heard", wakeUps.Load())
	return []figure{f}, err
}
