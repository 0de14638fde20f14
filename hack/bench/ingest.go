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
	url, err := e.migrated(ctx)
	if err != nil {
		return nil, err
	}
	p, err := e.ingress(ctx, url, configuration(endpoint(nowhere)))
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
