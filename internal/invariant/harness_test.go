package invariant_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/ingress"
	"github.com/ackrail/ackrail/internal/invariant"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/signature"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
	"github.com/ackrail/ackrail/internal/worker"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	// patience bounds every wait. It is reached only when a test fails.
	patience = time.Minute
	secret   = "It's a Secret to Everybody"
	forged   = "not the secret"
	// maxAttempts of every destination.
	maxAttempts = 2
)

var (
	github = event.EndpointRef{Namespace: "payments", Name: "github"}
	held   = event.EndpointRef{Namespace: "payments", Name: "held"}
)

// pieces are what a bug can be built into: each is wrapped around the real one.
type pieces struct {
	// schema runs once the database is migrated.
	schema   string
	ingress  func(*pipeline.Config)
	enqueuer func(*rig, ingress.Enqueuer) ingress.Enqueuer
	store    func(*rig, worker.Store) worker.Store
	sender   func(*rig, worker.Sender) worker.Sender
	replays  func(*rig, replay.Store) replay.Store
}

// rig is a pipeline with its senders and destinations.
type rig struct {
	t       *testing.T
	url     string
	since   time.Time
	config  *pipeline.Config
	history *invariant.History
	sink    *sink
	pool    *pgxpool.Pool
	store   *store.Store
	ingress string // its URL
	client  *http.Client
	workers worker.Store
	replays replay.Store
	sender  func(pipeline.Destination) (worker.Sender, error)
}

func newRig(t *testing.T, p pieces) *rig {
	t.Helper()
	r := &rig{t: t, url: testenv.Schema(t), history: &invariant.History{}}
	if err := store.Migrate(t.Context(), r.url, t.Logf); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.store, err = store.Open(r.url, store.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.store.Close)
	if r.pool, err = pgxpool.New(t.Context(), r.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.pool.Close)
	if r.since, err = invariant.Clock(t.Context(), r.url); err != nil {
		t.Fatal(err)
	}
	// Default partitions will do, and dozens more make every test slow.
	r.execute("UPDATE chore SET due_at = 'infinity' WHERE name = 'partitions'")
	if p.schema != "" {
		r.execute(p.schema)
	}
	r.sink = newSink(r)
	r.config = config(r.sink)
	r.buildIngress(p)
	r.buildWorkers(p)
	return r
}

// config has an endpoint with two destinations, and one that takes and holds.
func config(s *sink) *pipeline.Config {
	endpoint := func(ref event.EndpointRef, destinations ...string) pipeline.Endpoint {
		e := pipeline.Endpoint{
			Namespace: ref.Namespace, Name: ref.Name, Path: "/hooks/" + ref.Name, MaxBodyBytes: 1 << 20, LeaseSeconds: 60,
			Verification: pipeline.Verification{Provider: pipeline.ProviderGitHub, SecretFiles: []string{"secret"}},
			Retention:    pipeline.Retention{EventsSeconds: 86400, DeadLettersSeconds: 86400, DedupSeconds: 86400},
		}
		for _, name := range destinations {
			e.Destinations = append(e.Destinations, pipeline.Destination{
				Name: name, HTTP: pipeline.HTTP{URL: s.url(ref, name), TimeoutSeconds: 50}, MaxConcurrency: 16,
				Retry: pipeline.Retry{MaxAttempts: maxAttempts, MinBackoffSeconds: 1, MaxBackoffSeconds: 1},
			})
		}
		return e
	}
	c := &pipeline.Config{Version: pipeline.Version, Endpoints: []pipeline.Endpoint{
		endpoint(github, "handler", "audit"), endpoint(held, "handler"),
	}}
	c.Endpoints[1].Suspend = pipeline.SuspendDeliveries
	return c
}

func (r *rig) buildIngress(p pieces) {
	dir := r.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(secret), 0o600); err != nil {
		r.t.Fatal(err)
	}
	enqueuer := store.NewEnqueuer(r.store, store.EnqueuerOptions{})
	r.t.Cleanup(enqueuer.Close)
	metrics, err := ingress.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		r.t.Fatal(err)
	}
	o := ingress.Options{SecretsDir: dir, Enqueuer: enqueuer, Metrics: metrics, Logger: slog.New(slog.DiscardHandler), AckTimeout: patience}
	if p.enqueuer != nil {
		o.Enqueuer = p.enqueuer(r, enqueuer)
	}
	c := *r.config
	c.Endpoints = append([]pipeline.Endpoint(nil), c.Endpoints...)
	if p.ingress != nil {
		p.ingress(&c)
	}
	handler, err := ingress.New(&c, o)
	if err != nil {
		r.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.ingress = "http://" + l.Addr().String()
	server, served := ingress.NewServer(handler, ingress.ServerOptions{Logger: o.Logger}), make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	transport := &http.Transport{}
	r.client = &http.Client{Transport: transport, Timeout: patience}
	r.t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(server.Shutdown(ctx), <-served); err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) buildWorkers(p pieces) {
	r.workers, r.replays = r.store, r.store
	if p.store != nil {
		r.workers = p.store(r, r.store)
	}
	if p.replays != nil {
		r.replays = p.replays(r, r.store)
	}
	http, err := deliver.New("", "test")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(http.CloseIdleConnections)
	r.sender = func(d pipeline.Destination) (worker.Sender, error) {
		to, err := http.Destination(d)
		if err != nil || p.sender == nil {
			return to, err
		}
		return p.sender(r, to), nil
	}
}

// work runs two workers until the returned function is called, or the test ends.
func (r *rig) work() (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	first, second := r.begin(ctx, "worker-1", patience), r.begin(ctx, "worker-2", patience)
	stop = sync.OnceFunc(func() {
		cancel()
		first()
		second()
	})
	r.t.Cleanup(stop)
	return stop
}

// begin runs a worker until the context ends. The returned function waits for its end.
func (r *rig) begin(ctx context.Context, name string, drain time.Duration) (wait func()) {
	r.t.Helper()
	w, err := worker.New(r.config, worker.Options{
		Name: name, Store: r.workers, Sender: r.sender, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(), PollInterval: 50 * time.Millisecond, DrainTimeout: drain,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	return func() { <-ended }
}

// send is a webhook of a sender, or of somebody who does not know the secret.
func (r *rig) send(to event.EndpointRef, key, body, secret string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.ingress+"/hooks/"+to.Name, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Delivery", key)
	scheme := signature.GitHub()
	verifier, err := signature.New(scheme)
	if err != nil {
		r.t.Fatal(err)
	}
	signing, err := scheme.DecodeSecret([]byte(secret))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := verifier.Sign(request.Header, signing, key, time.Now(), []byte(body)); err != nil {
		r.t.Fatal(err)
	}
	s := invariant.Send{
		Namespace: to.Namespace, Endpoint: to.Name, Key: key, Body: sha256.Sum256([]byte(body)), At: time.Now(), Forged: secret == forged,
	}
	answer, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	s.Answered, s.Status, s.RetryAfter = time.Now(), answer.StatusCode, answer.Header.Get("Retry-After")
	if s.Status/100 == 2 {
		var said struct{ EventID string }
		if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
			r.t.Fatal(err)
		}
		s.EventID = said.EventID
	}
	r.history.Sent(s)
}

func (r *rig) execute(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// none waits until a query counts nothing.
func (r *rig) none(query string, args ...any) {
	r.t.Helper()
	testenv.Eventually(r.t, patience, func() error {
		var n int
		err := r.pool.QueryRow(r.t.Context(), query, args...).Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%s: %d", query, n)
		}
		return err
	})
}

// drained waits until nothing is open but what is held.
func (r *rig) drained() {
	r.t.Helper()
	r.none(`SELECT count(*) FROM delivery_state WHERE state IN ('pending', 'claimed', 'failed') AND endpoint <> $1`, held.Name)
}

// replay starts a replay, or goes on with it as a manager does that was started anew.
func (r *rig) replay(id uuid.UUID, name string, s replay.Selector) {
	r.t.Helper()
	_, err := replay.Start(r.t.Context(), r.replays, replay.Request{
		ID: id, Namespace: github.Namespace, Name: name, Endpoint: github, Selector: s, Spec: name,
	}, 0)
	if err != nil {
		r.t.Fatal(err)
	}
}

// check expects all to be drained. Nothing was owed to the later destinations when events came.
func (r *rig) check(later ...event.DestinationRef) *invariant.Verdict {
	r.t.Helper()
	v, err := invariant.Check(r.t.Context(), r.url, r.history, invariant.Expect{
		Config: r.config, Later: later, Drained: true, Since: r.since,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}
