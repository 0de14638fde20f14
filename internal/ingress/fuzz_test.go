package ingress_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/ingress"
	"github.com/ackrail/ackrail/internal/signature"
	"github.com/ackrail/ackrail/internal/store"
)

// memory takes every event and keeps the last. It stands in for the store
// where only the ingress is looked at.
type memory struct{ last *event.Event }

func (m *memory) Enqueue(_ context.Context, s store.Submission) (store.Receipt, error) {
	m.last = s.Event
	return store.Receipt{EventID: s.Event.ID}, nil
}

// unserved is what a handler needs, without a server or a database.
func unserved(t testing.TB) *setup {
	t.Helper()
	metrics, err := ingress.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return &setup{config: config(), options: ingress.Options{
		SecretsDir: secrets(t), Enqueuer: &memory{}, Metrics: metrics,
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
	}}
}

// FuzzHandler sends requests of which the sender chooses every byte. With a
// database that works there is no 5xx, and what is passed on to it is what
// it can hold.
func FuzzHandler(f *testing.F) {
	with := unserved(f)
	enqueuer := &memory{}
	with.options.Enqueuer = enqueuer
	handler, err := ingress.New(with.config, with.options)
	if err != nil {
		f.Fatal(err)
	}
	const own = "Host: test\r\nX-GitHub-Delivery: 1\r\nX-Kind: k\r\nContent-Type: application/json\r\n"
	f.Add("POST /hooks/none HTTP/1.1\r\n"+own, []byte("{}"), false)
	f.Add("POST /hooks/github HTTP/1.1\r\n"+own+"X-GitHub-Event: push\r\n", []byte(`{"a":"\u0000"}`), true)
	f.Add("POST /hooks/hmac HTTP/1.1\r\n"+own+"Cookie: \xff\r\nX-Odd: \xff\r\nTraceparent: 00-0-0-0\r\nConnection: x, ,\r\n", []byte{0, 0xff}, true)
	f.Add("POST /hooks/none HTTP/1.1\r\n"+own+"Transfer-Encoding: chunked\r\n", []byte("1\r\nx\r\n0\r\n\r\n"), false)
	f.Add("POST /hooks/standard HTTP/1.0\r\n"+own+"Webhook-Id: msg_1\r\n", []byte("1"), true)
	f.Add("GET * HTTP/1.1\r\nHost: test\r\n", []byte{}, false)
	allowed := []int{200, 202, 400, 401, 404, 405, 408, 413, 415, 422}

	f.Fuzz(func(t *testing.T, head string, body []byte, sign bool) {
		raw := strings.TrimRight(head, "\r\n")
		if !strings.Contains(strings.ToLower(raw), "transfer-encoding") {
			raw += fmt.Sprintf("\r\nContent-Length: %d", len(body))
		}
		r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(raw+"\r\n\r\n"), bytes.NewReader(body))))
		if err != nil {
			return // net/http's own affair
		}
		if sign {
			signAs(t, r, body)
		}
		enqueuer.last = nil
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if !slices.Contains(allowed, w.Code) || !json.Valid(w.Body.Bytes()) {
			t.Fatalf("answer %d %q", w.Code, w.Body)
		}
		if (w.Code < 300) != (enqueuer.last != nil) {
			t.Fatalf("answer %d, event %+v", w.Code, enqueuer.last)
		}
		if enqueuer.last != nil {
			checkStorable(t, enqueuer.last)
			if r.TransferEncoding == nil && !bytes.Equal(enqueuer.last.Body, body) {
				t.Fatalf("body %q, want %q", enqueuer.last.Body, body)
			}
		}
	})
}

// signAs signs a request for the endpoint that it names.
func signAs(t *testing.T, r *http.Request, body []byte) {
	scheme, secret := hmacScheme(), githubSecret
	if r.URL.Path == "/hooks/standard" {
		scheme, secret = signature.StandardWebhooks(), standardSecret
	}
	verifier, err := signature.New(scheme)
	if err != nil {
		t.Fatal(err)
	}
	key, err := scheme.DecodeSecret([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	// An id that cannot be signed stays unsigned.
	_ = verifier.Sign(r.Header, key, r.Header.Get("Webhook-Id"), now, body)
}

// checkStorable asserts what PostgreSQL asks of text and jsonb, and what the
// domain asks of an event.
func checkStorable(t *testing.T, e *event.Event) {
	texts := map[string]string{"key": e.Key, "type": e.Type, "content type": e.ContentType, "trace parent": e.TraceParent}
	size := 0
	for name, values := range e.Headers {
		for i, value := range values {
			texts[fmt.Sprintf("header %q %d", name, i)] = name + value
			size += len(name) + len(value)
		}
	}
	for name, text := range texts {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Errorf("%s: %q cannot be stored", name, text)
		}
	}
	if e.Key == "" || len(e.Key) > event.MaxKeyBytes || len(e.Type) > event.MaxTypeBytes || len(e.ContentType) > 256 || size > 16<<10 {
		t.Errorf("out of bounds: %+v", e)
	}
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "Connection"} {
		if e.Headers[name] != nil {
			t.Errorf("header %s is kept", name)
		}
	}
	if e.Body == nil {
		t.Error("no body")
	}
}
