package cli

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/manifest"
	"github.com/ackrail/ackrail/internal/resources"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/signature"
	"github.com/ackrail/ackrail/internal/testenv"
)

const (
	payloadLimit   = 64 << 10
	payloadSecret  = "the HMAC endpoints' secret"
	standardSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	outgoingSecret = "whsec_b3V0Z29pbmcgc2lnbmF0dXJlcyBhcmUgbWFkZSB3aXRoIHRoaXM="
)

// payloadManifest has an endpoint for each way to sign.
const payloadManifest = `
apiVersion: v1
kind: Secret
metadata: {name: secrets}
stringData:
  github: "` + rig.Secret + `"
  standard: "` + standardSecret + `"
  hmac: "` + payloadSecret + `"
  outgoing: "` + outgoingSecret + `"
---
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: github}
spec:
  source: {provider: GitHub, secretRefs: [{name: secrets, key: github}], maxBodyBytes: 65536}
  destinations: [{name: sink, http: {url: "SINK/github", signingSecretRef: {name: secrets, key: outgoing}}}]
---
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: standard}
spec:
  source: {provider: StandardWebhooks, secretRefs: [{name: secrets, key: standard}], identity: {type: {header: X-Kind}}, maxBodyBytes: 65536}
  destinations: [{name: sink, http: {url: "SINK/standard", signingSecretRef: {name: secrets, key: outgoing}}}]
---
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: sha256-hex}
spec:
  source: {provider: HMAC, hmac: {header: X-Mac, algorithm: SHA256, encoding: Hex, prefix: "sha256="}, secretRefs: [{name: secrets, key: hmac}], identity: {idempotencyKey: {header: X-Key}, type: {header: X-Kind}}, maxBodyBytes: 65536}
  destinations: [{name: sink, http: {url: "SINK/sha256-hex", signingSecretRef: {name: secrets, key: outgoing}}}]
---
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: sha256-base64}
spec:
  source: {provider: HMAC, hmac: {header: X-Mac, algorithm: SHA256, encoding: Base64, prefix: "v1:"}, secretRefs: [{name: secrets, key: hmac}], identity: {idempotencyKey: {header: X-Key}, type: {header: X-Kind}}, maxBodyBytes: 65536}
  destinations: [{name: sink, http: {url: "SINK/sha256-base64", signingSecretRef: {name: secrets, key: outgoing}}}]
---
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: sha512-hex}
spec:
  source: {provider: HMAC, hmac: {header: X-Mac, algorithm: SHA512, encoding: Hex}, secretRefs: [{name: secrets, key: hmac}], identity: {idempotencyKey: {header: X-Key}, type: {header: X-Kind}}, maxBodyBytes: 65536}
  destinations: [{name: sink, http: {url: "SINK/sha512-hex", signingSecretRef: {name: secrets, key: outgoing}}}]
---
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: sha512-base64}
spec:
  source: {provider: HMAC, hmac: {header: X-Mac, algorithm: SHA512, encoding: Base64, prefix: "sha512/"}, secretRefs: [{name: secrets, key: hmac}], identity: {idempotencyKey: {header: X-Key}, type: {header: X-Kind}}, maxBodyBytes: 65536}
  destinations: [{name: sink, http: {url: "SINK/sha512-base64", signingSecretRef: {name: secrets, key: outgoing}}}]
---
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: none}
spec:
  source: {provider: None, identity: {idempotencyKey: {header: X-Key}, type: {header: X-Kind}}, maxBodyBytes: 65536}
  destinations: [{name: sink, http: {url: "SINK/none", signingSecretRef: {name: secrets, key: outgoing}}}]
`

// way is how a sender of an endpoint makes its requests. The HMACs are made
// here and not by the product's own code.
type way struct {
	endpoint              string
	keyHeader, typeHeader string
	sign                  func(h http.Header, id string, body []byte)
	// json: the endpoint takes JSON only where it is told that it is.
	json bool
}

func ways(t testing.TB) []way {
	t.Helper()
	mac := func(header, prefix, secret string, newHash func() hash.Hash, encode func([]byte) string) func(http.Header, string, []byte) {
		return func(h http.Header, _ string, body []byte) {
			m := hmac.New(newHash, []byte(secret))
			m.Write(body)
			h.Set(header, prefix+encode(m.Sum(nil)))
		}
	}
	b64 := base64.StdEncoding.EncodeToString
	standardKey, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(standardSecret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	standard := func(h http.Header, id string, body []byte) {
		now := fmt.Sprint(time.Now().Unix())
		h.Set("webhook-timestamp", now)
		mac("webhook-signature", "v1,", string(standardKey), sha256.New, b64)(h, id, slices.Concat([]byte(id+"."+now+"."), body))
	}
	return []way{
		{"github", "X-GitHub-Delivery", "X-GitHub-Event", mac("X-Hub-Signature-256", "sha256=", rig.Secret, sha256.New, hex.EncodeToString), true},
		{"standard", "webhook-id", "X-Kind", standard, true},
		{"sha256-hex", "X-Key", "X-Kind", mac("X-Mac", "sha256=", payloadSecret, sha256.New, hex.EncodeToString), false},
		{"sha256-base64", "X-Key", "X-Kind", mac("X-Mac", "v1:", payloadSecret, sha256.New, b64), false},
		{"sha512-hex", "X-Key", "X-Kind", mac("X-Mac", "", payloadSecret, sha512.New, hex.EncodeToString), false},
		{"sha512-base64", "X-Key", "X-Kind", mac("X-Mac", "sha512/", payloadSecret, sha512.New, b64), false},
		{"none", "X-Key", "X-Kind", func(http.Header, string, []byte) {}, false},
	}
}

// payloads is one ingress and one worker, and what was sent through them.
type payloads struct {
	t        *testing.T
	ingress  *rig.Pod
	sink     *testenv.Sink
	manifest string
	client   *http.Client
	look     *rig.Look
	sent     map[string]payload // by event id
}

// payload is what must arrive.
type payload struct {
	Endpoint, Type, ContentType string
	Body                        []byte
}

func newPayloads(t *testing.T) *payloads {
	t.Helper()
	x := &payloads{t: t, sink: testenv.NewSink(t), sent: map[string]payload{}, client: &http.Client{Transport: &http.Transport{}, Timeout: patience}}
	t.Cleanup(x.client.CloseIdleConnections)
	x.manifest = writeFile(t, t.TempDir(), "endpoints.yaml", strings.ReplaceAll(payloadManifest, "SINK", x.sink.URL()))
	set, err := manifest.Read([]string{x.manifest}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rig.New(t, testenv.Schema(t), nil, resources.Pipeline(set.Endpoints).Endpoints...)
	if err := writeSecrets(set, r.Dir); err != nil {
		t.Fatal(err)
	}
	x.look = r.Look()
	x.ingress = r.Ingress(0, r.URL)
	r.Worker(r.URL)
	return x
}

// post sends a request and returns the status and, of an accepted event, the
// id. Refusals must be JSON and short.
func (x *payloads) post(t *testing.T, endpoint string, header http.Header, body io.Reader) (status int, id string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, x.ingress.URL+"/hooks/default/"+endpoint, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := x.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Status, EventID, Error string }
	if err := json.Unmarshal(text, &answer); err != nil || (answer.Error == "") == (answer.EventID == "") {
		t.Errorf("answered with status %d and %q", response.StatusCode, text)
	}
	return response.StatusCode, answer.EventID
}

// send sends a body as a sender of the endpoint would and checks the status;
// what is accepted must arrive.
func (x *payloads) send(t *testing.T, w way, typ, contentType string, body []byte, chunked bool, want int) {
	t.Helper()
	key := uuid.NewString()
	header := http.Header{"Content-Type": {contentType}}
	header.Set(w.keyHeader, key)
	header.Set(w.typeHeader, typ)
	w.sign(header, key, body)
	var reader io.Reader = bytes.NewReader(body)
	if chunked {
		reader = io.MultiReader(reader) // hides the length
	}
	status, id := x.post(t, w.endpoint, header, reader)
	if status != want {
		t.Errorf("answered with %d, want %d", status, want)
	}
	if status == http.StatusAccepted {
		x.sent[id] = payload{w.endpoint, typ, contentType, body}
	}
}

// samples returns the files with real bodies: the project's own, and those in
// the folder beside the checkout if there is one.
func samples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "payloads", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	beside := filepath.Join("..", "..", "..", "shared", "payloads")
	if _, err := os.Stat(beside); err != nil {
		t.Log("no further payloads beside this checkout")
		return files
	}
	err = filepath.WalkDir(beside, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) != ".md" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	x := newPayloads(t)
	for _, file := range samples(t) {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		typ, _, _ := strings.Cut(filepath.Base(file), ".")
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, w := range ways(t) {
				contentType, want := "application/json", http.StatusAccepted
				if filepath.Ext(file) == ".form" {
					contentType = "application/x-www-form-urlencoded"
					if w.endpoint == "standard" {
						want = http.StatusUnsupportedMediaType
					}
				}
				x.send(t, w, typ, contentType, body, false, want)
			}
		})
	}
	t.Run("edges", x.edges)
	t.Run("published examples", x.published)
	t.Run("command", x.command)

	if n := x.look.Number("SELECT count(*) FROM event"); n != len(x.sent) {
		t.Errorf("%d events are stored, %d were accepted", n, len(x.sent))
	}
	x.arrived()
}

// edges sends what often breaks those who parse and write again.
func (x *payloads) edges(t *testing.T) {
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	atLimit := `"` + strings.Repeat("x", payloadLimit-2) + `"`
	for _, c := range []struct {
		name string
		body string
		// asJSON is the status where JSON is required, else the status is any.
		asJSON, any int
	}{
		{"escaped NUL", `{"a":"\u0000"}`, 202, 202},
		{"lone surrogate", `{"a":"\ud800"}`, 202, 202},
		{"invalid UTF-8 in a string", "{\"a\":\"\xff\xc0\xaf\"}", 202, 202},
		{"pretty-printed", "{\r\n\t\"b\" : 1 ,\n\n  \"a\" : [ ]\n}\n\n", 202, 202},
		{"repeated and unordered names", `{"b":1,"a":2,"b":3}`, 202, 202},
		{"400 digits", `{"n":` + strings.Repeat("9", 400) + `,"x":-1.` + strings.Repeat("0", 400) + `e-999}`, 202, 202},
		{"bare value", "null", 202, 202},
		{"at the limit", atLimit, 202, 202},
		{"empty", "", 400, 202},
		{"NUL byte after JSON", "{}\x00", 400, 202},
		{"NUL bytes", "\x00\x00\x00\x00", 400, 202},
		{"every byte", string(everyByte), 400, 202},
		{"byte order mark", "\ufeff{}", 400, 202},
		{"cut off", `{"a":`, 400, 202},
		{"one byte over the limit", " " + atLimit, 413, 413},
		{"twice the limit", strings.Repeat(" ", payloadLimit) + atLimit, 413, 413},
	} {
		for _, w := range ways(t) {
			want := c.any
			if w.json {
				want = c.asJSON
			}
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/chunked=%v", c.name, w.endpoint, chunked), func(t *testing.T) {
					x.send(t, w, "edge", "application/json", []byte(c.body), chunked, want)
				})
			}
		}
	}
}

// published sends the examples of the providers' own documentation.
func (x *payloads) published(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	body := []byte("Hello, World!")
	status, id := x.post(t, "github", http.Header{
		"Content-Type":        {form},
		"X-Github-Delivery":   {uuid.NewString()},
		"X-Hub-Signature-256": {"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
	}, bytes.NewReader(body))
	if status != http.StatusAccepted {
		t.Errorf("GitHub's example is answered with %d", status)
	}
	x.sent[id] = payload{"github", "", form, body}

	// Signed correctly, but of 2021.
	status, _ = x.post(t, "standard", http.Header{
		"Content-Type":      {"application/json"},
		"Webhook-Id":        {"msg_p5jXN8AQM9LWM0D4loKWxJek"},
		"Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	}, strings.NewReader(`{"test": 2432232314}`))
	stale, err := x.ingress.Metric(`ackrail_ingress_signature_failures_total{endpoint="standard",namespace="default",reason="stale"}`)
	if status != http.StatusUnauthorized || stale != 1 || err != nil {
		t.Errorf("Standard Webhooks' example is answered with %d and counted as stale %v times, %v", status, stale, err)
	}
}

// command sends with ackrail send: a sample as each kind of sender would, and
// bodies from standard input.
func (x *payloads) command(t *testing.T) {
	send := func(body []byte, contentType string, args ...string) {
		endpoint := args[0]
		f := rig.Run(t, string(body), append([]string{
			"send", "-f", x.manifest, "--url", x.ingress.URL, "--event-type", "command", "--endpoint",
		}, args...)...)
		x.sent[eventID(t, f, "202 accepted")] = payload{endpoint, "command", contentType, body}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "payloads", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range ways(t) {
		file := files[i%len(files)]
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		send(body, "application/json", w.endpoint, "--body", file)
	}
	send(nil, "application/octet-stream", "none", "--body", "-")
	send([]byte("\x00\xff\r\n"), "image/x-tide", "sha512-base64", "--body", "-", "--content-type", "image/x-tide")

	f := rig.Run(t, "{", "send", "-f", x.manifest, "--url", x.ingress.URL, "--endpoint", "github", "--body", "-", "--content-type", "application/json")
	if want := "HTTP 400 Bad Request\n{\"error\":\"malformed JSON\"}\n"; f.Code != 1 || f.Stdout != want || f.Stderr != "" {
		t.Errorf("a refusal ends the command with code %d, %q, %q, want 1, %q", f.Code, f.Stdout, f.Stderr, want)
	}
}

// arrived checks that everything that was accepted arrives, once, unchanged,
// and signed.
func (x *payloads) arrived() {
	t := x.t
	t.Helper()
	x.sink.WaitFor(t, patience, func(requests []testenv.Request) error {
		if len(requests) < len(x.sent) {
			return fmt.Errorf("%d of %d have arrived", len(requests), len(x.sent))
		}
		return nil
	})
	scheme := signature.StandardWebhooks()
	verifier, err := signature.New(scheme)
	if err != nil {
		t.Fatal(err)
	}
	key, err := scheme.DecodeSecret([]byte(outgoingSecret))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]payload{}
	for _, r := range x.sink.Requests() {
		id, h := r.ID(), r.Header
		if _, twice := got[id]; twice {
			t.Errorf("event %s arrived twice", id)
		}
		got[id] = payload{strings.TrimPrefix(r.URI, "/"), h.Get("Ackrail-Event-Type"), h.Get("Content-Type"), r.Body}
		if err := verifier.Verify(h, r.Body, []signature.Key{key}, r.Time); err != nil {
			t.Errorf("event %s: %v", id, err)
		}
		if h.Get("Idempotency-Key") != id || h.Get("Ackrail-Run") != "1" || h.Get("Ackrail-Attempt") != "1" || r.Method != http.MethodPost {
			t.Errorf("event %s arrived as %s with headers %v", id, r.Method, h)
		}
		for name := range h {
			if strings.HasPrefix(name, "X-") {
				t.Errorf("event %s: the sender's header %s is passed on", id, name)
			}
		}
	}
	same := cmp.Comparer(func(a, b payload) bool {
		return a.Endpoint == b.Endpoint && a.Type == b.Type && a.ContentType == b.ContentType && bytes.Equal(a.Body, b.Body)
	})
	if diff := cmp.Diff(x.sent, got, same); diff != "" {
		t.Errorf("arrived (-sent +got):\n%s", diff)
	}
}
