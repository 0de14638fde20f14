package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverArgs is a job with the body of an event.
type riverArgs struct {
	Body string `json:"body"`
}

// Kind names the jobs.
func (riverArgs) Kind() string { return "bench" }

// riverWorker does nothing.
type riverWorker struct {
	river.WorkerDefaults[riverArgs]
}

// Work takes no time.
func (*riverWorker) Work(context.Context, *river.Job[riverArgs]) error { return nil }

// riverPeer is River as its own benchmark sets it up.
type riverPeer struct {
	e    *env
	pool *pgxpool.Pool
}

func newRiver(ctx context.Context, e *env) (*riverPeer, error) {
	url, err := e.empty(ctx)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	// Twice of what a worker of ours has.
	config.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	e.onEnd(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return &riverPeer{e: e, pool: pool}, err
}

// burnDown returns how many of n jobs River works per second, from its start
// to the last job's completion. The settings are those of River's benchmark.
func (r *riverPeer) burnDown(ctx context.Context, n int) (float64, error) {
	for _, sql := range []string{"TRUNCATE river_job", "VACUUM FULL river_job"} {
		if _, err := r.pool.Exec(ctx, sql); err != nil {
			return 0, err
		}
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		Workers:           workers,
		Logger:            slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return 0, err
	}
	completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: n, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer unsubscribe()
	if err := insertJobs(ctx, client, n, string(makeBody(r.e.body))); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	for range n {
		select {
		case <-completed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	took := time.Since(start)
	if err := client.Stop(ctx); err != nil {
		return 0, fmt.Errorf("stopping River: %w", err)
	}
	return float64(n) / took.Seconds(), nil
}

func insertJobs(ctx context.Context, client *river.Client[pgx.Tx], n int, body string) error {
	const batch = 5000
	for left := n; left > 0; left -= batch {
		params := make([]river.InsertManyParams, min(left, batch))
		for i := range params {
			params[i].Args = riverArgs{Body: body}
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}
