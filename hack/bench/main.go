package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ackrail/ackrail/internal/postgres"
)

// options are the flags.
type options struct {
	ackrail    string
	rows       string
	rounds     int
	duration   time.Duration
	body       int
	short      bool
	flushDelay time.Duration
	out        string
	document   string
	settings   settings
}

// settings are the server's: durable, and otherwise as a small production
// server has them.
type settings map[string]string

func (s settings) String() string {
	var text []string
	for name, value := range s {
		text = append(text, name+"="+value)
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}

// Set takes NAME=VALUE, for the flag.
func (s settings) Set(text string) error {
	name, value, found := strings.Cut(text, "=")
	if !found {
		return errors.New("want NAME=VALUE")
	}
	s[name] = value
	return nil
}

func parse() *options {
	o := &options{settings: settings{
		"fsync":                "on",
		"synchronous_commit":   "on",
		"full_page_writes":     "on",
		"max_connections":      "400",
		"shared_buffers":       "512MB",
		"maintenance_work_mem": "256MB",
		"max_wal_size":         "4GB",
		"checkpoint_timeout":   "15min",
	}}
	flag.StringVar(&o.ackrail, "ackrail", "bin/ackrail", "the binary to measure")
	flag.StringVar(&o.rows, "rows", "", "measure only these `rows`, such as P1,P6")
	flag.BoolVar(&o.short, "short", false, "two rounds, shorter turns, smaller tables: in five minutes, for a first look")
	flag.IntVar(&o.rounds, "rounds", 5, "how often product and reference take turns (-short: 2)")
	flag.DurationVar(&o.duration, "duration", 4*time.Second, "how long a turn takes (-short: 2s)")
	flag.IntVar(&o.body, "body", 1024, "bytes of a body")
	flag.DurationVar(&o.flushDelay, "flush-delay", 0, "make each flush of the disk take so much longer (needs a C compiler)")
	flag.Var(o.settings, "set", "a setting of the server, as `NAME=VALUE`; may be repeated")
	flag.StringVar(&o.out, "out", "bin/bench", "folder for results.json")
	flag.StringVar(&o.document, "document", "", "write the table into this `file`, between its markers")
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if o.short && !given["rounds"] {
		o.rounds = 2
	}
	if o.short && !given["duration"] {
		o.duration = 2 * time.Second
	}
	return o
}

func main() {
	o := parse()
	// Load generators and the reference's client get the collector's setting
	// that the product gives itself.
	debug.SetGCPercent(800)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func run(ctx context.Context, o *options) (err error) {
	chosen, err := choose(o.rows)
	if err != nil {
		return err
	}
	if o.rounds < 1 || o.duration < time.Second {
		return errors.New("-rounds must be at least 1, and -duration at least 1s")
	}
	dir, err := os.MkdirTemp("", "ackrail-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The server's user has to get through.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // see above
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	restore, err := delayFlushes(ctx, o.flushDelay, dir)
	if err != nil {
		return err
	}
	server, err := postgres.Start(ctx, postgres.Options{Dir: filepath.Join(dir, "postgres"), Settings: o.settings, Logf: progress})
	restore()
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, server.Stop(stopping))
	}()
	e := &env{options: o, dir: dir, url: server.URL()}
	report, err := newReport(ctx, e)
	if err != nil {
		return err
	}
	fmt.Println(report.Machine)
	if err := report.measure(ctx, e, chosen); err != nil {
		return err
	}
	if o.document == "" {
		return nil
	}
	return report.document(o.document)
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
