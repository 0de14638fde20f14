package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/ingress"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/worker"
)

// ingressPart prepares an ingress that answers on a listener.
func (p *plan) ingressPart(registry *prometheus.Registry, l net.Listener) (part, error) {
	metrics, err := ingress.NewMetrics(registry)
	if err != nil {
		return nil, err
	}
	// One for notifications, one for the start, the others for the flushers.
	s, err := p.database.open(store.Options{MaxConns: 2 + store.DefaultFlushers, Name: "ackrail ingress", Logger: p.log})
	if err != nil {
		return nil, err
	}
	notifier := store.NewNotifier(s)
	enqueuer := store.NewEnqueuer(s, store.EnqueuerOptions{OnBatch: metrics.ObserveBatch, OnCommit: notifier.Notify})
	release := func() {
		enqueuer.Close()
		notifier.Close()
		s.Close()
	}
	handler, err := ingress.New(p.config, ingress.Options{
		SecretsDir: p.secretsDir,
		Enqueuer:   enqueuer,
		Metrics:    metrics,
		Logger:     p.log,

		MaxInflightBytes: p.limits.inflightBytes,
	})
	if err != nil {
		release()
		return nil, err
	}
	server := ingress.NewServer(handler, ingress.ServerOptions{MaxConnections: p.limits.connections, Logger: p.log})
	return func(ctx context.Context) error {
		defer release()
		var background sync.WaitGroup
		defer background.Wait()
		preparing, stop := context.WithCancel(ctx)
		defer stop()
		background.Go(func() { prepareStore(preparing, s, p.config, p.log) })
		background.Go(func() {
			select {
			case <-p.leaving:
				server.Drain()
				<-preparing.Done()
			case <-preparing.Done():
			}
			draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.drainTimeout)
			defer cancel()
			if err := server.Shutdown(draining); err != nil {
				p.log.Warn("Requests were cut off", "error", err)
			}
		})
		p.log.Info("Ingress started", "address", l.Addr().String(), "endpoints", len(p.config.Endpoints))
		if err := server.Serve(l); err != nil {
			return fmt.Errorf("serving webhooks: %w", err)
		}
		background.Wait()
		p.log.Info("Ingress stopped")
		return nil
	}, nil
}

// prepareStore makes names and partitions known to the database ahead of the
// first event. Events do not depend on it, so it is tried until it works.
func prepareStore(ctx context.Context, s *store.Store, c *pipeline.Config, log *slog.Logger) {
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 5*time.Second) {
		err := prepareOnce(ctx, s, c, log)
		if err == nil {
			return
		}
		log.Warn("The database is not ready, webhooks are answered with 503 until it is", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func prepareOnce(ctx context.Context, s *store.Store, c *pipeline.Config, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := s.Ping(ctx); err != nil {
		return err
	}
	if err := s.Register(ctx, destinations(c)); err != nil {
		return err
	}
	if err := s.EnsurePartitions(ctx, worker.Keeps(c)); err != nil {
		log.Debug("Partitions are left to the workers", "error", err)
	}
	return nil
}
