package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/ops"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/worker"
)

// plan is what a process runs.
type plan struct {
	config     *pipeline.Config
	secretsDir string
	database   databaseLocation
	// ingress: the process runs an ingress, at the address listen.
	ingress bool
	listen  string
	limits  ingressLimits
	// worker: the process runs a worker.
	worker    bool
	opsListen string
	// drainDelay is how long the process goes on taking requests after it
	// said that it is not ready any more.
	drainDelay   time.Duration
	drainTimeout time.Duration
	// profileDir is where profiles of the process go, empty for none.
	profileDir string
	// leaving is closed when the process is about to go on taking requests
	// for drainDelay only.
	leaving chan struct{}
	log     *slog.Logger
	// started is called once everything is listening.
	started func(ingress, ops net.Addr)
}

// run runs the process until the context ends, then drains it: not ready any
// more, requests under way answered, exchanges under way finished.
func (p *plan) run(ctx context.Context) (err error) {
	tuneRuntime()
	stopProfiles, err := startProfiles(p.profileDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfiles()) }()
	p.leaving = make(chan struct{})
	registry := prometheus.NewRegistry()
	opsServer, err := ops.New(registry, p.log)
	if err != nil {
		return fmt.Errorf("preparing the operations server: %w", err)
	}
	if err := registry.Register(ops.BuildInfo(version)); err != nil {
		return fmt.Errorf("registering the build's metric: %w", err)
	}
	opsListener, err := listen(p.opsListen, "--ops-listen")
	if err != nil {
		return err
	}
	defer func() { _ = opsListener.Close() }()
	parts, addr, err := p.parts(registry)
	if err != nil {
		return err
	}

	serving, stopOps := context.WithCancel(context.WithoutCancel(ctx))
	working, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	var opsDone, workDone sync.WaitGroup
	opsDone.Go(func() {
		if err := opsServer.Serve(serving, opsListener); err != nil {
			p.log.Error("Operations server failed", "error", err)
		}
	})
	defer func() {
		stopOps()
		opsDone.Wait()
	}()
	failed := make(chan error, len(parts))
	for _, part := range parts {
		workDone.Go(func() {
			if err := part(working); err != nil {
				failed <- err
			}
		})
	}
	opsServer.SetReady(true)
	if p.started != nil {
		p.started(addr, opsListener.Addr())
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	opsServer.SetReady(false)
	close(p.leaving)
	if err == nil && p.ingress && p.drainDelay > 0 {
		p.log.Info("Not ready any more, still serving", "for", p.drainDelay.String())
		<-time.After(p.drainDelay)
	}
	stopWork()
	workDone.Wait()
	return err
}

// tuneRuntime sets what the Go runtime cannot know about these processes.
func tuneRuntime() {
	// Almost all memory is garbage after one request: with little of it alive
	// the collector would run all the time. A limit keeps the factor from
	// applying to large bodies, and from outgrowing a small container. Both
	// give way to GOGC and GOMEMLIMIT.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800)
	}
	limitMemory(podMemory, 192<<20)
	// net/http's client writes the beginning of answers that nobody asked for
	// to the standard logger, which has no business with bodies.
	log.SetOutput(io.Discard)
}

// part is one half of a process. It returns when its context has ended and it
// has drained.
type part func(context.Context) error

// parts prepares what the process runs. It returns the ingress' address, nil
// for a process without one.
func (p *plan) parts(registry *prometheus.Registry) ([]part, net.Addr, error) {
	var parts []part
	var addr net.Addr
	if p.worker {
		run, err := p.workerPart(registry)
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, run)
	}
	if p.ingress {
		l, err := listen(p.listen, "--listen")
		if err != nil {
			return nil, nil, err
		}
		run, err := p.ingressPart(registry, l)
		if err != nil {
			_ = l.Close()
			return nil, nil, err
		}
		parts = append(parts, run)
		addr = l.Addr()
	}
	return parts, addr, nil
}

func listen(address, flag string) (net.Listener, error) {
	if address == "" {
		return nil, fmt.Errorf("%s: is empty: want HOST:PORT", flag)
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: %s is in use by another process: choose another address, or port 0 for any", flag, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

func (p *plan) workerPart(registry *prometheus.Registry) (part, error) {
	sender, err := deliver.New(p.secretsDir, version)
	if err != nil {
		return nil, err
	}
	// One connection each for claims, outcomes, leases and upkeep, and one to
	// spare; a listener has its own.
	s, err := p.database.open(store.Options{MaxConns: 5, Name: "ackrail worker", Logger: p.log})
	if err != nil {
		return nil, err
	}
	w, err := worker.New(p.config, worker.Options{
		Name:  processName(),
		Store: s,
		Sender: func(d pipeline.Destination) (worker.Sender, error) {
			return sender.Destination(d)
		},
		Logger:       p.log,
		Registerer:   registry,
		DrainTimeout: p.drainTimeout,
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer s.Close()
		defer sender.CloseIdleConnections()
		w.Run(ctx)
		return nil
	}, nil
}

// processName tells this process from every other one.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// destinations returns all destinations of a configuration.
func destinations(c *pipeline.Config) []event.DestinationRef {
	var refs []event.DestinationRef
	for i := range c.Endpoints {
		for _, d := range c.Endpoints[i].Destinations {
			refs = append(refs, event.DestinationRef{Endpoint: c.Endpoints[i].Ref(), Name: d.Name})
		}
	}
	return refs
}
