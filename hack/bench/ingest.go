package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/postgres"
)

const secret = "bench"

// endpoint is what is measured: verified, with one destination.
func endpoint() pipeline.Endpoint {
	return pipeline.Endpoint{
		Namespace:    "bench",
		Name:         "github",
		Path:         "/hooks/bench/github",
		Verification: pipeline.Verification{Provider: pipeline.ProviderGitHub, SecretFiles: []string{"secret"}},
		MaxBodyBytes: 1 << 20,
		LeaseSeconds: 60,
		Retention:    pipeline.Retention{EventsSeconds: 604800, DeadLettersSeconds: 2592000, DedupSeconds: 604800},
		Destinations: []pipeline.Destination{{
			Name:           "handler",
			HTTP:           pipeline.HTTP{URL: "http://127.0.0.1:9/", TimeoutSeconds: 30},
			Retry:          pipeline.Retry{MaxAttempts: 10, MinBackoffSeconds: 5, MaxBackoffSeconds: 3600},
			MaxConcurrency: 1000,
		}},
	}
}

// measureIngest compares requests acknowledged over HTTP with single-row
// inserts of as many concurrent clients, in turns.
func measureIngest(ctx context.Context, o *options, dir, url string) error {
	reference, err := newReference(ctx, o, dir, url)
	if err != nil {
		return err
	}
	address, ops, stop, err := startIngress(ctx, o, dir, url)
	if err != nil {
		return err
	}
	defer stop()
	var product, plain, ratios []float64
	for round := range o.rounds {
		inserted, err := reference.run(ctx)
		if err != nil {
			return err
		}
		acknowledged, err := load(ctx, o, address)
		if err != nil {
			return err
		}
		progress("Round %d of %d: pgbench %.0f inserts/s, ingress %.0f acknowledged requests/s, ratio %.2f",
			round+1, o.rounds, inserted, acknowledged, acknowledged/inserted)
		plain, product, ratios = append(plain, inserted), append(product, acknowledged), append(ratios, acknowledged/inserted)
	}
	fmt.Printf("ingest: %d connections, %d-byte bodies, verified, durable: %.0f requests/s; pgbench single-row insert, %d clients: %.0f/s; median ratio %.2f\n",
		o.connections, o.body, median(product), o.connections, median(plain), median(ratios))
	return printBatches(ops)
}

// reference is pgbench inserting rows with the columns of an event and its
// unique keys, durable, one by one: what a service does that writes each
// webhook down by itself, and nothing else.
type reference struct {
	program, script, url string
	o                    *options
}

func newReference(ctx context.Context, o *options, dir, url string) (*reference, error) {
	program, err := findPgbench()
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, `CREATE TABLE reference (
		id uuid PRIMARY KEY, received_at timestamptz NOT NULL, endpoint_id int NOT NULL, type text NOT NULL, idempotency_key text NOT NULL,
		content_type text NOT NULL, trace_parent text NOT NULL, headers jsonb NOT NULL, body bytea NOT NULL,
		UNIQUE (endpoint_id, idempotency_key))`); err != nil {
		return nil, err
	}
	r := &reference{program: program, script: filepath.Join(dir, "insert.sql"), url: url, o: o}
	return r, os.WriteFile(r.script, []byte("INSERT INTO reference VALUES (gen_random_uuid(), now(), 1, :type, gen_random_uuid()::text, "+
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

func (r *reference) run(ctx context.Context) (float64, error) {
	clients := strconv.Itoa(r.o.connections)
	seconds := strconv.Itoa(max(1, int(r.o.duration.Seconds())))
	// The values are parameters, as they are for the product: the server gets
	// them with each execution.
	//nolint:gosec // the program was found above, the arguments are ours
	out, err := exec.CommandContext(ctx, r.program, "-n", "-M", "prepared", "-f", r.script, "-c", clients, "-j", "2", "-T", seconds,
		"-D", "type=push", "-D", "content_type=application/json", "-D", `headers={"User-Agent": ["GitHub-Hookshot/1"], "X-Github-Event": ["push"]}`,
		"-D", `body=\x`+hex.EncodeToString(makeBody(r.o.body)), r.url).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if after, found := strings.CutPrefix(line, "tps = "); found {
			figure, _, _ := strings.Cut(after, " ")
			return strconv.ParseFloat(figure, 64)
		}
	}
	return 0, fmt.Errorf("pgbench printed no rate: %s", out)
}

// startIngress runs the product as a pod would.
func startIngress(ctx context.Context, o *options, dir, url string) (address, ops string, stop func(), err error) {
	config, err := json.Marshal(pipeline.Config{Version: pipeline.Version, Endpoints: []pipeline.Endpoint{endpoint()}})
	if err != nil {
		return "", "", nil, err
	}
	file := filepath.Join(dir, "pipeline.json")
	if err := errors.Join(os.WriteFile(file, config, 0o600), os.WriteFile(filepath.Join(dir, "secret"), []byte(secret), 0o600)); err != nil {
		return "", "", nil, err
	}
	for _, a := range []*string{&address, &ops} {
		port, err := postgres.FreePort()
		if err != nil {
			return "", "", nil, err
		}
		*a = fmt.Sprintf("127.0.0.1:%d", port)
	}
	//nolint:gosec // the binary to measure is the caller's choice
	cmd := exec.CommandContext(ctx, o.ackrail, "ingress", "--config", file, "--secrets-dir", dir,
		"--listen", address, "--ops-listen", ops, "--drain-delay", "0s", "--log-level", "warn")
	cmd.Env = append(os.Environ(), "ACKRAIL_DATABASE_URL="+url)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	for range 100 {
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return address, ops, stop, conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return "", "", nil, errors.New("the ingress does not answer")
}

// printBatches tells how many events shared a commit, and how long one took,
// from the ingress' own metrics.
func printBatches(ops string) error {
	response, err := http.Get("http://" + ops + "/metrics")
	if err != nil {
		return err
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
	commits := figures["ackrail_ingress_batch_events_count"]
	fmt.Printf("        %.1f events in a commit, which took %.1f ms on average\n", figures["ackrail_ingress_batch_events_sum"]/commits,
		1000*figures[`ackrail_ingress_batch_seconds_sum{outcome="committed"}`]/commits)
	return lines.Err()
}

// load sends signed requests over o.connections connections for a while and
// returns how many were acknowledged with 202 per second. It writes and reads
// HTTP by hand: the load generator shares the cores with what is measured.
func load(ctx context.Context, o *options, address string) (float64, error) {
	body := makeBody(o.body)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	head := fmt.Sprintf("POST /hooks/bench/github HTTP/1.1\r\nHost: bench\r\nUser-Agent: GitHub-Hookshot/1\r\nContent-Type: application/json\r\n"+
		"X-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=%x\r\nContent-Length: %d\r\nX-GitHub-Delivery: ", mac.Sum(nil), len(body))
	var acknowledged atomic.Int64
	start := time.Now()
	var senders sync.WaitGroup
	failures := make(chan error, o.connections)
	for range o.connections {
		senders.Go(func() {
			if err := send(ctx, address, head, body, start.Add(o.duration), &acknowledged); err != nil {
				failures <- err
			}
		})
	}
	senders.Wait()
	close(failures)
	return float64(acknowledged.Load()) / time.Since(start).Seconds(), <-failures
}

func send(ctx context.Context, address, head string, body []byte, until time.Time, acknowledged *atomic.Int64) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	var request bytes.Buffer
	for time.Now().Before(until) && ctx.Err() == nil {
		request.Reset()
		request.WriteString(head)
		request.WriteString(uuid.NewString())
		request.WriteString("\r\n\r\n")
		request.Write(body)
		if _, err := conn.Write(request.Bytes()); err != nil {
			return err
		}
		status, err := readAnswer(reader)
		if err != nil {
			return err
		}
		if status != http.StatusAccepted {
			return fmt.Errorf("answered with %d", status)
		}
		acknowledged.Add(1)
	}
	return nil
}

func readAnswer(r *bufio.Reader) (status int, err error) {
	length := 0
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if first && len(text) >= len("HTTP/1.1 200") {
			if status, err = strconv.Atoi(text[9:12]); err != nil {
				return 0, err
			}
		}
		if after, found := strings.CutPrefix(text, "Content-Length: "); found {
			if length, err = strconv.Atoi(after); err != nil {
				return 0, err
			}
		}
		if text == "" {
			_, err := io.CopyN(io.Discard, r, int64(length))
			return status, err
		}
	}
}

// makeBody returns a JSON document of about n bytes that does not compress to
// nothing.
func makeBody(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"values":["`)
	for b.Len() < n-40 {
		b.WriteString(uuid.NewString() + `","`)
	}
	b.WriteString(`"]}`)
	return b.Bytes()
}
