package ingress_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/ingress"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/signature"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The published examples of GitHub's documentation and of the Standard
// Webhooks reference libraries.
const (
	githubSecret    = "It's a Secret to Everybody"
	githubBody      = "Hello, World!"
	githubSignature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

	standardSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	standardID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	standardTimestamp = 1614265330
	standardBody      = `{"test": 2432232314}`
	standardSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

// now is the time of every test: that of the published example.
var now = time.Unix(standardTimestamp, 0)

const maxBody = 64 << 10

// hmacScheme is that of the endpoint "hmac": as GitHub signs, without what
// the preset prescribes beside.
func hmacScheme() signature.Scheme {
	return signature.HMAC("X-Hub-Signature-256", signature.SHA256, signature.Hex, "sha256=")
}

// config has an endpoint for each provider, named after it, at /hooks/<name>.
func config() *pipeline.Config {
	endpoint := func(name string, v pipeline.Verification, i pipeline.Identity) pipeline.Endpoint {
		return pipeline.Endpoint{
			Namespace: "test", Name: name, Path: "/hooks/" + name,
			Verification: v, Identity: i, MaxBodyBytes: maxBody,
			Destinations: []pipeline.Destination{{
				Name:           "handler",
				HTTP:           pipeline.HTTP{URL: "http://127.0.0.1:9/", TimeoutSeconds: 5},
				Retry:          pipeline.Retry{MaxAttempts: 3, MinBackoffSeconds: 1, MaxBackoffSeconds: 10},
				MaxConcurrency: 1,
			}},
			LeaseSeconds: 30,
			Retention:    pipeline.Retention{EventsSeconds: 3600, DeadLettersSeconds: 3600, DedupSeconds: 3600},
		}
	}
	own := pipeline.Identity{IdempotencyKeyHeader: "x-github-delivery", TypeHeader: "x-kind"}
	return &pipeline.Config{Version: pipeline.Version, Endpoints: []pipeline.Endpoint{
		endpoint("github", pipeline.Verification{Provider: pipeline.ProviderGitHub, SecretFiles: []string{"github/secret"}}, pipeline.Identity{}),
		endpoint("standard", pipeline.Verification{Provider: pipeline.ProviderStandardWebhooks, SecretFiles: []string{"standard/secret"}}, pipeline.Identity{}),
		endpoint("hmac", pipeline.Verification{
			Provider: pipeline.ProviderHMAC, SecretFiles: []string{"github/secret"},
			HMAC: &pipeline.HMAC{Header: "X-Hub-Signature-256", Algorithm: "SHA256", Encoding: "Hex", Prefix: "sha256="},
		}, own),
		endpoint("none", pipeline.Verification{Provider: pipeline.ProviderNone}, own),
	}}
}

// secrets returns a folder with the secrets that config names.
func secrets(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	writeSecret(t, dir, "github/secret", githubSecret)
	writeSecret(t, dir, "standard/secret", standardSecret)
	return dir
}

// writeSecret replaces a secret at once, as a volume's update does.
func writeSecret(t testing.TB, dir, path, content string) {
	t.Helper()
	file := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// rig is an ingress that is served over a database, as a process would do it.
type rig struct {
	url, addr string
	client    *http.Client
	server    *ingress.Server
	store     *store.Store
	registry  *prometheus.Registry
	logs      *lines
	served    chan error
}

// setup is what a test may change about a rig.
type setup struct {
	config   *pipeline.Config
	options  ingress.Options
	server   ingress.ServerOptions
	enqueuer store.EnqueuerOptions
}

// database returns the URL of a migrated schema.
func database(t testing.TB) string {
	t.Helper()
	url := testenv.Schema(t)
	migrate(t, url)
	return url
}

func migrate(t testing.TB, url string) {
	t.Helper()
	if err := store.Migrate(t.Context(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
}

func start(t testing.TB, databaseURL string, change func(*setup)) *rig {
	t.Helper()
	s, err := store.Open(databaseURL, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r := &rig{store: s, registry: prometheus.NewRegistry(), logs: &lines{}, served: make(chan error, 1)}
	logger := slog.New(slog.NewJSONHandler(r.logs, nil))
	metrics, err := ingress.NewMetrics(r.registry)
	if err != nil {
		t.Fatal(err)
	}
	with := &setup{
		config:   config(),
		options:  ingress.Options{Metrics: metrics, Logger: logger, Now: func() time.Time { return now }},
		server:   ingress.ServerOptions{Logger: logger},
		enqueuer: store.EnqueuerOptions{OnBatch: metrics.ObserveBatch},
	}
	if change != nil {
		change(with)
	}
	if with.options.SecretsDir == "" {
		with.options.SecretsDir = secrets(t)
	}
	if with.options.Enqueuer == nil {
		enqueuer := store.NewEnqueuer(s, with.enqueuer)
		t.Cleanup(enqueuer.Close)
		with.options.Enqueuer = enqueuer
	}
	handler, err := ingress.New(with.config, with.options)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.serve(t, ingress.NewServer(handler, with.server), l)
	return r
}

func (r *rig) serve(t testing.TB, server *ingress.Server, l net.Listener) {
	t.Helper()
	r.server, r.addr = server, l.Addr().String()
	r.url = "http://" + r.addr
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	r.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	go func() { r.served <- server.Serve(l) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // a test that shut it down has looked at the error
		if err := <-r.served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
}

// request is what a sender sends.
type request struct {
	method, path string
	header       http.Header
	body         []byte
	chunked      bool
}

// reply is what it gets, without what no two answers share.
type reply struct {
	Status int
	Header http.Header
	Body   string
	Close  bool
}

func (r *rig) send(t testing.TB, q *request) reply {
	t.Helper()
	answer, err := r.try(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func (r *rig) try(ctx context.Context, q *request) (reply, error) {
	body := io.Reader(bytes.NewReader(q.body))
	if q.chunked {
		body = io.MultiReader(body) // hides the length
	}
	out, err := http.NewRequestWithContext(ctx, q.method, r.url+q.path, body)
	if err != nil {
		return reply{}, err
	}
	out.Header = q.header.Clone()
	in, err := r.client.Do(out)
	if err != nil {
		return reply{}, err
	}
	defer in.Body.Close()
	content, err := io.ReadAll(in.Body)
	if err != nil {
		return reply{}, err
	}
	in.Header.Del("Date")
	return reply{in.StatusCode, in.Header, string(content), in.Close}, nil
}

// signed returns a request to an endpoint of config as its provider would
// make it, with an idempotency key of its own.
func signed(t testing.TB, endpoint string, body []byte) *request {
	t.Helper()
	key := uuid.NewString()
	q := &request{method: http.MethodPost, path: "/hooks/" + endpoint, header: http.Header{}, body: body}
	q.header.Set("Content-Type", "application/json")
	switch endpoint {
	case "github":
		q.header.Set("X-GitHub-Delivery", key)
		q.header.Set("X-GitHub-Event", "push")
		q.sign(t, signature.GitHub(), githubSecret, key)
	case "standard":
		q.sign(t, signature.StandardWebhooks(), standardSecret, key)
	case "hmac":
		q.header.Set("X-GitHub-Delivery", key)
		q.sign(t, hmacScheme(), githubSecret, key)
	case "none":
		q.header.Set("X-GitHub-Delivery", key)
	default:
		t.Fatalf("no endpoint %q", endpoint)
	}
	return q
}

func (q *request) sign(t testing.TB, scheme signature.Scheme, secret, id string) {
	t.Helper()
	verifier, err := signature.New(scheme)
	if err != nil {
		t.Fatal(err)
	}
	key, err := scheme.DecodeSecret([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Sign(q.header, key, id, now, q.body); err != nil {
		t.Fatal(err)
	}
}

// receipt reads an answer that names an event.
func receipt(t testing.TB, a reply) (status string, id event.ID) {
	t.Helper()
	var content struct{ Status, EventID string }
	d := json.NewDecoder(strings.NewReader(a.Body))
	d.DisallowUnknownFields()
	if err := d.Decode(&content); err != nil {
		t.Fatalf("answer %+v: %v", a, err)
	}
	id, err := uuid.Parse(content.EventID)
	if err != nil {
		t.Fatalf("answer %+v: %v", a, err)
	}
	return content.Status, id
}

// accepted sends what must be accepted and returns its id.
func (r *rig) accepted(t testing.TB, q *request) event.ID {
	t.Helper()
	a := r.send(t, q)
	if a.Status != http.StatusAccepted {
		t.Fatalf("answer %+v, want 202", a)
	}
	status, id := receipt(t, a)
	if status != "accepted" {
		t.Errorf("answer %+v", a)
	}
	return id
}

// accept sends what must be accepted and returns the event as it is stored.
func (r *rig) accept(t testing.TB, q *request) *event.Event {
	t.Helper()
	record, err := r.store.ShowEvent(t.Context(), r.accepted(t, q))
	if err != nil {
		t.Fatal(err)
	}
	return record.Event
}

// refusal is the body of an answer that refuses.
func refusal(text string) string { return `{"error":"` + text + `"}` }

// stored counts the events of all endpoints, by their deliveries.
func (r *rig) stored(t testing.TB) int {
	t.Helper()
	records, err := r.store.ListDeliveries(t.Context(), store.Filter{Namespace: "test", Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return len(records)
}

// metric returns the value of a counter or gauge, or a histogram's count; 0
// if it is not there.
func (r *rig) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if fmt.Sprint(values(m)) == fmt.Sprint(labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// values returns the label values in the order of the labels' names.
func values(m *dto.Metric) []string {
	var values []string
	for _, l := range m.GetLabel() {
		values = append(values, l.GetValue())
	}
	return values
}

// requests returns how many requests to an endpoint had a result.
func (r *rig) requests(t testing.TB, endpoint, result string) float64 {
	t.Helper()
	return r.metric(t, "ackrail_ingress_requests_total", endpoint, "test", result)
}

// lines gathers a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// with returns the lines that have a message.
func (l *lines) with(t testing.TB, message string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}
