package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// pgbench inserts rows with the columns of an event and its unique keys,
// durable, one by one: what a service does that writes each webhook down by
// itself, and nothing else.
type pgbench struct {
	program, script, url string
	e                    *env
}

func newPgbench(ctx context.Context, e *env) (*pgbench, error) {
	program, err := findPgbench()
	if err != nil {
		return nil, err
	}
	url, err := e.empty(ctx)
	if err != nil {
		return nil, err
	}
	if err := execute(ctx, url, `CREATE TABLE reference (
		id uuid PRIMARY KEY, received_at timestamptz NOT NULL, endpoint_id int NOT NULL, type text NOT NULL, idempotency_key text NOT NULL,
		content_type text NOT NULL, trace_parent text NOT NULL, headers jsonb NOT NULL, body bytea NOT NULL,
		UNIQUE (endpoint_id, idempotency_key))`); err != nil {
		return nil, err
	}
	p := &pgbench{program: program, script: filepath.Join(e.dir, "insert.sql"), url: url, e: e}
	return p, os.WriteFile(p.script, []byte("INSERT INTO reference VALUES (gen_random_uuid(), now(), 1, :type, gen_random_uuid()::text, "+
		":content_type, '', :headers::jsonb, :body::bytea) ON CONFLICT DO NOTHING;\n"), 0o600)
}

func findPgbench() (string, error) {
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path, nil
	}
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if len(folders) == 0 {
		return "", errors.New("pgbench not found: install PostgreSQL's client programs (apt-get install postgresql)")
	}
	return folders[len(folders)-1], nil
}

// rate returns a turn that tells how many rows a second so many clients
// insert.
func (p *pgbench) rate(clients int) turn {
	return func(ctx context.Context) (float64, error) { return p.run(ctx, clients, "tps = ") }
}

// latency returns a turn that tells how many milliseconds an insert takes on
// average.
func (p *pgbench) latency(clients int) turn {
	return func(ctx context.Context) (float64, error) { return p.run(ctx, clients, "latency average = ") }
}

// run lets clients insert for a turn and returns one of the figures that
// pgbench prints.
func (p *pgbench) run(ctx context.Context, clients int, figure string) (float64, error) {
	// Connecting counts among the time, not among the figures.
	seconds := strconv.Itoa(max(1, int(p.e.duration.Seconds())) + clients/20)
	// The values are parameters, as they are for the product: the server gets
	// them with each execution.
	//nolint:gosec // the program was found above, the arguments are ours
	out, err := exec.CommandContext(ctx, p.program, "-n", "-M", "prepared", "-f", p.script, "-c", strconv.Itoa(clients),
		"-j", strconv.Itoa(min(clients, 2)), "-T", seconds,
		"-D", "type=push", "-D", "content_type=application/json", "-D", `headers={"User-Agent": ["GitHub-Hookshot/1"], "X-Github-Event": ["push"]}`,
		"-D", `body=\x`+hex.EncodeToString(makeBody(p.e.body)), p.url).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if after, found := strings.CutPrefix(line, figure); found {
			number, _, _ := strings.Cut(after, " ")
			return strconv.ParseFloat(number, 64)
		}
	}
	return 0, fmt.Errorf("pgbench printed no %q: %s", figure, out)
}
