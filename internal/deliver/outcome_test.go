package deliver_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
)

// check compares all of an outcome but the latency, the error's text and the excerpt.
func check(t *testing.T, got, want deliver.Outcome) {
	t.Helper()
	if (got.Error == "") != (got.Verdict == event.VerdictDone) || len(got.Error) > 512 {
		t.Errorf("error of the outcome: %q", got.Error)
	}
	if got.Latency <= 0 {
		t.Errorf("latency %v", got.Latency)
	}
	got.Latency, got.Error, got.Excerpt = 0, "", ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

func failed(class event.ErrorClass) deliver.Outcome {
	return deliver.Outcome{Verdict: event.VerdictFailed, Class: class}
}

func TestEveryStatus(t *testing.T) {
	var status atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(int(status.Load()))
	})
	dead := map[int]bool{400: true, 405: true, 406: true, 410: true, 411: true, 413: true, 414: true, 415: true, 422: true, 431: true}
	dest := destination(t, "", url, nil)
	for n := 200; n <= 999; n++ {
		if n == 600 {
			n = 999 // out of the range of RFC 9110, but three digits
		}
		status.Store(int64(n))
		want := deliver.Outcome{Status: n}
		switch {
		case n < 300:
			want.Verdict = event.VerdictDone
		case dead[n]:
			want.Verdict, want.Class = event.VerdictDead, event.ErrorHTTPStatus
		default:
			want.Verdict, want.Class, want.RetryAfter = event.VerdictFailed, event.ErrorHTTPStatus, 7*time.Second
		}
		got := dest.Send(t.Context(), request())
		if check(t, got, want); t.Failed() {
			t.Fatalf("status %d", n)
		}
		if want.Verdict != event.VerdictDone && !strings.Contains(got.Error, fmt.Sprint(n)) {
			t.Errorf("status %d: error %q", n, got.Error)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var requests atomic.Int64
		var url string
		url = serve(t, func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			http.Redirect(w, r, url+"/elsewhere", status)
		})
		got := destination(t, "", url, nil).Send(t.Context(), request())
		check(t, got, deliver.Outcome{Verdict: event.VerdictFailed, Class: event.ErrorHTTPStatus, Status: status})
		if n := requests.Load(); n != 1 {
			t.Errorf("status %d: %d requests, want 1", status, n)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	const imf = http.TimeFormat
	wrong := time.Now().Add(-1000 * time.Hour).UTC()
	tests := map[string]struct {
		header http.Header
		lo, hi time.Duration
	}{
		"none":                         {http.Header{}, 0, 0},
		"seconds":                      {http.Header{"Retry-After": {"90"}}, 90 * time.Second, 90 * time.Second},
		"above the limit":              {http.Header{"Retry-After": {"999999999999999999999"}}, time.Hour, time.Hour},
		"garbage":                      {http.Header{"Retry-After": {"soon"}}, 0, 0},
		"date, no clock":               {http.Header{"Date": nil, "Retry-After": {time.Now().Add(time.Minute).UTC().Format(imf)}}, 50 * time.Second, time.Minute},
		"date, bad clock":              {http.Header{"Date": {"now"}, "Retry-After": {time.Now().Add(time.Minute).UTC().Format(imf)}}, 50 * time.Second, time.Minute},
		"date of a clock that is off":  {http.Header{"Date": {wrong.Format(imf)}, "Retry-After": {wrong.Add(time.Minute).Format(imf)}}, time.Minute, time.Minute},
		"date in the past of its host": {http.Header{"Date": {time.Now().UTC().Format(imf)}, "Retry-After": {wrong.Format(imf)}}, 0, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range tc.header {
					w.Header()[k] = v
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			got := destination(t, "", url, nil).Send(t.Context(), request())
			if got.RetryAfter < tc.lo || got.RetryAfter > tc.hi || got.Verdict != event.VerdictFailed {
				t.Errorf("Send = %+v, want RetryAfter in [%v, %v]", got, tc.lo, tc.hi)
			}
		})
	}
}

func TestExcerpt(t *testing.T) {
	zipped := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("Accept-Encoding %q was sent", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, "plain text")
		z.Close()
	}
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
	}
	tests := map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"empty":                {text(""), ""},
		"short":                {text("thanks\r\n\t"), "thanks\r\n\t"},
		"full":                 {text(strings.Repeat("x", 1024)), strings.Repeat("x", 1024)},
		"longer":               {text(strings.Repeat("x", 100<<10)), strings.Repeat("x", 1024)},
		"character on the cut": {text(strings.Repeat("x", 1022) + "€uro"), strings.Repeat("x", 1022)},
		"character at the cut": {text(strings.Repeat("x", 1021) + "€uro"), strings.Repeat("x", 1021) + "€"},
		"not text":             {text("a\x00b\xffc\x1b[31m\u009b"), "a\ufffdb\ufffdc\ufffd[31m\ufffd"},
		"nothing but zeros":    {text(strings.Repeat("\x00", 4096)), strings.Repeat("\ufffd", 341)},
		"compressed":           {zipped, "\x1f\ufffd\b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := destination(t, "", serve(t, tc.handler), nil).Send(t.Context(), request())
			check(t, got, deliver.Outcome{Verdict: event.VerdictDone, Status: 200})
			if name == "compressed" {
				if strings.Contains(got.Excerpt, "plain text") || got.Excerpt == "" {
					t.Errorf("the body was decoded: %q", got.Excerpt)
				}
			} else if got.Excerpt != tc.want {
				t.Errorf("excerpt %q, want %q", got.Excerpt, tc.want)
			}
			if !utf8.ValidString(got.Excerpt) || strings.Contains(got.Excerpt, "\x00") || len(got.Excerpt) > 1024 {
				t.Errorf("excerpt of %d bytes: %q", len(got.Excerpt), got.Excerpt)
			}
		})
	}
}

// fill writes to w until that fails, as it does when the other end has had enough.
func fill(w io.Writer) {
	chunk := []byte(strings.Repeat("x", 16<<10))
	for {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// hold keeps a connection open until the other end closes it.
func hold(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func TestTroubleAfterTheStatus(t *testing.T) {
	tests := map[string]struct {
		handle func(net.Conn)
		slow   bool
	}{
		"endless body":         {handle: func(c net.Conn) { fmt.Fprint(c, "Connection: close\r\n\r\n"); fill(c) }},
		"endless chunks":       {handle: func(c net.Conn) { fmt.Fprint(c, "Transfer-Encoding: chunked\r\n\r\nfffffff\r\n"); fill(c) }},
		"less than announced":  {handle: func(c net.Conn) { fmt.Fprint(c, "Content-Length: 1000\r\n\r\nabc") }},
		"reset in the body":    {handle: func(c net.Conn) { fmt.Fprint(c, "Content-Length: 1000\r\n\r\nabc"); reset(c) }},
		"malformed chunk":      {handle: func(c net.Conn) { fmt.Fprint(c, "Transfer-Encoding: chunked\r\n\r\nzz\r\n") }},
		"body that never ends": {slow: true, handle: func(c net.Conn) { fmt.Fprint(c, "Content-Length: 1000\r\n\r\nabc"); hold(c) }},
	}
	for name, tc := range tests {
		for _, status := range []int{200, 503} {
			t.Run(fmt.Sprintf("%s, %d", name, status), func(t *testing.T) {
				t.Parallel()
				url := serveRaw(t, func(c net.Conn) {
					if err := readRequest(c); err != nil {
						t.Errorf("reading the request: %v", err)
					}
					fmt.Fprintf(c, "HTTP/1.1 %d Whatever\r\n", status)
					tc.handle(c)
				})
				want := deliver.Outcome{Verdict: event.VerdictDone, Status: status}
				if status == 503 {
					want.Verdict, want.Class = event.VerdictFailed, event.ErrorHTTPStatus
				}
				limit := 30 // an endless body must end by its size, long before this
				if tc.slow {
					limit = 1
				}
				got := destination(t, "", url, timeout(limit)).Send(t.Context(), request())
				check(t, got, want)
				if tc.slow && (got.Latency < time.Second || got.Excerpt != "abc") {
					t.Errorf("after %v, excerpt %q: the body was not waited for", got.Latency, got.Excerpt)
				}
				if got.Latency > 10*time.Second {
					t.Errorf("took %v", got.Latency)
				}
			})
		}
	}
}

func TestOneDeadlineForEverything(t *testing.T) {
	tests := map[string]struct {
		scheme string
		handle func(net.Conn)
		body   int
	}{
		"no answer":            {handle: hold},
		"no TLS handshake":     {scheme: "https", handle: hold},
		"request not read":     {handle: ignore, body: 32 << 20},
		"half a status line":   {handle: func(c net.Conn) { _ = readRequest(c); fmt.Fprint(c, "HTTP/1.1 20"); hold(c) }},
		"headers without end":  {handle: func(c net.Conn) { _ = readRequest(c); fmt.Fprint(c, "HTTP/1.1 200 OK\r\nA: b\r\n"); hold(c) }},
		"headers by and by":    {handle: func(c net.Conn) { _ = readRequest(c); fmt.Fprint(c, "HTTP/1.1 200 OK\r\n"); drip(c, "A: b\r\n") }},
		"only interim answers": {handle: func(c net.Conn) { _ = readRequest(c); fmt.Fprint(c, "HTTP/1.1 103 Early Hints\r\n\r\n"); hold(c) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serveRaw(t, tc.handle)
			if tc.scheme != "" {
				url = strings.Replace(url, "http", tc.scheme, 1)
			}
			r := request()
			r.Event.Body = append(r.Event.Body, make([]byte, tc.body)...)
			got := destination(t, "", url, timeout(1)).Send(t.Context(), r)
			check(t, got, failed(event.ErrorTimeout))
			if got.Latency < time.Second || got.Latency > 3*time.Second {
				t.Errorf("took %v with a timeout of 1s", got.Latency)
			}
			if got.Error != "no answer within 1s" {
				t.Errorf("error %q", got.Error)
			}
		})
	}
}

// ignore reads nothing until the test closes the connection on this side.
func ignore(c net.Conn) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		if c.SetDeadline(time.Time{}) != nil {
			return
		}
	}
}

// drip writes text again and again until the other end has closed.
func drip(c net.Conn, text string) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		if _, err := fmt.Fprint(c, text); err != nil {
			return
		}
	}
}

// reset closes the connection so that the other end gets a reset and not an end of file.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func TestClasses(t *testing.T) {
	answer := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			if readRequest(c) == nil {
				fmt.Fprint(c, text)
			}
		}
	}
	tests := map[string]struct {
		handle func(net.Conn)
		want   event.ErrorClass
	}{
		"reset":               {func(c net.Conn) { _ = readRequest(c); reset(c) }, event.ErrorConnectionReset},
		"closed":              {func(c net.Conn) { _ = readRequest(c) }, event.ErrorConnectionReset},
		"closed half-way":     {answer("HTTP/1.1 200 OK\r\nA: b"), event.ErrorConnectionReset},
		"not HTTP":            {answer("SSH-2.0-OpenSSH_9.6\r\n"), event.ErrorProtocol},
		"no status":           {answer("HTTP/1.1 OK\r\n\r\n"), event.ErrorProtocol},
		"malformed header":    {answer("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), event.ErrorProtocol},
		"two lengths":         {answer("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), event.ErrorProtocol},
		"one huge header":     {answer("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 128<<10) + "\r\n\r\n"), event.ErrorProtocol},
		"many headers":        {answer("HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 32<<10) + "\r\n"), event.ErrorProtocol},
		"text in the answer":  {answer("HTTP/1.1 \x00\xff\x1b[31m " + strings.Repeat("z", 4096) + "\r\n\r\n"), event.ErrorProtocol},
		"endless interim":     {func(c net.Conn) { _ = readRequest(c); endless(c, "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n") }, event.ErrorProtocol},
		"endless header line": {func(c net.Conn) { _ = readRequest(c); fmt.Fprint(c, "HTTP/1.1 200 OK\r\nA: "); fill(c) }, event.ErrorProtocol},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := destination(t, "", serveRaw(t, tc.handle), nil).Send(t.Context(), request())
			check(t, got, failed(tc.want))
			if !utf8.ValidString(got.Error) || strings.ContainsAny(got.Error, "\x00\x1b") {
				t.Errorf("error %q", got.Error)
			}
		})
	}
}

func endless(c net.Conn, text string) {
	for {
		if _, err := fmt.Fprint(c, text); err != nil {
			return
		}
	}
}
