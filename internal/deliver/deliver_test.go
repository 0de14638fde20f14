package deliver_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/signature"
)

const (
	secretName = "destination/secret"
	secret     = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

var eventID = uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")

func request() *deliver.Request {
	return &deliver.Request{
		Event: &event.Event{ID: eventID, Type: "push", ContentType: "application/json", Body: []byte(`{"a": 1}`)},
		Run:   1, Attempt: 1,
	}
}

// destination makes one with a sender of its own; change may be nil.
func destination(t *testing.T, secrets, url string, change func(*pipeline.Destination)) *deliver.Destination {
	t.Helper()
	sender, err := deliver.New(secrets, "1.2.3")
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(sender.CloseIdleConnections)
	d := pipeline.Destination{
		Name:  "handler",
		HTTP:  pipeline.HTTP{URL: url, TimeoutSeconds: 20},
		Retry: pipeline.Retry{MaxAttempts: 3, MinBackoffSeconds: 1, MaxBackoffSeconds: 3600},
	}
	if change != nil {
		change(&d)
	}
	dest, err := sender.Destination(d)
	if err != nil {
		t.Fatalf("Destination: %v", err)
	}
	return dest
}

func timeout(seconds int) func(*pipeline.Destination) {
	return func(d *pipeline.Destination) { d.HTTP.TimeoutSeconds = seconds }
}

func signed(d *pipeline.Destination) { d.HTTP.SigningSecretFile = secretName }

func writeSecret(t *testing.T, folder, content string) {
	t.Helper()
	path := filepath.Join(folder, filepath.FromSlash(secretName))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// serveRaw answers each connection with a function on the bare connection, which is closed after it.
func serveRaw(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[conn] = true
			mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + listener.Addr().String()
}

// readRequest takes one request off a bare connection.
func readRequest(conn net.Conn) error {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

func TestRequestOnTheWire(t *testing.T) {
	replay := uuid.MustParse("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
	trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	derived := "00-01890a5dac96774bbcceb302099a8057-bcceb302099a8057-01"
	tests := map[string]struct {
		request deliver.Request
		want    http.Header // without webhook-timestamp
	}{
		"all there is": {
			deliver.Request{
				Event: &event.Event{ID: eventID, Type: "push", ContentType: "application/json; charset=utf-8; x=\"Y\"", Body: []byte("{ }\n"), TraceParent: trace},
				Run:   2, Attempt: 13, Replay: &replay,
			},
			http.Header{
				"Content-Type": {"application/json; charset=utf-8; x=\"Y\""}, "Content-Length": {"4"}, "User-Agent": {"Ackrail/1.2.3"},
				"Webhook-Id": {eventID.String()}, "Idempotency-Key": {eventID.String()}, "Traceparent": {trace},
				"Ackrail-Attempt": {"13"}, "Ackrail-Run": {"2"}, "Ackrail-Event-Type": {"push"}, "Ackrail-Replay": {replay.String()},
			},
		},
		"the least": {
			deliver.Request{Event: &event.Event{ID: eventID, TraceParent: "none"}, Run: 1, Attempt: 1},
			http.Header{
				"Content-Length": {"0"}, "User-Agent": {"Ackrail/1.2.3"},
				"Webhook-Id": {eventID.String()}, "Idempotency-Key": {eventID.String()}, "Traceparent": {derived},
				"Ackrail-Attempt": {"1"}, "Ackrail-Run": {"1"},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			received := make(chan *http.Request, 1)
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				// net/http moves these two out of the header.
				r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
				received <- r.Clone(context.Background())
			})
			before := time.Now().Unix()
			outcome := destination(t, "", url+"/events?token=abc", nil).Send(t.Context(), &tc.request)
			if outcome.Verdict != event.VerdictDone {
				t.Fatalf("Send = %+v", outcome)
			}
			got := <-received
			if got.Method != http.MethodPost || got.RequestURI != "/events?token=abc" {
				t.Errorf("got %s %s", got.Method, got.RequestURI)
			}
			timestamp, err := strconv.ParseInt(got.Header.Get("webhook-timestamp"), 10, 64)
			if err != nil || timestamp < before || timestamp > time.Now().Unix() {
				t.Errorf("webhook-timestamp = %q, want now", got.Header.Get("webhook-timestamp"))
			}
			got.Header.Del("webhook-timestamp")
			if diff := cmp.Diff(tc.want, got.Header); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBodyArrivesByteForByte(t *testing.T) {
	bodies := map[string][]byte{
		"empty":         {},
		"nil":           nil,
		"NUL":           {0},
		"invalid UTF-8": []byte("\xff\xfe{\"a\":\xc3\x28}"),
		"pretty":        []byte("{\r\n\t\"a\" : 1e400,\n \"a\": \"\\u0000\"}\n\n"),
		"long number":   []byte(`{"n":` + strings.Repeat("9", 400) + `}`),
		"looks chunked": []byte("5\r\nhello\r\n0\r\n\r\n"),
		"5 MiB":         bytes.Repeat([]byte{0, 1, 2, 254, 255}, 1<<20),
	}
	received := make(chan []byte, 1)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(body)) || r.TransferEncoding != nil {
			t.Errorf("read %d bytes: %v; Content-Length %d, Transfer-Encoding %v", len(body), err, r.ContentLength, r.TransferEncoding)
		}
		received <- body
	})
	dest := destination(t, "", url, nil)
	for name, body := range bodies {
		r := request()
		r.Event.Body = bytes.Clone(body)
		if outcome := dest.Send(t.Context(), r); outcome.Verdict != event.VerdictDone {
			t.Fatalf("%s: Send = %+v", name, outcome)
		}
		if got := <-received; !bytes.Equal(got, body) {
			t.Errorf("%s: %d other bytes arrived for %d", name, len(got), len(body))
		}
		if !bytes.Equal(r.Event.Body, body) {
			t.Errorf("%s: Send changed the event's body", name)
		}
	}
}

// The receiver verifies as any Standard Webhooks receiver does; the secret is changed under the running sender.
func TestSigning(t *testing.T) {
	scheme := signature.StandardWebhooks()
	verifier, err := signature.New(scheme)
	if err != nil {
		t.Fatal(err)
	}
	secrets := t.TempDir()
	writeSecret(t, secrets, secret+"\n")
	var key signature.Key
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verifier.Verify(r.Header, body, []signature.Key{key}, time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
		}
	})
	dest := destination(t, secrets, url, signed)
	if key, err = scheme.DecodeSecret([]byte(secret)); err != nil {
		t.Fatal(err)
	}
	if outcome := dest.Send(t.Context(), request()); outcome.Verdict != event.VerdictDone {
		t.Fatalf("Send = %+v", outcome)
	}
	const next = "whsec_bmV4dCBzZWNyZXQgb2YgMjQgYnl0ZXM="
	if key, err = scheme.DecodeSecret([]byte(next)); err != nil {
		t.Fatal(err)
	}
	writeSecret(t, secrets, next)
	deadline := time.Now().Add(10 * time.Second)
	for dest.Send(t.Context(), request()).Verdict != event.VerdictDone {
		if time.Now().After(deadline) {
			t.Fatal("the new secret was not taken up")
		}
	}
}

func TestNothingIsSentWithoutASignatureThatIsDue(t *testing.T) {
	tests := map[string]func(t *testing.T, folder string){
		"missing":     func(*testing.T, string) {},
		"empty":       func(t *testing.T, folder string) { writeSecret(t, folder, "\n") },
		"undecodable": func(t *testing.T, folder string) { writeSecret(t, folder, "whsec_not base64!") },
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
			secrets := t.TempDir()
			prepare(t, secrets)
			outcome := destination(t, secrets, url, signed).Send(t.Context(), request())
			if outcome.Verdict != event.VerdictFailed || outcome.Class != event.ErrorSigningSecret || outcome.Status != 0 {
				t.Errorf("Send = %+v", outcome)
			}
			if !strings.Contains(outcome.Error, secretName) || strings.Contains(outcome.Error, "not base64!") {
				t.Errorf("the error must name the file and not quote it: %s", outcome.Error)
			}
		})
	}
}

func TestDestinationRefuses(t *testing.T) {
	sender, err := deliver.New(t.TempDir(), "1")
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]pipeline.HTTP{
		"no URL":                    {TimeoutSeconds: 1},
		"a relative URL":            {URL: "/t0ken", TimeoutSeconds: 1},
		"another scheme":            {URL: "ftp://127.0.0.1/t0ken", TimeoutSeconds: 1},
		"not a URL":                 {URL: "http://127.0.0.1/t0ken\x00", TimeoutSeconds: 1},
		"no timeout":                {URL: "http://127.0.0.1/t0ken"},
		"a secret outside the root": {URL: "http://127.0.0.1/t0ken", TimeoutSeconds: 1, SigningSecretFile: "../secret"},
	} {
		_, err := sender.Destination(pipeline.Destination{Name: "handler", HTTP: d})
		if err == nil || !strings.Contains(err.Error(), "handler") || strings.Contains(err.Error(), "t0ken") {
			t.Errorf("%s: Destination = %v, want an error that names the destination and not the URL", name, err)
		}
	}
}

// One sender, many requests at once, connections kept.
func TestConnectionsAreReused(t *testing.T) {
	var mu sync.Mutex
	opened := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", 8<<10))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			mu.Lock()
			defer mu.Unlock()
			opened++
		}
	}
	server.Start()
	defer server.Close()
	dest := destination(t, "", server.URL, nil)
	const workers, each = 16, 25
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				if outcome := dest.Send(t.Context(), request()); outcome.Verdict != event.VerdictDone {
					t.Errorf("Send = %+v", outcome)
				}
			}
		})
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	// A new connection may be dialled while an old one becomes free, so not exactly one for each worker.
	if opened > 2*workers {
		t.Errorf("%d connections for %d requests of %d workers", opened, workers*each, workers)
	}
}

func BenchmarkSend(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	secrets := b.TempDir()
	if err := os.WriteFile(filepath.Join(secrets, "secret"), []byte(secret), 0o600); err != nil {
		b.Fatal(err)
	}
	sender, err := deliver.New(secrets, "1")
	if err != nil {
		b.Fatal(err)
	}
	defer sender.CloseIdleConnections()
	dest, err := sender.Destination(pipeline.Destination{
		Name: "handler", HTTP: pipeline.HTTP{URL: server.URL, TimeoutSeconds: 10, SigningSecretFile: "secret"},
	})
	if err != nil {
		b.Fatal(err)
	}
	r := request()
	r.Event.Body = bytes.Repeat([]byte("x"), 1<<10)
	b.ReportAllocs()
	for b.Loop() {
		if outcome := dest.Send(b.Context(), r); outcome.Verdict != event.VerdictDone {
			b.Fatalf("Send = %+v", outcome)
		}
	}
}
