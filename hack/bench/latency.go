package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// measureAck compares how long a sender waits for its answer with how long a
// single-row insert takes.
func measureAck(ctx context.Context, e *env) ([]figure, error) {
	reference, err := newPgbench(ctx, e)
	if err != nil {
		return nil, err
	}
	p, err := e.loneIngress(ctx)
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, b := range []struct {
		connections int
		bounds
	}{{1, atMost(1.5, 1.2)}, {8, atMost(1.5, 1.2)}, {64, atMost(0.7, 0.5)}} {
		f := newFigure(fmt.Sprintf("ack p50 ÷ pgbench's mean latency at %d", b.connections), "ms", b.bounds)
		err := e.interleave(ctx, &f, func(ctx context.Context) (float64, error) {
			l, err := e.load(ctx, p.address, load{connections: b.connections, duration: e.duration})
			if err != nil {
				return 0, err
			}
			return milliseconds(quantile(l.latencies, 0.5)), nil
		}, reference.latency(b.connections))
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// light is a load under which nothing queues: 200 requests a second.
func (e *env) light() load {
	return load{connections: 16, duration: e.duration, pace: 80 * time.Millisecond}
}

// measureAckBesideBacklog compares the slowest answers while a worker gets
// through a backlog with those while nothing else happens.
func measureAckBesideBacklog(ctx context.Context, e *env) ([]figure, error) {
	s, url, err := e.open(ctx, 2)
	if err != nil {
		return nil, err
	}
	to, err := e.sink()
	if err != nil {
		return nil, err
	}
	ep := endpoint(to.url)
	p, err := e.ingress(ctx, url, configuration(ep))
	if err != nil {
		return nil, err
	}
	n := e.scaled(1_000_000, 20)
	progress("  filling a queue with %d deliveries", n)
	if err := fill(ctx, s, url, ref(&ep), n, e.body, 0); err != nil {
		return nil, err
	}
	slowest := func(ctx context.Context) (float64, error) {
		l, err := e.load(ctx, p.address, e.light())
		if err != nil {
			return 0, err
		}
		return milliseconds(quantile(l.latencies, 0.99)), nil
	}
	f := newFigure(fmt.Sprintf("ack p99 at 200/s, a backlog of %d draining ÷ idle", n), "ms", atMost(3, 2))
	err = e.interleave(ctx, &f, func(ctx context.Context) (float64, error) {
		w, err := e.worker(ctx, url, configuration(ep))
		if err != nil {
			return 0, err
		}
		defer w.stop()
		if err := to.wait(ctx, to.requests.Load()+1, time.Minute); err != nil {
			return 0, err
		}
		return slowest(ctx)
	}, slowest)
	f.Note = fmt.Sprintf("%d were delivered meanwhile", to.requests.Load())
	return []figure{f}, err
}

// measureHandOver tells how long it takes from the answer, which follows the
// commit, until the request arrives at its destination, when little happens.
func measureHandOver(ctx context.Context, e *env) ([]figure, error) {
	flush, err := e.flushTime()
	if err != nil {
		return nil, err
	}
	url, err := e.migrated(ctx)
	if err != nil {
		return nil, err
	}
	h := &handOver{acknowledged: map[string]time.Time{}, arrived: map[string]time.Time{}}
	to, err := e.listen(&sink{arrived: h.arrive})
	if err != nil {
		return nil, err
	}
	c := configuration(endpoint(to.url))
	if _, err := e.worker(ctx, url, c); err != nil {
		return nil, err
	}
	p, err := e.ingress(ctx, url, c)
	if err != nil {
		return nil, err
	}
	const note = "10 events a second; peers: 23 and 49 ms"
	middle := newFigure("ack → request arrives at low load, p50", "ms", atMost(3*milliseconds(flush)+20, milliseconds(flush)+5))
	high := newFigure("ack → request arrives at low load, p95", "ms", atMost(49, 15))
	middle.Note, high.Note = fmt.Sprintf("a flush took %.2f ms; %s", milliseconds(flush), note), note+", the latter is what must hold here"
	for range e.rounds {
		h.reset()
		if _, err := e.load(ctx, p.address, load{connections: 2, duration: 2 * e.duration, pace: 200 * time.Millisecond, answered: h.acknowledge}); err != nil {
			return nil, err
		}
		var took []time.Duration
		if err := until(ctx, "waiting for the deliveries", func() (err error) {
			took, err = h.took()
			return err
		}); err != nil {
			return nil, err
		}
		middle.Product = append(middle.Product, milliseconds(quantile(took, 0.5)))
		high.Product = append(high.Product, milliseconds(quantile(took, 0.95)))
	}
	return []figure{middle, high}, nil
}

// handOver is when events were acknowledged, and when they arrived.
type handOver struct {
	mu                    sync.Mutex
	acknowledged, arrived map[string]time.Time
}

func (h *handOver) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.acknowledged)
	clear(h.arrived)
}

func (h *handOver) acknowledge(answer []byte) {
	now := time.Now()
	var a struct{ EventID string }
	_ = json.Unmarshal(answer, &a) // what has no id is missed by took
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acknowledged[a.EventID] = now
}

func (h *handOver) arrive(event string) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.arrived[event] = now
}

// took returns how long each event took, sorted; those that arrived before
// their sender had its answer took no time.
func (h *handOver) took() ([]time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []time.Duration
	for event, at := range h.acknowledged {
		arrived, ok := h.arrived[event]
		if !ok {
			return nil, fmt.Errorf("event %s did not arrive", event)
		}
		all = append(all, max(0, arrived.Sub(at)))
	}
	if len(all) == 0 {
		return nil, errors.New("no event was acknowledged")
	}
	slices.Sort(all)
	return all, nil
}
