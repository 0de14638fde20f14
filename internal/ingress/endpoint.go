package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/secretfile"
	"github.com/ackrail/ackrail/internal/signature"
	"github.com/ackrail/ackrail/internal/store"
)

const (
	mediaJSON = "application/json"
	mediaForm = "application/x-www-form-urlencoded"
	// identityCoding is the one content coding that is taken (RFC 9110 §8.4).
	identityCoding = "identity"
)

// endpoint is an endpoint of the configuration, compiled once. It is
// immutable and safe for concurrent use.
type endpoint struct {
	ref event.EndpointRef
	// suspended: every request is refused for the time being.
	suspended    bool
	maxBodyBytes int64
	// mediaTypes are those that the provider sends; nil: any. A body that is
	// declared as JSON is checked only where they are known.
	mediaTypes []string

	// verifier is nil for an endpoint that takes unsigned requests.
	verifier *signature.Verifier
	secrets  []*secretfile.File[signature.Key]

	// keyHeader and typeHeader are canonical; typeHeader may be empty.
	keyHeader, typeHeader   string
	invalidKey, invalidType answer
	unkept                  map[string]bool

	// destinations, keepEvent and keepKey go with every submission.
	destinations       []string
	keepEvent, keepKey time.Duration

	metrics endpointMetrics
	// refusals and failures bound the log: of what is the sender's fault, and
	// of what is ours, so that the first cannot hide the second.
	refusals, failures *gate
}

func newEndpoint(c *pipeline.Endpoint, o *Options) (*endpoint, error) {
	e := &endpoint{
		ref:          c.Ref(),
		suspended:    !c.Suspend.Accepts(),
		maxBodyBytes: c.MaxBodyBytes,
		keepEvent:    c.Retention.Events(),
		keepKey:      c.Retention.Dedup(),
		unkept:       map[string]bool{},
		metrics:      o.Metrics.of(c.Ref()),
		refusals:     newGate(),
		failures:     newGate(),
	}
	for _, d := range c.Destinations {
		e.destinations = append(e.destinations, d.Name)
	}
	for _, name := range unkept {
		e.unkept[name] = true
	}
	scheme, err := e.setScheme(&c.Verification)
	if err != nil {
		return nil, err
	}
	for _, path := range c.Verification.SecretFiles {
		file, err := secretfile.Open(o.SecretsDir, path, scheme.DecodeSecret)
		if err != nil {
			return nil, err
		}
		e.secrets = append(e.secrets, file)
	}
	e.setIdentity(&c.Identity, scheme)
	return e, nil
}

// setScheme takes over what the provider prescribes.
func (e *endpoint) setScheme(v *pipeline.Verification) (signature.Scheme, error) {
	scheme, ok := v.Scheme()
	if !ok {
		if v.Provider != pipeline.ProviderNone {
			return scheme, fmt.Errorf("unknown provider %q", v.Provider)
		}
		return scheme, nil
	}
	switch v.Provider {
	case pipeline.ProviderGitHub:
		e.mediaTypes = []string{mediaJSON, mediaForm}
		e.unkept["X-Hub-Signature"] = true // GitHub's older signature, over the same secret
	case pipeline.ProviderStandardWebhooks:
		e.mediaTypes = []string{mediaJSON}
	}
	e.unkept[http.CanonicalHeaderKey(scheme.SignatureHeader)] = true
	var err error
	e.verifier, err = signature.New(scheme)
	return scheme, err
}

func (e *endpoint) setIdentity(i *pipeline.Identity, scheme signature.Scheme) {
	e.keyHeader = headerOr(i.IdempotencyKeyHeader, scheme.IDHeader)
	e.typeHeader = headerOr(i.TypeHeader, scheme.TypeHeader)
	e.invalidKey = invalidHeader(e.keyHeader, fmt.Sprintf(
		"the idempotency key, once, as 1 to %d bytes of UTF-8 without control characters", event.MaxKeyBytes))
	e.invalidType = invalidHeader(e.typeHeader, fmt.Sprintf(
		"the event type, once, as at most %d bytes of UTF-8 without control characters", event.MaxTypeBytes))
}

func headerOr(name, fallback string) string {
	if name == "" {
		name = fallback
	}
	return http.CanonicalHeaderKey(name)
}

// refuseEarly judges what can be judged before the body is read; nil: go on.
func (e *endpoint) refuseEarly(r *http.Request) *answer {
	switch {
	case r.Method != http.MethodPost:
		return &methodNotAllowed
	case e.mediaTypes != nil && !slices.Contains(e.mediaTypes, mediaType(r.Header)):
		return &unsupportedMediaType
	case len(r.Header["Content-Encoding"]) > 0 && !strings.EqualFold(r.Header.Get("Content-Encoding"), identityCoding):
		// A delivery could not say how its body is coded.
		return &unsupportedCoding
	case r.ContentLength > e.maxBodyBytes:
		return tooLarge.because(fmt.Errorf("the declared size is %d bytes", r.ContentLength))
	}
	return nil
}

// mediaType returns the content type without its parameters, which say
// nothing about whether it is welcome; "" if it is missing or malformed.
func mediaType(header http.Header) string {
	value := header.Get("Content-Type")
	if value == mediaJSON {
		return value
	}
	parsed, _, err := mime.ParseMediaType(value)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return ""
	}
	return parsed
}

// refuse judges a request whose body is there, but for its identity.
func (e *endpoint) refuse(header http.Header, body []byte, now time.Time) *answer {
	if refused := e.verify(header, body, now); refused != nil {
		return refused
	}
	if e.mediaTypes != nil && mediaType(header) == mediaJSON && !json.Valid(body) {
		return &malformedJSON
	}
	return nil
}

// verify tries every live secret. If some secret cannot be read, a request
// that fits none of the others may be signed with that one: it is not
// refused for good, the sender may come again.
func (e *endpoint) verify(header http.Header, body []byte, now time.Time) *answer {
	if e.verifier == nil {
		return nil
	}
	keys, missing := e.keys()
	if len(keys) == 0 {
		e.metrics.unverified(signature.ReasonNoSecret)
		return noSecret.because(missing)
	}
	err := e.verifier.Verify(header, body, keys, now)
	if err == nil {
		return nil
	}
	reason := signature.ReasonMismatch
	var failure *signature.Error
	if errors.As(err, &failure) {
		reason = failure.Reason
	}
	if missing != nil && reason == signature.ReasonMismatch {
		e.metrics.unverified(signature.ReasonNoSecret)
		return noSecret.because(missing)
	}
	e.metrics.unverified(reason)
	return unauthorized.because(err)
}

// keys returns the live secrets, and what is wrong with the others.
func (e *endpoint) keys() ([]signature.Key, error) {
	keys := make([]signature.Key, 0, len(e.secrets))
	var errs []error
	for _, file := range e.secrets {
		key, err := file.Value()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		keys = append(keys, key)
	}
	return keys, errors.Join(errs...)
}

// identify makes the event of a verified request.
func (e *endpoint) identify(header http.Header, body []byte) (*event.Event, *answer) {
	key, err := identifier(header, e.keyHeader, event.MaxKeyBytes)
	if err != nil {
		return nil, e.invalidKey.because(err)
	}
	var typ string
	if strings.Join(header[e.typeHeader], "") != "" {
		if typ, err = identifier(header, e.typeHeader, event.MaxTypeBytes); err != nil {
			return nil, e.invalidType.because(err)
		}
	}
	id, err := event.NewID()
	if err != nil {
		return nil, unavailable.because(err)
	}
	return &event.Event{
		ID:          id,
		Endpoint:    e.ref,
		Key:         key,
		Type:        typ,
		ContentType: keptContentType(header),
		Headers:     e.kept(header),
		Body:        body,
		TraceParent: traceParent(header),
	}, nil
}

// commit stores an event and returns the answer that this allows.
func (e *endpoint) commit(ctx context.Context, q Enqueuer, ev *event.Event) *answer {
	receipt, err := q.Enqueue(ctx, store.Submission{
		Event:        ev,
		Destinations: e.destinations,
		KeepEvent:    e.keepEvent,
		KeepKey:      e.keepKey,
	})
	var refused *store.RejectedError
	switch {
	case err == nil:
		return received(receipt)
	case errors.As(err, &refused):
		return rejected.because(err)
	case errors.Is(err, store.ErrBusy):
		return queueFull.because(err)
	default:
		return unavailable.because(err)
	}
}
