package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

// A process with the race detector sleeps for a second before it ends well,
// so that others can report. That adds up over the many commands here.
func init() {
	_ = os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
}

// patience bounds what takes a moment on a quiet machine: a server's start,
// a delivery, a drain.
const patience = time.Minute

// devManifest has an endpoint of each kind that the dev command describes
// differently.
const devManifest = `
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: github, namespace: payments}
spec:
  source:
    provider: GitHub
    secretRefs: [{name: github-webhook, key: secret}]
  destinations:
  - name: handler
    http: {url: "SINK/github", timeoutSeconds: 5}
---
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: door-bell}
spec:
  source:
    provider: None
    path: /ring
    identity: {idempotencyKey: {header: X-Ring}}
  destinations:
  - name: handler
    http: {url: "SINK/bell", timeoutSeconds: 5}
---
apiVersion: v1
kind: Secret
metadata: {name: github-webhook, namespace: payments}
stringData: {secret: the-secret-of-the-dev-test}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: payments}
`

// devDir makes a folder that the account of a private PostgreSQL server can
// enter. It is removed when the test ends, once nothing runs in it any more.
func devDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ackrail-dev-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		testenv.Eventually(t, patience, func() error { return nothingRuns(dir) })
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// nothingRuns reports an error if a process belongs to a folder: is in it, or
// has it in its arguments or environment. The server's programs are in their
// data folder, whatever they make of the rest.
func nothingRuns(dir string) error {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if folder == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		// A process may end at any time: what cannot be read is not there.
		in, _ := os.Readlink(filepath.Join(folder, "cwd"))
		arguments, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(folder, "environ"))
		if strings.HasPrefix(in, dir) || bytes.Contains(arguments, []byte(dir)) || bytes.Contains(environment, []byte(dir)) {
			return fmt.Errorf("%s runs: %s", folder, bytes.ReplaceAll(arguments, []byte{0}, []byte{' '}))
		}
	}
	return nil
}

// dev is an ackrail dev that runs.
type dev struct{ *rig.Pod }

// startDev starts ackrail dev and waits until it says that it runs.
func startDev(t testing.TB, dir, manifest string, args ...string) *dev {
	t.Helper()
	p := rig.Start(t, append([]string{
		"dev", "-f", manifest, "--data-dir", dir, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
	}, args...)...)
	testenv.Eventually(t, patience, func() error {
		if !p.Running() {
			return errors.New("it ended")
		}
		if !strings.Contains(p.Output(), "Stop with Ctrl-C") {
			return errNotYet
		}
		return nil
	})
	d := &dev{&rig.Pod{Process: p}}
	d.OpsURL = d.printed(`Operations +(\S+)/metrics`)
	return d
}

// says returns the output without the logs, which come in between.
func (d *dev) says() string {
	var said strings.Builder
	for line := range strings.Lines(d.Output()) {
		if !strings.HasPrefix(line, "time=") {
			said.WriteString(line)
		}
	}
	return said.String()
}

// printed returns what the group of a pattern stands for in what it says.
func (d *dev) printed(pattern string) string {
	d.T.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(d.says())
	if found == nil {
		d.T.Fatalf("it says nothing like %s", pattern)
	}
	return found[1]
}

// databaseURL returns the URL of the private server.
func (d *dev) databaseURL() string {
	d.T.Helper()
	return d.printed(`Database +(\S+)`)
}

// postmaster returns the process id of a private server.
func postmaster(t testing.TB, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// interrupt sends SIGINT, as Ctrl-C does, and checks that the process ends in
// good order.
func (d *dev) interrupt() {
	d.T.Helper()
	d.Signal(syscall.SIGINT)
	d.endsWell()
}

func (d *dev) endsWell() {
	d.T.Helper()
	select {
	case <-d.Ended():
	case <-time.After(patience):
		d.T.Fatal("it did not end within a minute of SIGINT")
	}
	if code := d.ExitCode(); code != 0 {
		d.T.Errorf("it ended with code %d after SIGINT", code)
	}
}

// devManifestFile writes the manifests for a sink where a shell needs quotes.
func devManifestFile(t testing.TB, sink *testenv.Sink) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "it's here")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, dir, "manifest.yaml", strings.ReplaceAll(devManifest, "SINK", sink.URL()))
}

func writeFile(t testing.TB, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// shell runs a line in a shell that has this program as ackrail on its PATH.
func shell(t testing.TB, line string) rig.Finished {
	t.Helper()
	bin := t.TempDir()
	wrapper := "#!/bin/sh\nexec " + shellQuote(rig.Command(t).Path) + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "ackrail"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := rig.Command(t, "-c", line)
	cmd.Path, cmd.Args[0] = "/bin/sh", "sh"
	cmd.Env = append(cmd.Env, "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	cmd.Dir = t.TempDir() // not where dev was started
	return rig.RunCmd(t, cmd, "")
}

// eventID returns the event's id out of what ackrail send printed.
func eventID(t testing.TB, f rig.Finished, wantStatus string) string {
	t.Helper()
	found := regexp.MustCompile(`^HTTP (\d+) .*\n\{"status":"([a-z]+)","eventId":"([0-9a-f-]{36})"\}\n$`).FindStringSubmatch(f.Stdout)
	if f.Code != 0 || f.Stderr != "" || found == nil || found[1]+" "+found[2] != wantStatus {
		t.Fatalf("ackrail send ended with code %d and printed %q, %q; want %s", f.Code, f.Stdout, f.Stderr, wantStatus)
	}
	return found[3]
}

// arrived waits until an event is at the sink, and returns its request.
func arrived(t testing.TB, sink *testenv.Sink, id string) testenv.Request {
	t.Helper()
	var found testenv.Request
	sink.WaitFor(t, patience, func(requests []testenv.Request) error {
		i := slices.IndexFunc(requests, func(r testenv.Request) bool { return r.ID() == id })
		if i < 0 {
			return fmt.Errorf("event %s has not arrived", id)
		}
		found = requests[i]
		return nil
	})
	return found
}

func TestDev(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	dir := devDir(t)
	manifest := devManifestFile(t, sink)
	d := startDev(t, dir, manifest)

	t.Run("what it prints", func(t *testing.T) { devOutput(t, d, manifest, sink.URL()) })

	t.Run("the printed commands work", func(t *testing.T) {
		for _, path := range []string{"/github", "/bell"} {
			endpoint := map[string]string{"/github": "payments/github", "/bell": "default/door-bell"}[path]
			line := d.printed(`Endpoint +` + endpoint + `\n.*\n  try it +(.*)\n`)
			id := eventID(t, shell(t, line), "202 accepted")
			r := arrived(t, sink, id)
			if string(r.Body) != "{\"hello\":\"world\"}\n" || r.URI != path || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s arrived as %s with body %q and headers %v", line, r.URI, r.Body, r.Header)
			}
		}
	})

	body := "{\"zen\": \"Mind your\\u0000 words.\",\n\t\"n\": 1e400}\r\n"
	file := writeFile(t, t.TempDir(), "body.json", body)
	sending := func(d *dev, id string) rig.Finished {
		t.Helper()
		return rig.Run(t, "", "send", "-f", manifest, "--endpoint", "payments/github", "--body", file, "--event-type", "ping",
			"--id", id, "--url", d.printed(`takes +(http://\S+)/hooks/payments/github`))
	}
	first := eventID(t, sending(d, "one"), "202 accepted")
	if r := arrived(t, sink, first); string(r.Body) != body || r.Header.Get("Ackrail-Event-Type") != "ping" {
		t.Errorf("arrived with type %q and body %q, want %q", r.Header.Get("Ackrail-Event-Type"), r.Body, body)
	}

	t.Run("operations", func(t *testing.T) { devOperations(t, d) })

	pid := postmaster(t, dir)
	d.interrupt()
	if err := nothingRuns(dir); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("after SIGINT the server's process %d is there: %v", pid, err)
	}

	// What was taken in survives, with its idempotency keys.
	d = startDev(t, dir, manifest)
	list := rig.Run(t, "", "events", "list", "-A", "--database-url", d.databaseURL())
	if list.Code != 0 || strings.Count(list.Stdout, "\n") != 4 || !strings.Contains(list.Stdout, first) {
		t.Errorf("after a restart, events list ended with code %d and printed %q, %q", list.Code, list.Stdout, list.Stderr)
	}
	if again := eventID(t, sending(d, "one"), "200 duplicate"); again != first {
		t.Errorf("the duplicate is event %s, want %s", again, first)
	}

	// The server dies and is brought back, and what hung on it goes on.
	pid = postmaster(t, dir)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var after string
	testenv.Eventually(t, patience, func() error {
		f := sending(d, "two")
		if f.Code != 0 {
			return fmt.Errorf("answered with %q, %q", f.Stdout, f.Stderr)
		}
		after = f.Stdout
		return nil
	})
	if !strings.HasPrefix(after, "HTTP 202 ") && !strings.HasPrefix(after, "HTTP 200 ") {
		t.Errorf("after the server's death: %q", after)
	}
	arrived(t, sink, regexp.MustCompile(`[0-9a-f-]{36}`).FindString(after))
	if now := postmaster(t, dir); now == pid {
		t.Errorf("the server has process id %d as before its death", now)
	}
	if !strings.Contains(d.Output(), "PostgreSQL ended unexpectedly, starting it again") {
		t.Error("the server's death is not told")
	}
	if got := d.printed(`(?s)Stop with Ctrl-C.*Starting PostgreSQL \S+ on (\S+)`); !strings.Contains(d.databaseURL(), got) {
		t.Errorf("the server came back on %s, not at %s", got, d.databaseURL())
	}

	d.Kill()
	testenv.Eventually(t, patience, func() error { return nothingRuns(dir) })

	if effects := sink.Processed(); len(effects) != 4 {
		t.Errorf("effects %v, want 4", effects)
	}
}

// devOutput checks what people find their way by.
func devOutput(t *testing.T, d *dev, manifest, sink string) {
	base := d.printed(`takes +(http://127\.0\.0\.1:\d+)/ring`)
	normal := strings.NewReplacer(base, "INGRESS", d.OpsURL, "OPS", d.databaseURL(), "DATABASE", sink, "SINK", manifest, "MANIFEST",
		shellQuote(manifest), "'MANIFEST'").Replace(strings.TrimSuffix(d.says(), "\n"))
	for pattern, text := range map[string]string{`PostgreSQL \S+ on \S+`: "PostgreSQL on HOST", `in \d+ms`: "in TIME", `database in \S+`: "database in DIR"} {
		normal = regexp.MustCompile(pattern).ReplaceAllString(normal, text)
	}
	want := `Ignoring MANIFEST: ConfigMap payments/settings
Creating a database in DIR
Starting PostgreSQL on HOST
Database     DATABASE
Migrating the schema
Applied migration 00001_initial.sql in TIME
Applied migration 00002_dead_letters.sql in TIME
Applied migration 00003_lanes.sql in TIME
Operations   OPS/metrics
Endpoint     payments/github
  takes      INGRESS/hooks/payments/github (verified as GitHub)
  try it     echo '{"hello":"world"}' | ackrail send -f 'MANIFEST' --endpoint payments/github --body - --event-type test --url INGRESS
  delivers   handler: SINK/github
Endpoint     default/door-bell
  takes      INGRESS/ring (not verified)
  try it     echo '{"hello":"world"}' | ackrail send -f 'MANIFEST' --endpoint default/door-bell --body - --url INGRESS
  delivers   handler: SINK/bell
Running (all). Stop with Ctrl-C.`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(normal, "\n")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if strings.Contains(d.Output(), "the-secret-of-the-dev-test") {
		t.Error("the output has a secret in it")
	}
}

// devOperations checks the port for machines: readiness, and every metric that
// dashboards stand on.
func devOperations(t *testing.T, d *dev) {
	if err := d.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	unsigned, err := http.Post(d.printed(`takes +(http://\S+/hooks/payments/github)`), "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = unsigned.Body.Close()
	const github = `endpoint="github",namespace="payments"`
	const handler = `destination="handler",` + github
	for _, c := range []struct {
		series string
		least  float64
	}{
		{`ackrail_ingress_requests_total{` + github + `,result="accepted"}`, 2},
		{`ackrail_ingress_requests_total{` + github + `,result="unauthorized"}`, 1},
		{`ackrail_ingress_signature_failures_total{` + github + `,reason="missing"}`, 1},
		{`ackrail_ingress_ack_seconds_count{` + github + `}`, 2},
		{`ackrail_ingress_inflight_bytes`, 0},
		{`ackrail_ingress_batch_events_count`, 3},
		{`ackrail_ingress_batch_seconds_count{outcome="committed"}`, 3},
		{`ackrail_deliveries_total{` + handler + `,outcome="done",reason=""}`, 2},
		{`ackrail_delivery_exchange_seconds_count{` + handler + `}`, 2},
		{`ackrail_delivery_latency_seconds_count{` + handler + `}`, 2},
		{`ackrail_delivery_attempts_count{` + handler + `}`, 2},
		{`ackrail_deliveries_in_flight{` + handler + `}`, 0},
		{`ackrail_queue_deliveries{` + handler + `,state="pending"}`, 0},
		{`ackrail_queue_deliveries{` + handler + `,state="dead"}`, 0},
		{`ackrail_queue_oldest_due_seconds{` + handler + `}`, 0},
		{`ackrail_fenced_total{write="done"}`, 0},
		{`ackrail_claim_deliveries_count`, 1},
		{`go_goroutines`, 1},
		{`process_start_time_seconds`, 1},
	} {
		// Outcomes are written, and counted, after the destination has answered.
		testenv.Eventually(t, patience, func() error {
			got, err := d.Metric(c.series)
			if err == nil && got < c.least {
				err = fmt.Errorf("%s is %v, want at least %v", c.series, got, c.least)
			}
			return err
		})
	}
	if diff := cmp.Diff(documentedMetrics(t), exposedMetrics(t, d.OpsURL)); diff != "" {
		t.Errorf("metrics (-documented +exposed):\n%s", diff)
	}
}

// documentedMetrics are the names in the documentation's table.
func documentedMetrics(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	return metricNames(regexp.MustCompile("`(ackrail_[a-z_]+)`").FindAllSubmatch(text, -1))
}

func exposedMetrics(t *testing.T, opsURL string) []string {
	t.Helper()
	response, err := http.Get(opsURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return metricNames(regexp.MustCompile(`(?m)^# TYPE (ackrail_[a-z_]+) `).FindAllSubmatch(text, -1))
}

func metricNames(found [][][]byte) []string {
	var names []string
	for _, groups := range found {
		names = append(names, string(groups[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestDevRolesShareTheirData(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	dir := devDir(t)
	manifest := devManifestFile(t, sink)
	in := startDev(t, dir, manifest, "--role", "ingress")
	w := startDev(t, dir, manifest, "--role", "worker")
	if !strings.Contains(w.Output(), "Using the PostgreSQL server that already runs") {
		t.Error("the worker has a server of its own")
	}
	if got := w.Output(); strings.Contains(got, "takes ") || strings.Contains(got, "try it") {
		t.Error("the worker says that it takes webhooks")
	}
	ring := func(key string) string {
		t.Helper()
		return eventID(t, rig.Run(t, "ding", "send", "-f", manifest, "--endpoint", "door-bell", "--body", "-", "--id", key,
			"--content-type", "text/plain", "--url", in.printed(`takes +(http://\S+)/ring`)), "202 accepted")
	}
	if r := arrived(t, sink, ring("1")); string(r.Body) != "ding" || r.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("arrived with body %q and headers %v", r.Body, r.Header)
	}
	if _, err := in.Metric(`ackrail_claim_deliveries_count`); err == nil {
		t.Error("the ingress claims deliveries")
	}

	// Whoever started the server takes it along; the other brings it back.
	in.interrupt()
	testenv.Eventually(t, patience, func() error {
		if !strings.Contains(w.Output(), "Starting PostgreSQL") {
			return errNotYet
		}
		return nil
	})
	in = startDev(t, dir, manifest, "--role", "ingress")
	arrived(t, sink, ring("2"))
	in.interrupt()
	w.interrupt()
	if err := nothingRuns(dir); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
}

// What is under way at the interrupt ends well: a request whose body is still
// coming is answered, a delivery whose answer is still coming is recorded.
func TestDevDrains(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	handler, release := testenv.Block(testenv.Status(http.StatusNoContent))
	sink.Handle(handler)
	manifest := devManifestFile(t, sink)
	url := testenv.Schema(t)
	d := startDev(t, t.TempDir(), manifest, "--database-url", url)
	address := d.printed(`takes +http://(\S+)/ring`)
	first := eventID(t, rig.Run(t, "", "send", "-f", manifest, "--endpoint", "door-bell", "--body", manifest, "--url", "http://"+address), "202 accepted")
	arrived(t, sink, first)

	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "POST /ring HTTP/1.1\r\nHost: bell\r\nX-Ring: 2\r\nContent-Length: 9\r\n\r\nding"); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, patience, func() error {
		if n, err := d.Metric("ackrail_ingress_inflight_bytes"); err != nil || n != 9 {
			return fmt.Errorf("%v bytes are under way, %w", n, err)
		}
		return nil
	})
	d.Signal(syscall.SIGINT)
	testenv.Eventually(t, patience, func() error {
		err := d.Ready()
		if err == nil {
			return errors.New("ready after an interrupt")
		}
		if !strings.Contains(err.Error(), "503") {
			return fmt.Errorf("want 503 after an interrupt, got: %w", err)
		}
		return nil
	})
	if _, err := io.WriteString(conn, " dong"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		t.Errorf("answered with %s", response.Status)
	}
	release()
	d.endsWell()
	list := rig.Run(t, "", "events", "list", "--database-url", url)
	if !regexp.MustCompile(`(?s)\n.* handler +1 +pending +0 .*\n` + first + ` .* handler +1 +done +1 `).MatchString(list.Stdout) {
		t.Errorf("events list printed\n%s%s", list.Stdout, list.Stderr)
	}
	if n := len(sink.Requests()); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

// Manifests from standard input run; a command that reads them again is not
// offered.
func TestDevFromStandardInput(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	cmd := rig.Command(t, "dev", "-f", "-", "--data-dir", devDir(t), "--database-url", testenv.Schema(t), "--listen", ":0", "--ops-listen", "127.0.0.1:0")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(devManifest, "SINK", sink.URL()))
	d := &dev{&rig.Pod{Process: rig.StartCmd(t, cmd)}}
	testenv.Eventually(t, patience, func() error {
		if !strings.Contains(d.Output(), "Stop with Ctrl-C") {
			return errNotYet
		}
		return nil
	})
	if strings.Contains(d.Output(), "try it") {
		t.Error("it offers a command that would read standard input twice")
	}
	// Listening everywhere, it prints a URL that reaches it from here.
	manifest := devManifestFile(t, sink)
	arrived(t, sink, eventID(t, rig.Run(t, "", "send", "-f", manifest, "--endpoint", "door-bell", "--body", manifest, "--content-type", "text/plain",
		"--url", d.printed(`takes +(http://localhost:\d+/ring)`)), "202 accepted"))
	d.interrupt()
}
