package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

type client struct {
	t   *testing.T
	url string
}

func start(t *testing.T, s *sink) client {
	t.Helper()
	server := httptest.NewServer(s.routes())
	t.Cleanup(func() {
		s.stop()
		server.Close()
	})
	return client{t, server.URL}
}

// do returns the status and the body of an answer.
func (c client) do(method, path string, header map[string]string, body string) (int, string) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func (c client) expect(status int, method, path string) {
	c.t.Helper()
	if got, answer := c.do(method, path, nil, "{}"); got != status {
		c.t.Errorf("%s %s: status %d, want %d: %s", method, path, got, status, answer)
	}
}

func (c client) records() []record {
	c.t.Helper()
	_, answer := c.do("GET", "/requests", nil, "")
	return parse(c.t, answer)
}

func parse(t *testing.T, lines string) []record {
	t.Helper()
	var records []record
	for decoder := json.NewDecoder(strings.NewReader(lines)); ; {
		var r record
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			return records
		} else if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
}

func TestRecords(t *testing.T) {
	var log bytes.Buffer
	c := start(t, newSink(10, "", &log))
	c.do("POST", "/events", map[string]string{
		"Webhook-Id": "a", "Ackrail-Attempt": "3", "Ackrail-Run": "2", "Ackrail-Replay": "r", "Ackrail-Event-Type": "push",
	}, "hello")
	c.expect(http.StatusNoContent, "POST", "/")
	got := c.records()
	want := []record{
		{Path: "/events", ID: "a", Attempt: 3, Run: 2, Replay: "r", Type: "push", Bytes: 5, Signature: "unchecked", Status: 204,
			SHA256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"},
		{Path: "/", Bytes: 2, Signature: "unchecked", Status: 204,
			SHA256: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(record{}, "Time")); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(got, parse(t, log.String())); diff != "" {
		t.Errorf("log (-records +log):\n%s", diff)
	}
	for _, r := range got {
		if since := time.Since(r.Time); since < 0 || since > time.Minute {
			t.Errorf("time %v is not now", r.Time)
		}
	}
	c.expect(http.StatusNoContent, "DELETE", "/requests")
	if left := c.records(); left != nil {
		t.Errorf("left after DELETE: %v", left)
	}
	c.expect(http.StatusOK, "GET", "/healthz")
}

func TestKeepsTheLatest(t *testing.T) {
	s := newSink(2, "", io.Discard)
	c := start(t, s)
	for _, path := range []string{"/1", "/2", "/3"} {
		c.expect(http.StatusNoContent, "POST", path)
	}
	var paths []string
	for _, r := range c.records() {
		paths = append(paths, r.Path)
	}
	if diff := cmp.Diff([]string{"/2", "/3"}, paths); diff != "" || s.dropped != 1 {
		t.Errorf("kept (-want +got), dropped %d:\n%s", s.dropped, diff)
	}
}

func TestBehaviour(t *testing.T) {
	c := start(t, newSink(100, "", io.Discard))
	c.expect(http.StatusNoContent, "PUT", "/behaviour?path=/x&status=500&times=2")
	c.expect(http.StatusNoContent, "PUT", "/behaviour?status=429")
	c.expect(http.StatusInternalServerError, "POST", "/x")
	c.expect(http.StatusTooManyRequests, "POST", "/y")
	c.expect(http.StatusInternalServerError, "POST", "/x")
	c.expect(http.StatusTooManyRequests, "POST", "/x")
	c.expect(http.StatusNoContent, "DELETE", "/behaviour")
	c.expect(http.StatusNoContent, "POST", "/x")

	c.expect(http.StatusNoContent, "PUT", "/behaviour?path=/slow&delay=50ms&status=201")
	before := time.Now()
	c.expect(http.StatusCreated, "POST", "/slow")
	if took := time.Since(before); took < 50*time.Millisecond {
		t.Errorf("answered after %v, want 50ms or more", took)
	}
}

func TestHangIsRecordedAtOnceAndEndsWithTheClient(t *testing.T) {
	c := start(t, newSink(100, "", io.Discard))
	c.expect(http.StatusNoContent, "PUT", "/behaviour?path=/x&hang=true")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		request, err := http.NewRequestWithContext(ctx, "POST", c.url+"/x", nil)
		if err == nil {
			var response *http.Response
			if response, err = http.DefaultClient.Do(request); err == nil {
				err = errors.Join(errors.New(response.Status), response.Body.Close())
			}
		}
		ended <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for len(c.records()) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("not recorded while it hangs")
		}
	}
	if r := c.records()[0]; !r.Hang || r.Status != 0 {
		t.Errorf("recorded as %+v, want a request that hangs", r)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestBehaviourRefusals(t *testing.T) {
	c := start(t, newSink(1, "", io.Discard))
	for query, want := range map[string]string{
		"status=ok":  "status: ",
		"status=100": "status: must be between 200 and 599, is 100",
		"times=0":    "times: must be at least 1, is 0",
		"delay=10":   "delay: ",
		"hang=maybe": "hang: ",
		"statu=500":  "statu: is unknown",
	} {
		if status, answer := c.do("PUT", "/behaviour?"+query, nil, ""); status != http.StatusBadRequest || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %q, want 400 %q", query, status, answer, want)
		}
	}
	c.expect(http.StatusNoContent, "POST", "/")
}

// The example of the specification's reference libraries.
func TestSignatures(t *testing.T) {
	const body = `{"test": 2432232314}`
	at := time.Unix(1614265330, 0)
	signed := http.Header{
		"Webhook-Id":        {"msg_p5jXN8AQM9LWM0D4loKWxJek"},
		"Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {"v1a,other v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	}
	without := func(name string) http.Header {
		h := signed.Clone()
		h.Del(name)
		return h
	}
	const secret, other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAA"
	for _, tc := range []struct {
		name    string
		secrets string
		header  http.Header
		body    string
		now     time.Time
		want    bool
	}{
		{"signed", secret, signed, body, at, true},
		{"second secret", other + "\n" + secret + "\n", signed, body, at.Add(5 * time.Minute), true},
		{"other secret", other, signed, body, at, false},
		{"no secret", "\n", signed, body, at, false},
		{"other body", secret, signed, body + " ", at, false},
		{"stale", secret, signed, body, at.Add(5*time.Minute + 1), false},
		{"early", secret, signed, body, at.Add(-5*time.Minute - 1), false},
		{"no signature", secret, without("Webhook-Signature"), body, at, false},
		{"no id", secret, without("Webhook-Id"), body, at, false},
		{"no time", secret, without("Webhook-Timestamp"), body, at, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(file, []byte(tc.secrets), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := verify(file, tc.header, []byte(tc.body), tc.now); got != tc.want {
				t.Errorf("verified: %v, want %v", got, tc.want)
			}
		})
	}
	t.Run("unreadable secrets", func(t *testing.T) {
		c := start(t, newSink(1, filepath.Join(t.TempDir(), "missing"), io.Discard))
		c.expect(http.StatusNoContent, "POST", "/")
		if r := c.records()[0]; r.Signature != "invalid" {
			t.Errorf("signature %q, want invalid", r.Signature)
		}
	})
}

func TestStopsWithRequestsUnderWay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSink(1, "", writerFunc(func(p []byte) (int, error) {
		cancel() // The request has been recorded and is about to hang.
		return len(p), nil
	}))
	s.behaviours[""] = behaviour{hang: true}
	served := make(chan error, 1)
	go func() { served <- serve(ctx, l, s) }()
	response, err := http.Post("http://"+l.Addr().String()+"/", "text/plain", nil)
	if err == nil {
		t.Errorf("a request that hangs was answered: %s, %v", response.Status, response.Body.Close())
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
