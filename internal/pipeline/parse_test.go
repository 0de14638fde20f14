package pipeline_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// valid is a document with one endpoint for each provider.
func valid() *pipeline.Config {
	destination := func(name string) pipeline.Destination {
		return pipeline.Destination{
			Name:           name,
			HTTP:           pipeline.HTTP{URL: "https://handler.example.com:8443/events?from=github", TimeoutSeconds: 30, SigningSecretFile: "payments/signing/key"},
			Retry:          pipeline.Retry{MaxAttempts: 10, MinBackoffSeconds: 5, MaxBackoffSeconds: 3600},
			MaxConcurrency: 16,
		}
	}
	endpoint := func(name string, v pipeline.Verification, id pipeline.Identity) pipeline.Endpoint {
		return pipeline.Endpoint{
			Namespace: "payments", Name: name, Path: "/hooks/payments/" + name, Verification: v, Identity: id, MaxBodyBytes: 1 << 20,
			Destinations: []pipeline.Destination{destination("handler"), destination("audit")},
			LeaseSeconds: 60, Retention: pipeline.Retention{EventsSeconds: 604800, DeadLettersSeconds: 2592000, DedupSeconds: 86400},
		}
	}
	key := pipeline.Identity{IdempotencyKeyHeader: "X-Id", TypeHeader: "X-Type"}
	secrets := []string{"payments/github/secret", "payments/github/old"}
	return &pipeline.Config{Version: 1, Endpoints: []pipeline.Endpoint{
		endpoint("github", pipeline.Verification{Provider: pipeline.ProviderGitHub, SecretFiles: secrets}, pipeline.Identity{}),
		endpoint("standard", pipeline.Verification{Provider: pipeline.ProviderStandardWebhooks, SecretFiles: secrets[:1]}, pipeline.Identity{}),
		endpoint("hmac", pipeline.Verification{
			Provider: pipeline.ProviderHMAC, SecretFiles: secrets[:1],
			HMAC: &pipeline.HMAC{Header: "X-Signature", Algorithm: "SHA512", Encoding: "Base64", Prefix: "v1="},
		}, key),
		endpoint("none", pipeline.Verification{Provider: pipeline.ProviderNone}, key),
	}}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRoundTrip(t *testing.T) {
	for name, want := range map[string]*pipeline.Config{
		"every provider": valid(),
		"no endpoints":   {Version: 1, Endpoints: []pipeline.Endpoint{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pipeline.Parse(encode(t, want))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
			path := filepath.Join(t.TempDir(), "pipeline.json")
			if err := os.WriteFile(path, encode(t, want), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err = pipeline.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("file (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseIsStrict(t *testing.T) {
	document := string(encode(t, valid()))
	edit := func(old, text string) string {
		t.Helper()
		if !strings.Contains(document, old) {
			t.Fatalf("the document has no %s", old)
		}
		return strings.Replace(document, old, text, 1)
	}
	for _, tc := range []struct{ name, document, want string }{
		{"empty", "", "is empty: want a JSON document"},
		{"white space", " \n", "is empty: want a JSON document"},
		{"no JSON", "version: 1", "invalid character"},
		{"cut off", document[:len(document)-1], "unexpected EOF"},
		{"another type", "[]", "cannot unmarshal array"},
		{"null", "null", "version: "},
		{"second document", document + "{}", "more after it"},
		{"trailing data", document + " x", "more after it"},
		{"trailing bracket", document + "}", "more after it"},
		{"unknown field", edit(`"version":1`, `"version":1,"extra":1`), `unknown field "extra"`},
		{"unknown field of an endpoint", edit(`"path":`, `"paht":"","path":`), `unknown field "paht"`},
		{"unknown field of a destination", edit(`"maxConcurrency":`, `"maxPerSecond":1,"maxConcurrency":`), `unknown field "maxPerSecond"`},
		{"unknown field of HTTP", edit(`"url":`, `"secret":"hunter2","url":`), `unknown field "secret"`},
		{"text for a number", edit(`"leaseSeconds":60`, `"leaseSeconds":"60"`), "leaseSeconds"},
		{"fraction", edit(`"leaseSeconds":60`, `"leaseSeconds":60.5`), "leaseSeconds"},
		{"overflow", edit(`"maxBodyBytes":1048576`, `"maxBodyBytes":9223372036854775808`), "maxBodyBytes"},
		{"no version", edit(`"version":1,`, ``), "version: this binary reads version 1, the document has 0"},
		{"another version", edit(`"version":1`, `"version":2`), "version: this binary reads version 1, the document has 2"},
		{"a fault of Validate", edit(`"path":"/`, `"path":"`), `endpoints[0].path: must start with "/"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := pipeline.Parse([]byte(tc.document))
			if err == nil || c != nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := pipeline.Parse([]byte("\n\t " + document + " \n")); err != nil {
		t.Errorf("white space around it: %v", err)
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipeline.json")
	if _, err := pipeline.Load(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("missing: %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pipeline.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("broken: %v", err)
	}
}

// A rule is a change of a valid document, and what the messages that it must
// cause begin with, one each: the path of the field. None if it is fine.
type rule struct {
	name   string
	change func(*pipeline.Config)
	want   []string
}

const (
	github = iota
	standard
	hmac
	none
)

// at changes one endpoint. want are paths in it.
func at(name string, i int, change func(*pipeline.Endpoint), want ...string) rule {
	r := rule{name, func(c *pipeline.Config) { change(&c.Endpoints[i]) }, nil}
	for _, field := range want {
		r.want = append(r.want, fmt.Sprintf("endpoints[%d]%s: ", i, field))
	}
	return r
}

// number checks the bounds of a field.
func number(field string, low, high int, set func(*pipeline.Endpoint, int)) []rule {
	to := func(n int, want ...string) rule {
		return at(fmt.Sprintf("%s %d", field, n), github, func(e *pipeline.Endpoint) { set(e, n) }, want...)
	}
	return []rule{to(low), to(high), to(low-1, field), to(high+1, field), to(-1<<31, field)}
}

const tenYears = 10 * 366 * 24 * 3600

func endpointRules() []rule {
	return []rule{
		{"unchanged", func(*pipeline.Config) {}, nil},
		{"no endpoints", func(c *pipeline.Config) { c.Endpoints = nil }, nil},
		{"version", func(c *pipeline.Config) { c.Version = 2 }, []string{"version: "}},
		{
			"twice the same endpoint", func(c *pipeline.Config) { c.Endpoints[1].Name = "github" },
			[]string{"endpoints[1]: endpoint payments/github is there twice"},
		},
		{"same name in another namespace", func(c *pipeline.Config) { c.Endpoints[1].Namespace, c.Endpoints[1].Name = "orders", "github" }, nil},
		{
			"twice the same path", func(c *pipeline.Config) { c.Endpoints[2].Path = c.Endpoints[0].Path },
			[]string{`endpoints[2].path: "/hooks/payments/github" is already the path of payments/github`},
		},
		at("no namespace", github, func(e *pipeline.Endpoint) { e.Namespace = "" }, ""),
		at("no name", github, func(e *pipeline.Endpoint) { e.Name = "" }, ""),
		at("no path", github, func(e *pipeline.Endpoint) { e.Path = "" }, ".path"),
		at("relative path", github, func(e *pipeline.Endpoint) { e.Path = "hooks" }, ".path"),
		at("suspend None", github, func(e *pipeline.Endpoint) { e.Suspend = "None" }),
		at("suspend Deliveries", github, func(e *pipeline.Endpoint) { e.Suspend = "Deliveries" }),
		at("suspend All", github, func(e *pipeline.Endpoint) { e.Suspend = "All" }),
		at("suspend something else", github, func(e *pipeline.Endpoint) { e.Suspend = "all" }, ".suspend"),
		at("no destinations", github, func(e *pipeline.Endpoint) { e.Destinations = nil }, ".destinations"),
		at("destination without a name", github, func(e *pipeline.Endpoint) { e.Destinations[1].Name = "" }, ".destinations[1].name"),
		at("twice the same destination", github, func(e *pipeline.Endpoint) { e.Destinations[1].Name = "handler" }, ".destinations[1].name"),
	}
}

func sourceRules() []rule {
	const verification, key = ".verification", ".identity.idempotencyKeyHeader"
	typeHeader := func(name string, want ...string) rule {
		return at("header "+name, hmac, func(e *pipeline.Endpoint) { e.Identity.TypeHeader = name }, want...)
	}
	secretFile := func(path string, want ...string) rule {
		return at("secret file "+path, github, func(e *pipeline.Endpoint) { e.Verification.SecretFiles[1] = path }, want...)
	}
	badHeader, badFile := ".identity.typeHeader", verification+".secretFiles[1]"
	return []rule{
		at("unknown provider", hmac, func(e *pipeline.Endpoint) { e.Verification.Provider, e.Verification.HMAC = "Gitlab", nil }, verification+".provider"),
		at("no secrets", github, func(e *pipeline.Endpoint) { e.Verification.SecretFiles = nil }, verification+".secretFiles"),
		at("no secrets with HMAC", hmac, func(e *pipeline.Endpoint) { e.Verification.SecretFiles = []string{} }, verification+".secretFiles"),
		at("secrets with None", none, func(e *pipeline.Endpoint) { e.Verification.SecretFiles = []string{"a"} }, verification+".secretFiles"),
		at("HMAC without settings", hmac, func(e *pipeline.Endpoint) { e.Verification.HMAC = nil }, verification+".hmac"),
		at("settings without HMAC", github, func(e *pipeline.Endpoint) {
			e.Verification.HMAC = &pipeline.HMAC{Header: "X-S", Algorithm: "SHA256", Encoding: "Hex"}
		}, verification+".hmac"),
		at("no signature header", hmac, func(e *pipeline.Endpoint) { e.Verification.HMAC.Header = "" }, verification+".hmac.header"),
		at("signature header", hmac, func(e *pipeline.Endpoint) { e.Verification.HMAC.Header = "a b" }, verification+".hmac.header"),
		at("algorithm", hmac, func(e *pipeline.Endpoint) { e.Verification.HMAC.Algorithm = "SHA1" }, verification+".hmac.algorithm"),
		at("the other algorithm", hmac, func(e *pipeline.Endpoint) { e.Verification.HMAC.Algorithm = "SHA256" }),
		at("encoding", hmac, func(e *pipeline.Endpoint) { e.Verification.HMAC.Encoding = "hex" }, verification+".hmac.encoding"),
		at("the other encoding", hmac, func(e *pipeline.Endpoint) { e.Verification.HMAC.Encoding = "Hex" }),
		at("no prefix", hmac, func(e *pipeline.Endpoint) { e.Verification.HMAC.Prefix = "" }),
		secretFile("a"), secretFile("a/b/../c"),
		secretFile("", badFile), secretFile("/etc/passwd", badFile), secretFile("../a", badFile), secretFile("a/../../b", badFile),

		at("no key header with HMAC", hmac, func(e *pipeline.Endpoint) { e.Identity.IdempotencyKeyHeader = "" }, key),
		at("no key header with None", none, func(e *pipeline.Endpoint) { e.Identity.IdempotencyKeyHeader = "" }, key),
		at("key header of one's own", standard, func(e *pipeline.Endpoint) { e.Identity.IdempotencyKeyHeader = "X-Other" }),
		at("key header", github, func(e *pipeline.Endpoint) { e.Identity.IdempotencyKeyHeader = "a:b" }, key),
		typeHeader(""), typeHeader("x_y.z~"),
		typeHeader("a b", badHeader), typeHeader("a\n", badHeader), typeHeader("ä", badHeader),

		at("no body", github, func(e *pipeline.Endpoint) { e.MaxBodyBytes = 0 }, ".maxBodyBytes"),
		at("the smallest body", github, func(e *pipeline.Endpoint) { e.MaxBodyBytes = 1 }),
		at("the largest body", github, func(e *pipeline.Endpoint) { e.MaxBodyBytes = 1<<31 - 1 }),
		at("a body too large", github, func(e *pipeline.Endpoint) { e.MaxBodyBytes = 1 << 31 }, ".maxBodyBytes"),
	}
}

func destinationRules() []rule {
	url := func(text string, want ...string) rule {
		return at("url "+text, github, func(e *pipeline.Endpoint) { e.Destinations[1].HTTP.URL = text }, want...)
	}
	badURL, timeout, other := ".destinations[1].http.url", ".destinations[1].http.timeoutSeconds", ".destinations[0].http.timeoutSeconds"
	minBackoff, maxBackoff := ".destinations[1].retry.minBackoffSeconds", ".destinations[1].retry.maxBackoffSeconds"
	return []rule{
		url("http://localhost"), url("https://[::1]:8443/a?b=c"),
		url("", badURL), url("handler:8080/events", badURL), url("/events", badURL), url("ftp://handler/", badURL), url("http:///events", badURL),
		url("http://user:hunter2@handler/", badURL), url("http://user@handler/", badURL), url("http://han dler/", badURL), url("http://handler/\x00", badURL),
		at("signing secret file", github, func(e *pipeline.Endpoint) { e.Destinations[1].HTTP.SigningSecretFile = "../a" }, ".destinations[1].http.signingSecretFile"),
		at("unsigned", github, func(e *pipeline.Endpoint) { e.Destinations[1].HTTP.SigningSecretFile = "" }),

		at("no timeout", github, func(e *pipeline.Endpoint) { e.Destinations[1].HTTP.TimeoutSeconds = 0 }, timeout),
		at("the longest timeout for the lease", github, func(e *pipeline.Endpoint) { e.Destinations[1].HTTP.TimeoutSeconds = 55 }),
		at("a timeout too long for the lease", github, func(e *pipeline.Endpoint) { e.Destinations[1].HTTP.TimeoutSeconds = 56 }, timeout),
		at("a timeout too long for anything", github, func(e *pipeline.Endpoint) { e.Destinations[1].HTTP.TimeoutSeconds = tenYears + 1 }, timeout, timeout),
		at("the shortest lease for the timeouts", github, func(e *pipeline.Endpoint) { e.LeaseSeconds = 35 }),
		at("no lease", github, func(e *pipeline.Endpoint) { e.LeaseSeconds = 0 }, ".leaseSeconds", other, timeout),
		at("the longest lease", github, func(e *pipeline.Endpoint) { e.LeaseSeconds = tenYears }),
		at("a lease too long", github, func(e *pipeline.Endpoint) { e.LeaseSeconds = tenYears + 1 }, ".leaseSeconds"),

		at("no least backoff", github, func(e *pipeline.Endpoint) { e.Destinations[1].Retry.MinBackoffSeconds = 0 }, minBackoff),
		at("a least backoff too long", github, func(e *pipeline.Endpoint) { e.Destinations[1].Retry.MinBackoffSeconds = tenYears + 1 }, minBackoff, maxBackoff),
		at("constant backoff", github, func(e *pipeline.Endpoint) { e.Destinations[1].Retry.MaxBackoffSeconds = 5 }),
		at("a greatest backoff below the least", github, func(e *pipeline.Endpoint) { e.Destinations[1].Retry.MaxBackoffSeconds = 4 }, maxBackoff),
		at("the greatest backoff", github, func(e *pipeline.Endpoint) { e.Destinations[1].Retry.MaxBackoffSeconds = tenYears }),
		at("a greatest backoff too long", github, func(e *pipeline.Endpoint) { e.Destinations[1].Retry.MaxBackoffSeconds = tenYears + 1 }, maxBackoff),
	}
}

func TestValidate(t *testing.T) {
	rules := slices.Concat(
		endpointRules(), sourceRules(), destinationRules(),
		number(".retention.eventsSeconds", 1, tenYears, func(e *pipeline.Endpoint, n int) { e.Retention.EventsSeconds = n }),
		number(".retention.deadLettersSeconds", 1, tenYears, func(e *pipeline.Endpoint, n int) { e.Retention.DeadLettersSeconds = n }),
		number(".retention.dedupSeconds", 1, tenYears, func(e *pipeline.Endpoint, n int) { e.Retention.DedupSeconds = n }),
		number(".destinations[1].retry.maxAttempts", 1, 1000, func(e *pipeline.Endpoint, n int) { e.Destinations[1].Retry.MaxAttempts = n }),
		number(".destinations[1].maxConcurrency", 1, 10000, func(e *pipeline.Endpoint, n int) { e.Destinations[1].MaxConcurrency = n }),
	)
	for _, tc := range rules {
		t.Run(tc.name, func(t *testing.T) {
			c := valid()
			tc.change(c)
			checkFaults(t, c.Validate(), tc.want)
		})
	}
}

// checkFaults wants one line for each fault, in order.
func checkFaults(t *testing.T, err error, want []string) {
	t.Helper()
	var lines []string
	if err != nil {
		lines = strings.Split(err.Error(), "\n")
	}
	ok := len(lines) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.HasPrefix(lines[i], want[i]) && !strings.HasSuffix(lines[i], ": ")
	}
	if !ok {
		t.Errorf("got %q, want faults %q", lines, want)
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a message repeats a password: %v", err)
	}
}

// Whoever corrects a document wants to know everything that is wrong with it.
func TestValidateNamesEveryFault(t *testing.T) {
	c := valid()
	c.Endpoints[github].Path = "hooks"
	c.Endpoints[github].Destinations[0].HTTP.URL = "handler"
	c.Endpoints[hmac].Verification.HMAC.Algorithm = "MD5"
	c.Endpoints[none].Retention.DedupSeconds = 0
	checkFaults(t, c.Validate(), []string{
		"endpoints[0].path: ", "endpoints[0].destinations[0].http.url: ", "endpoints[2].verification.hmac.algorithm: ", "endpoints[3].retention.dedupSeconds: ",
	})
}

func TestSuspend(t *testing.T) {
	for suspend, want := range map[pipeline.Suspend][2]bool{
		"":                         {true, true},
		pipeline.SuspendNone:       {true, true},
		pipeline.SuspendDeliveries: {true, false},
		pipeline.SuspendAll:        {false, false},
	} {
		if got := [2]bool{suspend.Accepts(), suspend.Delivers()}; got != want {
			t.Errorf("%q: accepts and delivers %v, want %v", suspend, got, want)
		}
	}
}

func TestAccessors(t *testing.T) {
	e := &valid().Endpoints[github]
	d := &e.Destinations[0]
	if got, want := e.Ref(), (event.EndpointRef{Namespace: "payments", Name: "github"}); got != want {
		t.Errorf("ref %s, want %s", got, want)
	}
	for _, tc := range []struct {
		name      string
		got, want time.Duration
	}{
		{"lease", e.Lease(), time.Minute},
		{"timeout", d.HTTP.Timeout(), 30 * time.Second},
		{"least backoff", d.Retry.MinBackoff(), 5 * time.Second},
		{"greatest backoff", d.Retry.MaxBackoff(), time.Hour},
		{"events", e.Retention.Events(), 7 * 24 * time.Hour},
		{"dead letters", e.Retention.DeadLetters(), 30 * 24 * time.Hour},
		{"keys", e.Retention.Dedup(), 24 * time.Hour},
		{"ledger, of what is kept longest", e.Retention.Ledger(), 30 * 24 * time.Hour},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, tc.got, tc.want)
		}
	}
	short := pipeline.Retention{EventsSeconds: 20, DeadLettersSeconds: 10}
	if got := short.Ledger(); got != 20*time.Second {
		t.Errorf("ledger: %s, want that of the events", got)
	}
}
