package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/signature"
)

// Load reads and checks the document in a file.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the pipeline configuration: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("pipeline configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse reads a document strictly: unknown fields, another version and
// anything that Validate refuses are errors that name the field.
func Parse(data []byte) (*Config, error) {
	var c Config
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&c)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("is empty: want a JSON document")
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one JSON document, found more after it")
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &c, nil
}

// Validate checks the whole document and returns every fault, each with the
// path of its field.
func (c *Config) Validate() error {
	if c.Version != Version {
		return fmt.Errorf("version: this binary reads version %d, the document has %d", Version, c.Version)
	}
	var f faults
	paths := map[string]string{}
	refs := map[event.EndpointRef]bool{}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		at := fmt.Sprintf("endpoints[%d]", i)
		f.check(e.Namespace != "" && e.Name != "", at, "namespace and name are required")
		f.check(!refs[e.Ref()], at, "endpoint %s is there twice", e.Ref())
		refs[e.Ref()] = true
		other, taken := paths[e.Path]
		f.check(!taken, at+".path", "%q is already the path of %s", e.Path, other)
		paths[e.Path] = e.Ref().String()
		e.validate(at, &f)
	}
	return errors.Join(f...)
}

// faults gathers what is wrong, each with its field.
type faults []error

func (f *faults) check(ok bool, field, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(field+": "+format, args...))
	}
}

func (f *faults) between(n, lo, hi int, field string) {
	f.check(n >= lo && n <= hi, field, "must be between %d and %d, is %d", lo, hi, n)
}

func (e *Endpoint) validate(at string, f *faults) {
	f.check(strings.HasPrefix(e.Path, "/"), at+".path", "must start with \"/\", is %q", e.Path)
	f.check(e.MaxBodyBytes >= 1 && e.MaxBodyBytes <= math.MaxInt32, at+".maxBodyBytes", "must be between 1 and %d, is %d", math.MaxInt32, e.MaxBodyBytes)
	e.Verification.validate(at+".verification", f)
	e.validateIdentity(at+".identity", f)
	f.between(e.LeaseSeconds, 1, maxSeconds, at+".leaseSeconds")
	f.between(e.Retention.EventsSeconds, 1, maxSeconds, at+".retention.eventsSeconds")
	f.between(e.Retention.DeadLettersSeconds, 1, maxSeconds, at+".retention.deadLettersSeconds")
	f.between(e.Retention.DedupSeconds, 1, maxSeconds, at+".retention.dedupSeconds")
	suspends := []Suspend{SuspendNone, SuspendDeliveries, SuspendAll}
	f.check(e.Suspend == "" || slices.Contains(suspends, e.Suspend), at+".suspend", "unknown value %q: use one of %v", e.Suspend, suspends)
	f.check(len(e.Destinations) > 0, at+".destinations", "at least one is required")
	names := map[string]bool{}
	for i := range e.Destinations {
		d := &e.Destinations[i]
		at := fmt.Sprintf("%s.destinations[%d]", at, i)
		f.check(d.Name != "", at+".name", "is required")
		f.check(!names[d.Name], at+".name", "%q is there twice", d.Name)
		names[d.Name] = true
		d.validate(at, f)
		f.check(d.HTTP.Timeout()+LeaseMargin <= e.Lease(), at+".http.timeoutSeconds",
			"%d s and a margin of %d s do not fit into leaseSeconds (%d): raise the lease or lower the timeout",
			d.HTTP.TimeoutSeconds, LeaseMargin/time.Second, e.LeaseSeconds)
	}
}

// maxSeconds bounds every period: ten years, far from any overflow.
const maxSeconds = 10 * 366 * 24 * 3600

func (e *Endpoint) validateIdentity(at string, f *faults) {
	own := e.Verification.Provider == ProviderGitHub || e.Verification.Provider == ProviderStandardWebhooks
	f.check(own || e.Identity.IdempotencyKeyHeader != "", at+".idempotencyKeyHeader",
		"is required with provider %s, which has no header of its own for it", e.Verification.Provider)
	f.headerName(e.Identity.IdempotencyKeyHeader, at+".idempotencyKeyHeader")
	f.headerName(e.Identity.TypeHeader, at+".typeHeader")
}

// headerName checks a header name where there is one.
func (f *faults) headerName(name, field string) {
	f.check(name == "" || httpguts.ValidHeaderFieldName(name), field, "%q is not a header name", name)
}

func (v *Verification) validate(at string, f *faults) {
	known := []Provider{ProviderGitHub, ProviderStandardWebhooks, ProviderHMAC, ProviderNone}
	f.check(slices.Contains(known, v.Provider), at+".provider", "unknown provider %q: use one of %v", v.Provider, known)
	none := v.Provider == ProviderNone
	f.check(none || len(v.SecretFiles) > 0, at+".secretFiles", "at least one is required with provider %s", v.Provider)
	f.check(!none || len(v.SecretFiles) == 0, at+".secretFiles", "must be empty with provider None, which verifies nothing")
	for i, file := range v.SecretFiles {
		f.localPath(file, fmt.Sprintf("%s.secretFiles[%d]", at, i))
	}
	f.check((v.HMAC != nil) == (v.Provider == ProviderHMAC), at+".hmac", "goes with provider HMAC and only with it")
	if v.HMAC == nil {
		return
	}
	before := len(*f)
	f.check(v.HMAC.Header != "", at+".hmac.header", "is required")
	f.headerName(v.HMAC.Header, at+".hmac.header")
	f.check(slices.Contains([]string{"SHA256", "SHA512"}, v.HMAC.Algorithm), at+".hmac.algorithm", "must be SHA256 or SHA512, is %q", v.HMAC.Algorithm)
	f.check(slices.Contains([]string{"Hex", "Base64"}, v.HMAC.Encoding), at+".hmac.encoding", "must be Hex or Base64, is %q", v.HMAC.Encoding)
	if scheme, ok := v.Scheme(); ok && len(*f) == before {
		_, err := signature.New(scheme)
		f.check(err == nil, at+".hmac", "cannot be used: %v", err)
	}
}

func (d *Destination) validate(at string, f *faults) {
	u, err := url.Parse(d.HTTP.URL)
	ok := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
	// The message repeats nothing of a URL that may carry a password.
	f.check(ok, at+".http.url", "must be an absolute http or https URL without user information")
	if ok {
		_, err = http.NewRequest(http.MethodPost, d.HTTP.URL, http.NoBody)
		f.check(err == nil, at+".http.url", "no request can be made of it")
	}
	f.between(d.HTTP.TimeoutSeconds, 1, maxSeconds, at+".http.timeoutSeconds")
	if d.HTTP.SigningSecretFile != "" {
		f.localPath(d.HTTP.SigningSecretFile, at+".http.signingSecretFile")
	}
	f.between(d.Retry.MaxAttempts, 1, 1000, at+".retry.maxAttempts")
	f.between(d.Retry.MinBackoffSeconds, 1, maxSeconds, at+".retry.minBackoffSeconds")
	f.between(d.Retry.MaxBackoffSeconds, d.Retry.MinBackoffSeconds, maxSeconds, at+".retry.maxBackoffSeconds")
	f.between(d.MaxConcurrency, 1, 10000, at+".maxConcurrency")
}

func (f *faults) localPath(path, field string) {
	f.check(filepath.IsLocal(path), field, "%q must be a relative path inside the secrets folder", path)
}
