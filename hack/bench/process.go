package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/postgres"
)

const (
	secret = "bench"
	// nowhere is the URL of destinations that nothing is sent to.
	nowhere = "http://127.0.0.1:9/"
)

// endpoint is what is measured: verified as GitHub's, with one destination.
func endpoint(url string) pipeline.Endpoint {
	return pipeline.Endpoint{
		Namespace:    "bench",
		Name:         "github",
		Path:         "/hooks/bench/github",
		Verification: pipeline.Verification{Provider: pipeline.ProviderGitHub, SecretFiles: []string{"secret"}},
		MaxBodyBytes: 1 << 20,
		LeaseSeconds: 60,
		Retention:    pipeline.Retention{EventsSeconds: 604800, DeadLettersSeconds: 2592000, DedupSeconds: 604800},
		Destinations: []pipeline.Destination{destination("handler", url)},
	}
}

func destination(name, url string) pipeline.Destination {
	return pipeline.Destination{
		Name:           name,
		HTTP:           pipeline.HTTP{URL: url, TimeoutSeconds: 30},
		Retry:          pipeline.Retry{MaxAttempts: 10, MinBackoffSeconds: 5, MaxBackoffSeconds: 3600},
		MaxConcurrency: 1000,
	}
}

func configuration(endpoints ...pipeline.Endpoint) *pipeline.Config {
	return &pipeline.Config{Version: pipeline.Version, Endpoints: endpoints}
}

// process is the product as a pod runs it.
type process struct {
	cmd *exec.Cmd
	// address takes webhooks, ops has the metrics.
	address, ops string
	// stop ends it in an orderly way, once.
	stop func()
}

// loneIngress starts an ingress on a database of its own, from which nothing
// is delivered.
func (e *env) loneIngress(ctx context.Context, flags ...string) (*process, error) {
	url, err := e.migrated(ctx)
	if err != nil {
		return nil, err
	}
	return e.ingress(ctx, url, configuration(endpoint(nowhere)), flags...)
}

// ingress starts an ingress and returns once it commits events.
func (e *env) ingress(ctx context.Context, url string, c *pipeline.Config, flags ...string) (*process, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p, err := e.start(ctx, url, c, "ingress", append([]string{"--listen", address, "--drain-delay", "0s"}, flags...))
	if err != nil {
		return nil, err
	}
	p.address = address
	defer e.refused.Store(0) // what it refuses before it is prepared
	return p, until(ctx, "committing the first event", func() error {
		_, err := e.load(ctx, address, load{connections: 1, duration: 50 * time.Millisecond})
		return err
	})
}

func (e *env) worker(ctx context.Context, url string, c *pipeline.Config, flags ...string) (*process, error) {
	return e.start(ctx, url, c, "worker", flags)
}

// start starts a process that ends with the row at the latest, and returns
// once it is ready.
func (e *env) start(ctx context.Context, url string, c *pipeline.Config, role string, flags []string) (*process, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(e.dir, "pipeline.json")
	if err := errors.Join(os.WriteFile(file, config, 0o600), os.WriteFile(filepath.Join(e.dir, "secret"), []byte(secret), 0o600)); err != nil {
		return nil, err
	}
	ops, err := freeAddress()
	if err != nil {
		return nil, err
	}
	args := append([]string{role, "--config", file, "--secrets-dir", e.dir, "--ops-listen", ops, "--log-level", "error"}, flags...)
	//nolint:gosec // the binary to measure is the caller's choice
	cmd := exec.CommandContext(ctx, e.ackrail, args...)
	cmd.Env = append(os.Environ(), "ACKRAIL_DATABASE_URL="+url)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ops: ops, stop: sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})}
	e.onEnd(p.stop)
	return p, until(ctx, "waiting for "+role, func() error {
		response, err := http.Get("http://" + ops + "/readyz")
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

func freeAddress() (string, error) {
	port, err := postgres.FreePort()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

// until tries something until it works, for half a minute.
func until(ctx context.Context, doing string, try func() error) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
}

// sleep waits, or returns early with the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// metrics returns the process' own figures.
func (p *process) metrics() (map[string]float64, error) {
	response, err := http.Get("http://" + p.ops + "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	figures := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if figure, err := strconv.ParseFloat(value, 64); err == nil {
			figures[name] = figure
		}
	}
	return figures, lines.Err()
}
