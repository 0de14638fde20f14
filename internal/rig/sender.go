package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/signature"
)

// Secret is what senders and endpoints share; it lies in SecretFile.
const (
	Secret     = "It's a Secret to Everybody"
	SecretFile = "github"
)

// GitHub is an endpoint of namespace "test" with a destination "handler" at a
// URL, the shortest lease there is (6 s), and a second between attempts.
func GitHub(name, url string, change ...func(*pipeline.Endpoint)) pipeline.Endpoint {
	e := pipeline.Endpoint{
		Namespace:    "test",
		Name:         name,
		Path:         "/hooks/test/" + name,
		Verification: pipeline.Verification{Provider: pipeline.ProviderGitHub, SecretFiles: []string{SecretFile}},
		MaxBodyBytes: 1 << 20,
		LeaseSeconds: 6,
		Retention:    pipeline.Retention{EventsSeconds: 86400, DeadLettersSeconds: 86400, DedupSeconds: 86400},
		Destinations: []pipeline.Destination{Destination("handler", url)},
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

// Destination is one at a URL with three attempts, of a second each.
func Destination(name, url string) pipeline.Destination {
	return pipeline.Destination{
		Name:           name,
		HTTP:           pipeline.HTTP{URL: url, TimeoutSeconds: 1},
		Retry:          pipeline.Retry{MaxAttempts: 3, MinBackoffSeconds: 1, MaxBackoffSeconds: 1},
		MaxConcurrency: 64,
	}
}

// Secrets are the files that endpoints of GitHub name.
func Secrets() map[string]string { return map[string]string{SecretFile: Secret} }

// Sender sends signed GitHub webhooks.
type Sender struct {
	Client *http.Client

	verifier *signature.Verifier
	key      signature.Key
}

// NewSender makes a sender that keeps a number of connections, and waits 10 s
// for an answer.
func NewSender(t testing.TB, connections int) *Sender {
	t.Helper()
	scheme := signature.GitHub()
	verifier, err := signature.New(scheme)
	if err != nil {
		t.Fatal(err)
	}
	key, err := scheme.DecodeSecret([]byte(Secret))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	t.Cleanup(transport.CloseIdleConnections)
	return &Sender{Client: &http.Client{Transport: transport, Timeout: 10 * time.Second}, verifier: verifier, key: key}
}

// Answer is what an ingress said.
type Answer struct {
	Status     int
	RetryAfter string
	// EventID is that of a 2xx.
	EventID string
	Took    time.Duration
}

// Sign adds the signature of a body to its header.
func (s *Sender) Sign(header http.Header, id string, body []byte) error {
	return s.verifier.Sign(header, s.key, id, time.Now(), body)
}

// Send sends a signed webhook. An error means that no whole answer came.
func (s *Sender) Send(url, id string, body []byte) (Answer, error) {
	return s.post(url, id, body, body)
}

// Forge is Send with the signature of another body.
func (s *Sender) Forge(url, id string, body []byte) (Answer, error) {
	return s.post(url, id, body, append(bytes.Clone(body), ' '))
}

func (s *Sender) post(url, id string, body, signed []byte) (Answer, error) {
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Delivery", id)
	request.Header.Set("X-GitHub-Event", "push")
	if err := s.Sign(request.Header, id, signed); err != nil {
		return Answer{}, err
	}
	start := time.Now()
	response, err := s.Client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: response.StatusCode, RetryAfter: response.Header.Get("Retry-After"), Took: time.Since(start)}
	var said struct {
		EventID string `json:"eventId"`
	}
	if a.Status/100 == 2 {
		if err := json.Unmarshal(text, &said); err != nil {
			return a, fmt.Errorf("answer %s: %w", text, err)
		}
		a.EventID = said.EventID
	}
	return a, nil
}

// Accepted sends a webhook that must be accepted as new, and returns the
// event's id.
func (s *Sender) Accepted(t testing.TB, url, id string, body []byte) string {
	t.Helper()
	a, err := s.Send(url, id, body)
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != http.StatusAccepted {
		t.Fatalf("answered with %d, want 202", a.Status)
	}
	return a.EventID
}
