package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ackrail/ackrail/internal/testenv"
)

// post sends one request over a connection of its own.
func post(ctx context.Context, url, id, body string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("webhook-id", id)
	request.Close = true
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func mustPost(t *testing.T, url, id, body string, want int) {
	t.Helper()
	got, _, err := post(t.Context(), url, id, body)
	if err != nil || got != want {
		t.Fatalf("got %d, %v, want %d", got, err, want)
	}
}

func TestSinkRecords(t *testing.T) {
	s := testenv.NewSink(t)
	begin := time.Now()
	mustPost(t, s.URL()+"/a?b=c", "evt_1", "one\x00", 204)
	s.Handle(testenv.Status(500))
	mustPost(t, s.URL(), "evt_2", "two", 500)
	s.Handle(testenv.Status(202))
	mustPost(t, s.URL(), "evt_2", "two", 202)
	mustPost(t, s.URL(), "evt_2", "two", 202)

	type brief struct{ ID, Method, URI, Body string }
	var got []brief
	for _, r := range s.Requests() {
		got = append(got, brief{r.ID(), r.Method, r.URI, string(r.Body)})
		if r.Time.Before(begin) || r.Time.After(time.Now()) {
			t.Errorf("time %s", r.Time)
		}
	}
	want := []brief{
		{"evt_1", "POST", "/a?b=c", "one\x00"},
		{"evt_2", "POST", "/", "two"}, {"evt_2", "POST", "/", "two"}, {"evt_2", "POST", "/", "two"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"evt_1": 1, "evt_2": 2}, s.Processed()); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
}

func TestSinkCustomHandler(t *testing.T) {
	s := testenv.NewSink(t)
	s.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = fmt.Fprintf(w, "got %s", body)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}))
	code, text, err := post(t.Context(), s.URL(), "evt_1", "this")
	if code != 200 || text != "got this" || err != nil {
		t.Errorf("got %d %q, %v", code, text, err)
	}
	s.Handle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	mustPost(t, s.URL(), "evt_2", "", 200)
	if diff := cmp.Diff(map[string]int{"evt_1": 1, "evt_2": 1}, s.Processed()); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
}

func TestSinkBlocks(t *testing.T) {
	s := testenv.NewSink(t)
	handler, release := testenv.Block(testenv.Status(201))
	s.Handle(handler)
	arrived := func(n int) func([]testenv.Request) error {
		return func(requests []testenv.Request) error {
			if len(requests) < n {
				return fmt.Errorf("%d requests", len(requests))
			}
			return nil
		}
	}

	// A client that goes away has had no effect.
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, _, err := post(ctx, s.URL(), "evt_1", "")
		gone <- err
	}()
	s.WaitFor(t, patience, arrived(1))
	cancel()
	if err := receive(t, "the cancelled request", gone); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}

	answered := make(chan int, 1)
	go func() {
		code, _, err := post(t.Context(), s.URL(), "evt_2", "")
		if err != nil {
			t.Error(err)
		}
		answered <- code
	}()
	s.WaitFor(t, patience, arrived(2))
	if got := s.Processed(); len(got) != 0 {
		t.Errorf("processed %v while blocked", got)
	}
	release()
	release()
	if code := receive(t, "the answer", answered); code != 201 {
		t.Errorf("got %d", code)
	}
	if diff := cmp.Diff(map[string]int{"evt_2": 1}, s.Processed()); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
}

func TestSinkDelays(t *testing.T) {
	s := testenv.NewSink(t)
	const delay = 50 * time.Millisecond
	s.Handle(testenv.After(delay, testenv.Status(200)))
	begin := time.Now()
	mustPost(t, s.URL(), "evt_1", "", 200)
	if got := time.Since(begin); got < delay {
		t.Errorf("answered after %s", got)
	}
	s.Handle(testenv.After(time.Hour, testenv.Status(200)))
	ctx, cancel := context.WithTimeout(t.Context(), delay)
	defer cancel()
	if _, _, err := post(ctx, s.URL(), "evt_2", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(map[string]int{"evt_1": 1}, s.Processed()); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
}

// The end of a test does not wait for a request that is never answered.
func TestSinkEndsWithHeldRequest(t *testing.T) {
	failed := make(chan error, 1)
	t.Run("", func(t *testing.T) {
		s := testenv.NewSink(t)
		handler, _ := testenv.Block(testenv.Status(200))
		s.Handle(handler)
		go func() {
			_, _, err := post(context.Background(), s.URL(), "evt_1", "")
			failed <- err
		}()
		s.WaitFor(t, patience, func(requests []testenv.Request) error {
			if len(requests) == 0 {
				return errors.New("no request")
			}
			return nil
		})
	})
	if err := receive(t, "the request", failed); err == nil {
		t.Error("it was answered")
	}
}

func TestEventually(t *testing.T) {
	calls := 0
	testenv.Eventually(t, patience, func() error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
	got := failure(t, func(t testing.TB) {
		testenv.Eventually(t, time.Millisecond, func() error { return errors.New("never so") })
	})
	if got != "not within 1ms: never so" {
		t.Errorf("got %q", got)
	}
}
