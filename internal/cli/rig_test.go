package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/signature"
	"github.com/ackrail/ackrail/internal/store"
)

const (
	testSecret     = "It's a Secret to Everybody"
	testSecretFile = "github"
)

// githubEndpoint is an endpoint with a destination "handler" at a URL, the
// shortest lease there is, and a second between attempts.
func githubEndpoint(name, url string, change ...func(*pipeline.Endpoint)) pipeline.Endpoint {
	e := pipeline.Endpoint{
		Namespace:    "test",
		Name:         name,
		Path:         "/hooks/test/" + name,
		Verification: pipeline.Verification{Provider: pipeline.ProviderGitHub, SecretFiles: []string{testSecretFile}},
		MaxBodyBytes: 1 << 20,
		LeaseSeconds: 6,
		Retention:    pipeline.Retention{EventsSeconds: 86400, DeadLettersSeconds: 86400, DedupSeconds: 86400},
		Destinations: []pipeline.Destination{destination("handler", url)},
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func destination(name, url string) pipeline.Destination {
	return pipeline.Destination{
		Name:           name,
		HTTP:           pipeline.HTTP{URL: url, TimeoutSeconds: 1},
		Retry:          pipeline.Retry{MaxAttempts: 3, MinBackoffSeconds: 1, MaxBackoffSeconds: 1},
		MaxConcurrency: 64,
	}
}

func githubSecrets() map[string]string { return map[string]string{testSecretFile: testSecret} }

// sender sends signed GitHub webhooks.
type sender struct {
	client   *http.Client
	verifier *signature.Verifier
	key      signature.Key
}

func newSender(t testing.TB, connections int) *sender {
	t.Helper()
	scheme := signature.GitHub()
	verifier, err := signature.New(scheme)
	if err != nil {
		t.Fatal(err)
	}
	key, err := scheme.DecodeSecret([]byte(testSecret))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	t.Cleanup(transport.CloseIdleConnections)
	return &sender{client: &http.Client{Transport: transport, Timeout: 10 * time.Second}, verifier: verifier, key: key}
}

// answer is what an ingress said.
type answer struct {
	status     int
	retryAfter string
	eventID    string
	took       time.Duration
}

func (s *sender) send(url, id string, body []byte) (answer, error) {
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Delivery", id)
	request.Header.Set("X-GitHub-Event", "push")
	if err := s.verifier.Sign(request.Header, s.key, id, time.Now(), body); err != nil {
		return answer{}, err
	}
	start := time.Now()
	response, err := s.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: response.StatusCode, retryAfter: response.Header.Get("Retry-After"), took: time.Since(start)}
	var said struct {
		EventID string `json:"eventId"`
	}
	if a.status/100 == 2 {
		if err := json.Unmarshal(text, &said); err != nil {
			return a, fmt.Errorf("answer %s: %w", text, err)
		}
		a.eventID = said.EventID
	}
	return a, nil
}

// accepted sends a webhook that must be accepted as new, and returns the
// event's id.
func (s *sender) accepted(t testing.TB, url, id string, body []byte) string {
	t.Helper()
	a, err := s.send(url, id, body)
	if err != nil {
		t.Fatal(err)
	}
	if a.status != http.StatusAccepted {
		t.Fatalf("answered with %d, want 202", a.status)
	}
	return a.eventID
}

// look is the database as a test sees it.
type look struct {
	t     testing.TB
	conn  *pgx.Conn
	store *store.Store
}

func (r *rig) look() *look {
	r.t.Helper()
	conn, err := pgx.Connect(context.Background(), r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := store.Open(r.url, store.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		s.Close()
		_ = conn.Close(context.Background())
	})
	return &look{r.t, conn, s}
}

// number runs a query that returns one number.
func (l *look) number(query string, args ...any) int {
	l.t.Helper()
	n, err := l.tryNumber(query, args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

func (l *look) tryNumber(query string, args ...any) (n int, err error) {
	err = l.conn.QueryRow(context.Background(), query, args...).Scan(&n)
	return n, err
}

// event returns everything about an event.
func (l *look) event(id string) *store.EventRecord {
	l.t.Helper()
	record, err := l.store.ShowEvent(context.Background(), parseID(l.t, id))
	if err != nil {
		l.t.Fatal(err)
	}
	return record
}

// drained reports an error until no delivery is open any more.
func (l *look) drained() error {
	n, err := l.tryNumber("SELECT count(*) FROM delivery")
	if err == nil && n > 0 {
		err = fmt.Errorf("%d deliveries are open", n)
	}
	return err
}

// results are the results of an event's attempts, in order.
func results(r *store.EventRecord) []string {
	var all []string
	for _, a := range r.Attempts {
		all = append(all, string(a.Result))
	}
	return all
}

func states(r *store.EventRecord) []event.State {
	var all []event.State
	for _, d := range r.Deliveries {
		all = append(all, d.State)
	}
	return all
}

func parseID(t testing.TB, s string) event.ID {
	t.Helper()
	var id event.ID
	if err := id.UnmarshalText([]byte(s)); err != nil {
		t.Fatal(err)
	}
	return id
}

var errNotYet = errors.New("not yet")
