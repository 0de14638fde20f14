package ingress_test

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/signature"
	"github.com/ackrail/ackrail/internal/testenv"
)

const (
	keyText  = "the idempotency key, once, as 1 to 512 bytes of UTF-8 without control characters"
	typeText = "the event type, once, as at most 256 bytes of UTF-8 without control characters"
)

// set returns a change that sets a header, without any checks of its value.
func set(name string, values ...string) func(*testing.T, *request) {
	return func(_ *testing.T, q *request) {
		name := http.CanonicalHeaderKey(name)
		if len(values) == 0 {
			delete(q.header, name)
			return
		}
		q.header[name] = values
	}
}

func TestRefusals(t *testing.T) {
	r := start(t, database(t), nil)
	type change = func(*testing.T, *request)
	method := func(m string) change { return func(_ *testing.T, q *request) { q.method = m } }
	path := func(p string) change { return func(_ *testing.T, q *request) { q.path = p } }
	chunked := func(_ *testing.T, q *request) { q.chunked = true }
	otherID := func(id string) change {
		return func(t *testing.T, q *request) { q.sign(t, signature.StandardWebhooks(), standardSecret, id) }
	}
	overLimit := `"` + strings.Repeat("x", maxBody-1) + `"`

	for _, c := range []struct {
		name     string
		endpoint string
		body     string
		change   []change
		status   int
		text     string
		result   string
	}{
		{"unknown path", "github", "{}", []change{path("/hooks/nothing")}, 404, "not found", "not_found"},
		{"path below a known one", "github", "{}", []change{path("/hooks/github/")}, 404, "not found", "not_found"},
		{"path that a router would clean", "github", "{}", []change{path("/hooks//github")}, 404, "not found", "not_found"},
		{"GET", "github", "", []change{method(http.MethodGet)}, 405, "method not allowed", "method_not_allowed"},
		{"PUT", "none", "{}", []change{method(http.MethodPut)}, 405, "method not allowed", "method_not_allowed"},
		{"OPTIONS", "none", "", []change{method(http.MethodOptions)}, 405, "method not allowed", "method_not_allowed"},
		{"text to GitHub", "github", "{}", []change{set("Content-Type", "text/plain")}, 415, "unsupported media type", "unsupported_media_type"},
		{"no type to GitHub", "github", "{}", []change{set("Content-Type")}, 415, "unsupported media type", "unsupported_media_type"},
		{"coded body", "hmac", "{}", []change{set("Content-Encoding", "gzip")}, 415, "unsupported content coding", "unsupported_media_type"},
		{"malformed type", "github", "{}", []change{set("Content-Type", "application/json json")}, 415, "unsupported media type", "unsupported_media_type"},
		{"form to Standard Webhooks", "standard", "{}", []change{set("Content-Type", "application/x-www-form-urlencoded")}, 415, "unsupported media type", "unsupported_media_type"},
		{"one byte over the limit, declared", "github", overLimit, nil, 413, "body too large", "too_large"},
		{"one byte over the limit, chunked", "github", overLimit, []change{chunked}, 413, "body too large", "too_large"},
		{"one byte over the limit, chunked, unsigned", "none", overLimit, []change{chunked}, 413, "body too large", "too_large"},
		{"no signature", "github", "{}", []change{set("X-Hub-Signature-256")}, 401, "unauthorized", "unauthorized"},
		{"signature of another body", "hmac", "other", []change{set("X-Hub-Signature-256", githubSignature)}, 401, "unauthorized", "unauthorized"},
		{"id that was not signed", "standard", "{}", []change{set("Webhook-Id", "msg_other")}, 401, "unauthorized", "unauthorized"},
		{"no id where it is signed", "standard", "{}", []change{set("Webhook-Id")}, 401, "unauthorized", "unauthorized"},
		{"empty body where JSON is due", "github", "", nil, 400, "malformed JSON", "bad_request"},
		{"cut JSON", "github", `{"a":`, nil, 400, "malformed JSON", "bad_request"},
		{"two documents", "standard", `{} {}`, nil, 400, "malformed JSON", "bad_request"},
		{"NUL bytes where JSON is due", "github", "{}\x00", nil, 400, "malformed JSON", "bad_request"},
		{"byte order mark", "github", "\ufeff{}", nil, 400, "malformed JSON", "bad_request"},
		{"JSON that is nested too deep", "github", strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), nil, 400, "malformed JSON", "bad_request"},
		{"JSON with a charset that is none", "github", `{`, []change{set("Content-Type", "application/json; charset=utf-8")}, 400, "malformed JSON", "bad_request"},
		{"no key", "github", "{}", []change{set("X-GitHub-Delivery")}, 422, "header X-Github-Delivery: want " + keyText, "unprocessable"},
		{"no key of one's own", "none", "{}", []change{set("X-GitHub-Delivery")}, 422, "header X-Github-Delivery: want " + keyText, "unprocessable"},
		{"empty key", "none", "{}", []change{set("X-GitHub-Delivery", "")}, 422, "header X-Github-Delivery: want " + keyText, "unprocessable"},
		{"blank key", "none", "{}", []change{set("X-GitHub-Delivery", "  ")}, 422, "header X-Github-Delivery: want " + keyText, "unprocessable"},
		{"overlong key", "none", "{}", []change{set("X-GitHub-Delivery", strings.Repeat("k", event.MaxKeyBytes+1))}, 422, "header X-Github-Delivery: want " + keyText, "unprocessable"},
		{"overlong signed key", "standard", "{}", []change{otherID(strings.Repeat("k", event.MaxKeyBytes+1))}, 422, "header Webhook-Id: want " + keyText, "unprocessable"},
		{"key that is not UTF-8", "hmac", "{}", []change{set("X-GitHub-Delivery", "k\xff")}, 422, "header X-Github-Delivery: want " + keyText, "unprocessable"},
		{"key with a tab", "hmac", "{}", []change{set("X-GitHub-Delivery", "k\tk")}, 422, "header X-Github-Delivery: want " + keyText, "unprocessable"},
		{"key with a C1 control", "hmac", "{}", []change{set("X-GitHub-Delivery", "k\u0085k")}, 422, "header X-Github-Delivery: want " + keyText, "unprocessable"},
		{"two keys", "none", "{}", []change{set("X-GitHub-Delivery", "a", "b")}, 422, "header X-Github-Delivery: want " + keyText, "unprocessable"},
		{"overlong type", "github", "{}", []change{set("X-GitHub-Event", strings.Repeat("t", event.MaxTypeBytes+1))}, 422, "header X-Github-Event: want " + typeText, "unprocessable"},
		{"type that is not UTF-8", "none", "{}", []change{set("X-Kind", "\xc3")}, 422, "header X-Kind: want " + typeText, "unprocessable"},
		{"two types", "none", "{}", []change{set("X-Kind", "", "b")}, 422, "header X-Kind: want " + typeText, "unprocessable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := signed(t, c.endpoint, []byte(c.body))
			for _, change := range c.change {
				change(t, q)
			}
			labels := []string{c.endpoint, "test", c.result}
			if c.status == http.StatusNotFound {
				labels = []string{"", "", c.result}
			}
			events, counted := r.stored(t), r.metric(t, "ackrail_ingress_requests_total", labels...)
			got := r.send(t, q)

			want := reply{Status: c.status, Body: refusal(c.text), Header: http.Header{
				"Content-Type":   {"application/json"},
				"Content-Length": {strconv.Itoa(len(refusal(c.text)))},
			}}
			if c.status == http.StatusMethodNotAllowed {
				want.Header.Set("Allow", "POST")
			}
			if c.text == "unsupported content coding" {
				want.Header.Set("Accept-Encoding", "identity")
			}
			// What is refused before the body was read ends the connection.
			want.Close = len(c.body) > 0 && c.status >= 404 && c.status <= 415
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if n := r.stored(t); n != events {
				t.Errorf("%d events were stored", n-events)
			}
			if n := r.metric(t, "ackrail_ingress_requests_total", labels...); n != counted+1 {
				t.Errorf("requests%v counted %v times, want once", labels, n-counted)
			}
		})
	}
}

// A sender that guesses must not learn from the answer how near it is.
func TestUnauthorizedTellsNothing(t *testing.T) {
	r := start(t, database(t), nil)
	stale := func(t *testing.T, q *request) {
		verifier, err := signature.New(signature.StandardWebhooks())
		if err != nil {
			t.Fatal(err)
		}
		key, err := signature.StandardWebhooks().DecodeSecret([]byte(standardSecret))
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Sign(q.header, key, "msg_1", now.Add(-time.Hour), q.body); err != nil {
			t.Fatal(err)
		}
	}
	var first *reply
	for _, c := range []struct {
		name, endpoint string
		change         func(*testing.T, *request)
		reason         signature.Reason
	}{
		{"missing", "github", set("X-Hub-Signature-256"), signature.ReasonMissing},
		{"older signature only", "github", func(_ *testing.T, q *request) {
			q.header.Set("X-Hub-Signature", "sha1=7d38cdd689735b008b3c702edd92eea23791c5f6")
			q.header.Del("X-Hub-Signature-256")
		}, signature.ReasonMissing},
		{"malformed", "github", set("X-Hub-Signature-256", "sha256=zz"), signature.ReasonMalformed},
		{"twice", "github", set("X-Hub-Signature-256", githubSignature, githubSignature), signature.ReasonMalformed},
		{"bytes beyond ASCII", "hmac", set("X-Hub-Signature-256", "sha256=\xff\xfe"), signature.ReasonMalformed},
		{"mismatch", "github", set("X-Hub-Signature-256", githubSignature), signature.ReasonMismatch},
		{"stale", "standard", stale, signature.ReasonStale},
		{"malformed time", "standard", set("Webhook-Timestamp", "now"), signature.ReasonMalformed},
		{"wrong and not even JSON", "github", func(_ *testing.T, q *request) {
			q.body = []byte("{")
			q.header.Set("X-Hub-Signature-256", githubSignature)
		}, signature.ReasonMismatch},
		{"wrong and without a key", "hmac", func(_ *testing.T, q *request) {
			q.header.Del("X-GitHub-Delivery")
			q.header.Set("X-Hub-Signature-256", githubSignature)
		}, signature.ReasonMismatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := signed(t, c.endpoint, []byte(`{"a":1}`))
			c.change(t, q)
			labels := []string{c.endpoint, "test", string(c.reason)}
			counted := r.metric(t, "ackrail_ingress_signature_failures_total", labels...)
			got := r.send(t, q)
			if got.Status != http.StatusUnauthorized {
				t.Fatalf("answer %+v, want 401", got)
			}
			if first == nil {
				first = &got
			}
			if diff := cmp.Diff(*first, got); diff != "" {
				t.Errorf("answers differ (-first +this):\n%s", diff)
			}
			if n := r.metric(t, "ackrail_ingress_signature_failures_total", labels...); n != counted+1 {
				t.Errorf("reason %s counted %v times, want once", c.reason, n-counted)
			}
		})
	}
}

func TestPublishedVectors(t *testing.T) {
	r := start(t, database(t), nil)
	t.Run("GitHub", func(t *testing.T) {
		// Not JSON, so it is sent to the endpoint that only verifies.
		e := r.accept(t, &request{method: http.MethodPost, path: "/hooks/hmac", body: []byte(githubBody), header: http.Header{
			"X-Hub-Signature-256": {githubSignature},
			"X-Github-Delivery":   {"d-1"},
		}})
		if string(e.Body) != githubBody || e.Key != "d-1" {
			t.Errorf("stored %+v", e)
		}
	})
	t.Run("Standard Webhooks", func(t *testing.T) {
		e := r.accept(t, &request{method: http.MethodPost, path: "/hooks/standard", body: []byte(standardBody), header: http.Header{
			"Content-Type":      {"application/json"},
			"Webhook-Id":        {standardID},
			"Webhook-Timestamp": {strconv.Itoa(standardTimestamp)},
			"Webhook-Signature": {standardSignature},
		}})
		if string(e.Body) != standardBody || e.Key != standardID {
			t.Errorf("stored %+v", e)
		}
	})
}

func TestDuplicateAndConflict(t *testing.T) {
	r := start(t, database(t), nil)
	q := signed(t, "hmac", []byte("first"))
	_, first := receipt(t, r.send(t, q))
	other := *q
	other.body = []byte("second")
	other.header = q.header.Clone()
	other.sign(t, hmacScheme(), githubSecret, "")
	for _, c := range []struct {
		name   string
		again  *request
		result string
	}{
		{"the same body", q, "duplicate"},
		{"another body", &other, "conflict"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := r.send(t, c.again)
			want := reply{Status: http.StatusOK, Body: `{"status":"duplicate","eventId":"` + first.String() + `"}`, Header: got.Header}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if n := r.requests(t, "hmac", c.result); n != 1 {
				t.Errorf("result %s counted %v times, want once", c.result, n)
			}
		})
	}
	record, err := r.store.ShowEvent(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(record.Event.Body); got != "first" {
		t.Errorf("body %q, want that of the first", got)
	}
	if n := r.stored(t); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
	if len(r.logs.with(t, "Ignored another body under a known idempotency key")) != 1 {
		t.Error("the conflict was not logged")
	}
	if n := r.metric(t, "ackrail_ingress_ack_seconds", "hmac", "test"); n != 3 {
		t.Errorf("%v acks observed, want 3", n)
	}
	// A batch is observed after its callers have their answers.
	testenv.Eventually(t, 5*time.Second, func() error {
		events, commits := r.metric(t, "ackrail_ingress_batch_events"), r.metric(t, "ackrail_ingress_batch_seconds", "committed")
		if events != 3 || commits != 3 {
			return fmt.Errorf("%v batches and %v commits observed, want 3", events, commits)
		}
		return nil
	})
}

func TestAcceptedEvent(t *testing.T) {
	r := start(t, database(t), nil)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	q := signed(t, "github", []byte("{ }\n"))
	key := q.header.Get("X-GitHub-Delivery")
	maps.Copy(q.header, http.Header{
		"Content-Type":        {"application/json; charset=utf-8"},
		"Traceparent":         {trace},
		"Authorization":       {"Bearer credential"},
		"Proxy-Authorization": {"Basic credential"},
		"Cookie":              {"session=credential"},
		"X-Hub-Signature":     {"sha1=credential"},
		"Connection":          {"X-Per-Hop, keep-alive"},
		"X-Per-Hop":           {"gone"},
		"X-Latin":             {"caf\xe9"},
		"X-Several":           {"one", "two"},
		"User-Agent":          {"GitHub-Hookshot/044aadd"},
		"Accept-Encoding":     {"identity"},
	})
	got := r.accept(t, q)
	if got.ReceivedAt.IsZero() {
		t.Error("no time of acceptance")
	}
	want := &event.Event{
		ID:          got.ID,
		Endpoint:    event.EndpointRef{Namespace: "test", Name: "github"},
		Key:         key,
		Type:        "push",
		ContentType: "application/json; charset=utf-8",
		Headers: map[string][]string{
			"Accept-Encoding":   {"identity"},
			"Content-Length":    {"4"},
			"Content-Type":      {"application/json; charset=utf-8"},
			"Traceparent":       {trace},
			"User-Agent":        {"GitHub-Hookshot/044aadd"},
			"X-Github-Delivery": {key},
			"X-Github-Event":    {"push"},
			"X-Latin":           {"caf\ufffd"},
			"X-Several":         {"one", "two"},
		},
		Body:        []byte("{ }\n"),
		TraceParent: trace,
		ReceivedAt:  got.ReceivedAt,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored event (-want +got):\n%s", diff)
	}
}

func TestIdentityAtItsLimits(t *testing.T) {
	r := start(t, database(t), nil)
	long := strings.Repeat("k", event.MaxKeyBytes)
	for _, c := range []struct {
		name, key, kind, wantType string
	}{
		{"longest", long, strings.Repeat("t", event.MaxTypeBytes), strings.Repeat("t", event.MaxTypeBytes)},
		{"beyond ASCII", "schlüssel-鍵", "größe", "größe"},
		{"no type", "key-1", "", ""},
		{"quotes and a backslash", `"'\`, `\u0000`, `\u0000`},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := signed(t, "none", []byte("x"))
			set("X-GitHub-Delivery", c.key)(t, q)
			set("X-Kind", c.kind)(t, q)
			e := r.accept(t, q)
			if e.Key != c.key || e.Type != c.wantType {
				t.Errorf("key %q, type %q", e.Key, e.Type)
			}
		})
	}
}

func TestMediaTypesThatAreTaken(t *testing.T) {
	r := start(t, database(t), nil)
	const form = "payload=%7B%7D"
	for _, c := range []struct {
		name, endpoint, contentType, body, want string
	}{
		{"JSON in capitals", "github", "Application/JSON", "{}", "Application/JSON"},
		{"JSON with a bad parameter", "github", "application/json; charset", "{}", "application/json; charset"},
		{"GitHub's form", "github", "application/x-www-form-urlencoded", form, "application/x-www-form-urlencoded"},
		{"anything", "hmac", "text/plain", "no JSON", "text/plain"},
		{"JSON that is none", "hmac", "application/json", "{", "application/json"},
		{"none at all", "none", "", "x", ""},
		{"not UTF-8", "none", "text/\xff", "x", "application/octet-stream"},
		{"overlong", "none", "text/" + strings.Repeat("x", 252), "x", "application/octet-stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := signed(t, c.endpoint, []byte(c.body))
			set("Content-Type", c.contentType)(t, q)
			if c.contentType == "" {
				q.header.Del("Content-Type")
			}
			if e := r.accept(t, q); e.ContentType != c.want {
				t.Errorf("content type %q, want %q", e.ContentType, c.want)
			}
		})
	}
}

// An event that the database itself refuses is not worth another try.
func TestRejectedByTheDatabase(t *testing.T) {
	url := database(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), "ALTER TABLE event ADD CHECK (type <> 'poison')")
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, url, nil)
	q := signed(t, "none", []byte("x"))
	q.header.Set("X-Kind", "poison")
	got := r.send(t, q)
	if got.Status != http.StatusUnprocessableEntity || got.Body != refusal("the event cannot be stored") {
		t.Errorf("answer %+v", got)
	}
	if n := r.requests(t, "none", "unprocessable"); n != 1 {
		t.Errorf("counted %v times, want once", n)
	}
	r.accept(t, signed(t, "none", []byte("x"))) // another event is not affected
}

// A flood of bad requests leaves a few lines and the number of the others,
// and none of what the sender sent.
func TestFloodInTheLog(t *testing.T) {
	r := start(t, database(t), nil)
	const flood = 200
	q := signed(t, "github", []byte(`{"confidential":"body"}`))
	q.header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("ab", 32))
	q.header.Set("X-Confidential", "header")
	began := time.Now()
	for range flood {
		r.send(t, q)
	}
	most := 5 + 5*int(time.Since(began)/time.Second+1)
	got := r.logs.with(t, "Refused a request")
	if len(got) == 0 || len(got) > most {
		t.Errorf("%d lines, want 1 to %d", len(got), most)
	}
	if n := r.requests(t, "github", "unauthorized"); n != flood {
		t.Errorf("%v requests counted, want %d", n, flood)
	}
	line := got[0]
	if line["endpoint"] != "github" || line["result"] != "unauthorized" || line["reason"] != "no signature in header X-Hub-Signature-256 matches" {
		t.Errorf("line %v", line)
	}
	for _, secret := range []string{"confidential", "Confidential", "abab", githubSecret} {
		if strings.Contains(r.logs.String(), secret) {
			t.Errorf("the log repeats %q", secret)
		}
	}
}

// Who configures a sender needs to see where its requests go.
func TestUnknownPathInTheLog(t *testing.T) {
	r := start(t, testenv.Schema(t), nil)
	r.send(t, &request{method: http.MethodPost, path: "/hooks/" + strings.Repeat("x", 300) + "?token=confidential"})
	got := r.logs.with(t, "Refused a request")
	if len(got) != 1 || got[0]["path"] != "/hooks/"+strings.Repeat("x", 193) || got[0]["result"] != "not_found" {
		t.Errorf("log %v", got)
	}
	if strings.Contains(r.logs.String(), "confidential") {
		t.Error("the log has the query")
	}
}

// A suspended endpoint refuses every request before it judges it or reads its
// body, and the other endpoints go on.
func TestSuspendedEndpoint(t *testing.T) {
	r := start(t, database(t), func(s *setup) {
		s.config.Endpoints[0].Suspend = pipeline.SuspendAll
		s.config.Endpoints[1].Suspend = pipeline.SuspendDeliveries
	})
	unsigned, get, unread := signed(t, "github", []byte("{}")), signed(t, "github", nil), r.dial(t)
	set("X-Hub-Signature-256")(t, unsigned)
	get.method = http.MethodGet
	want := reply{Status: http.StatusServiceUnavailable, Body: refusal("suspended"), Close: true, Header: http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"21"}, "Retry-After": {"30"},
	}}
	for _, q := range []*request{signed(t, "github", []byte("{}")), unsigned} {
		if diff := cmp.Diff(want, r.send(t, q)); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
	}
	unread.write(t, header(signed(t, "github", nil), "Content-Length: 10"))
	got := unread.read(t)
	got.Header.Del("Date")
	if diff := cmp.Diff(want.Body, got.Body); diff != "" || got.Status != want.Status || !got.Close {
		t.Errorf("answer %+v before the body is sent, want 503 and the end of the connection", got)
	}
	if got := r.send(t, get); got.Status != want.Status {
		t.Errorf("answer %+v to GET, want 503", got)
	}
	if n := r.requests(t, "github", "suspended"); n != 4 {
		t.Errorf("counted %v times, want 4", n)
	}
	refused := r.logs.with(t, "Refused a request")
	if len(refused) != 4 || refused[0]["result"] != "suspended" || refused[0]["level"] != "INFO" {
		t.Errorf("logged %v, want each as suspended", refused)
	}
	if n := r.stored(t); n != 0 {
		t.Errorf("%d events were stored", n)
	}
	r.accept(t, signed(t, "standard", []byte("{}")))
}
