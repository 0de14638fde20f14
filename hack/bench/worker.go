package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/worker"
)

// measureWorker fills a queue and measures how fast a worker claims, carries
// out (nothing) and completes what is in it, ledger and fencing included.
func measureWorker(ctx context.Context, o *options, url string) error {
	s, err := store.Open(url, store.Options{MaxConns: 8, Name: "ackrail bench"})
	if err != nil {
		return err
	}
	defer s.Close()
	e := endpoint()
	e.Name = "drain"
	progress("Filling the queue with %d deliveries", o.deliveries)
	if err := fill(ctx, o, s, &e); err != nil {
		return err
	}
	done := make(chan struct{})
	count := &counter{until: int64(o.deliveries), done: done}
	w, err := worker.New(&pipeline.Config{Version: pipeline.Version, Endpoints: []pipeline.Endpoint{e}}, worker.Options{
		Name:       "bench",
		Store:      s,
		Sender:     func(pipeline.Destination) (worker.Sender, error) { return count, nil },
		Logger:     slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
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
	case <-done:
	case <-ctx.Done():
	}
	stop()
	<-stopped // the last outcomes are recorded
	took := time.Since(start)
	counts, err := s.Counts(context.WithoutCancel(ctx), []event.DestinationRef{{Endpoint: e.Ref(), Name: "handler"}})
	if err != nil {
		return err
	}
	if left := counts[0].Pending + counts[0].Claimed + counts[0].Failed; left > 0 {
		return fmt.Errorf("%d deliveries are left", left)
	}
	fmt.Printf("worker: claim, no-op, complete with ledger and fencing, %d-byte bodies: %.0f deliveries/s\n", o.body, float64(o.deliveries)/took.Seconds())
	return nil
}

// counter is a sender that sends nothing.
type counter struct {
	n, until int64
	done     chan struct{}
}

func (c *counter) Send(context.Context, *deliver.Request) deliver.Outcome {
	if atomic.AddInt64(&c.n, 1) == c.until {
		close(c.done)
	}
	return deliver.Outcome{Verdict: event.VerdictDone, Status: 200}
}

func fill(ctx context.Context, o *options, s *store.Store, e *pipeline.Endpoint) error {
	q := store.NewEnqueuer(s, store.EnqueuerOptions{})
	defer q.Close()
	body := makeBody(o.body)
	const callers = 500
	failures := make(chan error, callers)
	for range callers {
		go func() {
			for range o.deliveries / callers {
				id, err := event.NewID()
				if err == nil {
					_, err = q.Enqueue(ctx, store.Submission{
						Event:        &event.Event{ID: id, Endpoint: e.Ref(), Key: uuid.NewString(), Type: "push", ContentType: "application/json", Body: body},
						Destinations: []string{"handler"}, KeepEvent: e.Retention.Events(), KeepKey: e.Retention.Dedup(),
					})
				}
				if err != nil {
					failures <- err
					return
				}
			}
			failures <- nil
		}()
	}
	var failed error
	for range callers {
		if err := <-failures; err != nil {
			failed = err
		}
	}
	return failed
}
