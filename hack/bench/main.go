package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/store"
)

// settings are the server's: durable, and otherwise as a small production
// server has them.
var settings = map[string]string{
	"fsync":              "on",
	"synchronous_commit": "on",
	"max_connections":    "200",
	"shared_buffers":     "512MB",
	"max_wal_size":       "4GB",
	"checkpoint_timeout": "15min",
}

// options are the flags.
type options struct {
	ackrail     string
	rounds      int
	duration    time.Duration
	connections int
	body        int
	deliveries  int
	flushDelay  time.Duration
	// replay, if positive, is how many dead letters a replay has that is
	// measured instead of the hot paths; the others are for that.
	replay      int
	live        int
	handler     time.Duration
	concurrency int
}

func main() {
	var o options
	flag.StringVar(&o.ackrail, "ackrail", "bin/ackrail", "the binary to measure")
	flag.IntVar(&o.rounds, "rounds", 5, "how often product and reference take turns")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "how long each turn takes")
	flag.IntVar(&o.connections, "connections", 64, "concurrent senders, and pgbench's clients")
	flag.IntVar(&o.body, "body", 1024, "bytes of a body")
	flag.IntVar(&o.deliveries, "deliveries", 100_000, "deliveries that the worker has to get through")
	flag.DurationVar(&o.flushDelay, "flush-delay", 0, "make each flush of the disk take so much longer (needs a C compiler)")
	flag.IntVar(&o.replay, "replay", 0, "measure live events beside a replay of so many dead letters, and nothing else")
	flag.IntVar(&o.live, "live", 50, "with -replay: live events per second")
	flag.DurationVar(&o.handler, "handler", 10*time.Millisecond, "with -replay: how long the handler takes for each")
	flag.IntVar(&o.concurrency, "concurrency", 16, "with -replay: the destination's maxConcurrency")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func run(ctx context.Context, o *options) (err error) {
	dir, err := os.MkdirTemp("", "ackrail-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The server's user has to get through.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // see above
		return err
	}
	restore, err := delayFlushes(ctx, o.flushDelay, dir)
	if err != nil {
		return err
	}
	server, err := postgres.Start(ctx, postgres.Options{Dir: filepath.Join(dir, "postgres"), Settings: settings, Logf: progress})
	restore()
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, server.Stop(stopping))
	}()
	if err := store.Migrate(ctx, server.URL(), progress); err != nil {
		return err
	}
	flushes, err := flushRate(dir)
	if err != nil {
		return err
	}
	fmt.Printf("%s, %d cores, %s\n", runtime.Version(), runtime.NumCPU(), settingsText())
	fmt.Printf("the disk flushes in %.2f ms, and PostgreSQL in %.2f ms\n", flushes, flushes+float64(o.flushDelay.Microseconds())/1000)
	if o.replay > 0 {
		if err := measureReplay(ctx, o, server.URL()); err != nil {
			return fmt.Errorf("measuring a replay: %w", err)
		}
		return nil
	}
	if err := measureIngest(ctx, o, dir, server.URL()); err != nil {
		return fmt.Errorf("measuring ingest: %w", err)
	}
	if err := measureWorker(ctx, o, server.URL()); err != nil {
		return fmt.Errorf("measuring the worker: %w", err)
	}
	return nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

func settingsText() string {
	text := "PostgreSQL with"
	keys := make([]string, 0, len(settings))
	for k := range settings {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		text += " " + k + "=" + settings[k]
	}
	return text
}

// median returns the middle of some figures.
func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[len(sorted)/2]
}

//go:embed slowflush/slowflush.c
var slowFlush []byte

// delayFlushes has programs that are started from now on, until restore is
// called, take longer for each flush.
func delayFlushes(ctx context.Context, d time.Duration, dir string) (restore func(), err error) {
	if d == 0 {
		return func() {}, nil
	}
	source, library := filepath.Join(dir, "slowflush.c"), filepath.Join(dir, "slowflush.so")
	if err := os.WriteFile(source, slowFlush, 0o600); err != nil {
		return nil, err
	}
	//nolint:gosec // the arguments are ours
	if out, err := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling for -flush-delay: %w: %s", err, out)
	}
	return func() { _ = errors.Join(os.Unsetenv("LD_PRELOAD"), os.Unsetenv("SLOWFLUSH_US")) },
		errors.Join(os.Setenv("LD_PRELOAD", library), os.Setenv("SLOWFLUSH_US", strconv.FormatInt(d.Microseconds(), 10)))
}

// flushRate measures how many milliseconds the disk takes to flush a page.
func flushRate(dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "flush"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	const rounds = 200
	page := make([]byte, 8192)
	start := time.Now()
	for range rounds {
		if _, err := f.WriteAt(page, 0); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return time.Since(start).Seconds() * 1000 / rounds, nil
}
