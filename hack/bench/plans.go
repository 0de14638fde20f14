package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/store"
)

// hot are the statements whose plans are kept, by how their texts begin.
var hot = map[string]string{
	"enqueue":  "-- Commits a batch of events",
	"claim":    "-- Claims what is due",
	"complete": "-- Records how attempts ended",
}

// plansKept is how many plans of a statement are kept, the last ones.
const plansKept = 5

// keepPlans writes the plans of the hot statements, as they were carried out
// on a backlog, into the folder of the results. On a server of its own: the
// one that is measured should not explain what it does.
func keepPlans(ctx context.Context, e *env) (_ []figure, err error) {
	explaining := settings{
		"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on",
		"auto_explain.log_buffers": "on", "auto_explain.log_wal": "on",
	}
	for name, value := range e.settings {
		explaining[name] = value
	}
	dir := filepath.Join(e.dir, "explaining")
	server, err := postgres.Start(ctx, postgres.Options{Dir: dir, Settings: explaining, Logf: progress})
	if err != nil {
		return nil, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, server.Stop(stopping))
	}()
	if err := store.Migrate(ctx, server.URL(), func(string, ...any) {}); err != nil {
		return nil, err
	}
	s, err := store.Open(server.URL(), store.Options{MaxConns: 5, Name: "ackrail bench"})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ep := endpoint(nowhere)
	const enqueued, filled = 2000, 20_000
	if err := enqueue(ctx, s, &ep, enqueued, e.body); err != nil {
		return nil, err
	}
	if err := fill(ctx, s, server.URL(), ref(&ep), filled, e.body, 0); err != nil {
		return nil, err
	}
	if _, err := drain(ctx, s, s, &ep, enqueued+filled); err != nil {
		return nil, err
	}
	return nil, extractPlans(filepath.Join(dir, "server.log"), e.out)
}

// extractPlans copies the plans of the hot statements out of a server's log,
// of which an entry's first line alone begins without a tab.
func extractPlans(log, out string) error {
	f, err := os.Open(log)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	found := map[string][]string{}
	var entry strings.Builder
	finish := func() {
		for name, begin := range hot {
			if strings.Contains(entry.String(), "Query Text: "+begin) {
				plans := append(found[name], entry.String())
				found[name] = plans[max(0, len(plans)-plansKept):]
			}
		}
		entry.Reset()
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "\t") {
			finish()
		}
		entry.WriteString(lines.Text() + "\n")
	}
	finish()
	if err := lines.Err(); err != nil {
		return err
	}
	var faults []error
	for name := range hot {
		if len(found[name]) == 0 {
			faults = append(faults, fmt.Errorf("the server explained no %s", name))
			continue
		}
		faults = append(faults, os.WriteFile(filepath.Join(out, "plan-"+name+".txt"), []byte(strings.Join(found[name], "\n")), 0o644)) //nolint:gosec // for everybody to read
	}
	return errors.Join(faults...)
}
