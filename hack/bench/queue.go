package main

import (
	"cmp"
	"context"
	_ "embed" // fill.sql
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

//go:embed fill.sql
var sqlFill string

// ref names the first destination of an endpoint.
func ref(ep *pipeline.Endpoint) event.DestinationRef {
	return event.DestinationRef{Endpoint: ep.Ref(), Name: ep.Destinations[0].Name}
}

// fill puts deliveries with their events into a queue, of which the last is
// due in a while, or was.
func fill(ctx context.Context, s *store.Store, url string, to event.DestinationRef, n, body int, due time.Duration) (err error) {
	if err := s.Register(ctx, []event.DestinationRef{to}); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	_, err = conn.Exec(ctx, sqlFill, to.Endpoint.Namespace, to.Endpoint.Name, to.Name, n, makeBody(body), time.Now().UnixMilli(), due)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE) delivery")
	return err
}

// submit commits one event of an endpoint, owed to its first destination.
func submit(ctx context.Context, q *store.Enqueuer, ep *pipeline.Endpoint, body []byte) error {
	return submitTo(ctx, q, ep, []string{ep.Destinations[0].Name}, body)
}

func submitTo(ctx context.Context, q *store.Enqueuer, ep *pipeline.Endpoint, destinations []string, body []byte) error {
	id, err := event.NewID()
	if err != nil {
		return err
	}
	_, err = q.Enqueue(ctx, store.Submission{
		Event: &event.Event{
			ID: id, Endpoint: ep.Ref(), Key: uuid.NewString(), Type: "push", ContentType: "application/json", Body: body,
			Headers: map[string][]string{"User-Agent": {"GitHub-Hookshot/1"}, "X-Github-Event": {"push"}},
		},
		Destinations: destinations, KeepEvent: ep.Retention.Events(), KeepKey: ep.Retention.Dedup(),
	})
	return err
}

// enqueue commits n events, batched, as 64 callers of an ingress do.
func enqueue(ctx context.Context, s *store.Store, ep *pipeline.Endpoint, n, body int) error {
	q := store.NewEnqueuer(s, store.EnqueuerOptions{})
	defer q.Close()
	payload := makeBody(body)
	var left atomic.Int64
	left.Store(int64(n))
	_, err := concurrently(64, func(int) error {
		for left.Add(-1) >= 0 {
			if err := submit(ctx, q, ep, payload); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// concurrently has so many callers do something, and tells how long the last
// one took. Of many errors it returns one.
func concurrently(callers int, do func(caller int) error) (time.Duration, error) {
	failures := make([]error, callers)
	start := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { failures[i] = do(i) })
	}
	all.Wait()
	return time.Since(start), cmp.Or(failures...)
}
