package main

import (
	"context"
	"fmt"
)

// acknowledged returns a turn that loads an ingress without pause and tells
// how many requests a second it acknowledges.
func (e *env) acknowledged(p *process, connections int) turn {
	return func(ctx context.Context) (float64, error) {
		l, err := e.load(ctx, p.address, load{connections: connections, duration: e.duration})
		if err != nil {
			return 0, err
		}
		return l.rate, nil
	}
}

// measureIngest compares requests acknowledged over HTTP with single-row
// inserts of as many clients.
func measureIngest(ctx context.Context, e *env) ([]figure, error) {
	reference, err := newPgbench(ctx, e)
	if err != nil {
		return nil, err
	}
	p, err := e.loneIngress(ctx)
	if err != nil {
		return nil, err
	}
	f := newFigure("acknowledged at 64 connections ÷ pgbench at 64 clients", "/s", atLeast(1.2, 1.6))
	if err := e.interleave(ctx, &f, e.acknowledged(p, 64), reference.rate(64)); err != nil {
		return nil, err
	}
	f.Note, err = batches(p)
	return []figure{f}, err
}

// batches tells how many events shared a commit, and how long one took, from
// an ingress' own metrics.
func batches(p *process) (string, error) {
	figures, err := p.metrics()
	if err != nil {
		return "", err
	}
	commits := figures["ackrail_ingress_batch_events_count"]
	return fmt.Sprintf("%.1f events in a commit, which took %.1f ms on average", figures["ackrail_ingress_batch_events_sum"]/commits,
		1000*figures[`ackrail_ingress_batch_seconds_sum{outcome="committed"}`]/commits), nil
}

// measureIngestWhileDelivering is the same while a worker delivers every event
// to a sink beside it.
func measureIngestWhileDelivering(ctx context.Context, e *env) ([]figure, error) {
	reference, err := newPgbench(ctx, e)
	if err != nil {
		return nil, err
	}
	url, err := e.migrated(ctx)
	if err != nil {
		return nil, err
	}
	sink, err := e.sink()
	if err != nil {
		return nil, err
	}
	c := configuration(endpoint(sink.url))
	p, err := e.ingress(ctx, url, c)
	if err != nil {
		return nil, err
	}
	f := newFigure("acknowledged at 64 connections while workers deliver ÷ pgbench at 64 clients", "/s", atLeast(0.7, 1))
	var accepted, delivered float64
	err = e.interleave(ctx, &f, func(ctx context.Context) (float64, error) {
		// The worker would go on with what is left during pgbench's turn.
		w, err := e.worker(ctx, url, c)
		if err != nil {
			return 0, err
		}
		defer w.stop()
		before := sink.requests.Load()
		rate, err := e.acknowledged(p, 64)(ctx)
		accepted += rate * e.duration.Seconds()
		delivered += float64(sink.requests.Load() - before)
		return rate, err
	}, reference.rate(64))
	f.Note = fmt.Sprintf("%.0f %% were delivered meanwhile", 100*delivered/accepted)
	return []figure{f}, err
}

// measureManyConnections compares more connections with as many clients as
// pgbench is quickest with.
func measureManyConnections(ctx context.Context, e *env) ([]figure, error) {
	reference, err := newPgbench(ctx, e)
	if err != nil {
		return nil, err
	}
	p, err := e.loneIngress(ctx)
	if err != nil {
		return nil, err
	}
	best, quickest := 0, 0.0
	for _, clients := range []int{16, 32, 64, 128} {
		rate, err := reference.rate(clients)(ctx)
		if err != nil {
			return nil, err
		}
		progress("  pgbench with %d clients: %.0f/s", clients, rate)
		if rate > quickest {
			best, quickest = clients, rate
		}
	}
	f := newFigure("acknowledged at 256 connections ÷ pgbench at its best client count", "/s", atLeast(1.5, 2))
	if err := e.interleave(ctx, &f, e.acknowledged(p, 256), reference.rate(best)); err != nil {
		return nil, err
	}
	f.Note, err = batches(p)
	f.Note = fmt.Sprintf("pgbench is best at %d clients; %s", best, f.Note)
	return []figure{f}, err
}
