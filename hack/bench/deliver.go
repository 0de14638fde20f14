package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// measureDelivery compares a worker that delivers to a sink on this machine
// with a client that only sends requests to it, as many at once.
func measureDelivery(ctx context.Context, e *env) ([]figure, error) {
	const concurrency = 64
	s, url, err := e.open(ctx, 2)
	if err != nil {
		return nil, err
	}
	to, err := e.sink()
	if err != nil {
		return nil, err
	}
	ep := endpoint(to.url)
	ep.Destinations[0].MaxConcurrency = concurrency
	n := int(e.duration.Seconds() * 4000)
	f := newFigure(fmt.Sprintf("delivered to a sink on this machine, %d at once ÷ bare client loop", concurrency), "/s", atLeast(0.5, 0.7))
	return []figure{f}, e.interleave(ctx, &f, func(ctx context.Context) (float64, error) {
		if err := fill(ctx, s, url, ref(&ep), n, e.body, 0); err != nil {
			return 0, err
		}
		before := to.requests.Load()
		w, err := e.worker(ctx, url, configuration(ep))
		if err != nil {
			return 0, err
		}
		defer w.stop()
		// From the first requests on: starting the process is not measured.
		if err := to.wait(ctx, before+concurrency, time.Minute); err != nil {
			return 0, err
		}
		first, start := to.requests.Load(), time.Now()
		if err := to.wait(ctx, before+int64(n), time.Minute); err != nil {
			return 0, err
		}
		return float64(before+int64(n)-first) / time.Since(start).Seconds(), nil
	}, func(ctx context.Context) (float64, error) { return e.post(ctx, to.url, concurrency) })
}

// post has clients send bodies for a turn and returns how many requests they
// did per second.
func (e *env) post(ctx context.Context, url string, clients int) (float64, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	body := makeBody(e.body)
	var n atomic.Int64
	deadline := time.Now().Add(e.duration)
	took, err := concurrently(clients, func(int) error {
		for time.Now().Before(deadline) {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				return err
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			n.Add(1)
		}
		return nil
	})
	return float64(n.Load()) / took.Seconds(), err
}
