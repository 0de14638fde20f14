package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

// Enqueuer commits events. A store.Enqueuer is one.
type Enqueuer interface {
	// Enqueue returns after the commit. It keeps the submission, body
	// included, for as long as it likes.
	Enqueue(ctx context.Context, s store.Submission) (store.Receipt, error)
}

// Options are what a Handler needs beside the configuration. All fields but
// the last three are required.
type Options struct {
	// SecretsDir is the folder that the configuration's secret files are in.
	SecretsDir string
	Enqueuer   Enqueuer
	Metrics    *Metrics
	Logger     *slog.Logger

	// Now is the clock that signed timestamps are compared with; time.Now
	// if nil.
	Now func() time.Time
	// AckTimeout bounds the time from a body's arrival to its answer, 900 ms
	// if zero: a sender has its answer within a second.
	AckTimeout time.Duration
	// MaxInflightBytes bounds the bodies of requests that are not answered
	// yet, 64 MiB if zero. Beyond it requests get 503. What is set aside for
	// a body grows as it arrives. The bound is raised to the largest
	// maxBodyBytes of an endpoint, which could else never be used.
	MaxInflightBytes int64
}

const (
	defaultAckTimeout       = 900 * time.Millisecond
	defaultMaxInflightBytes = 64 << 20
	// maxLoggedPathBytes bounds what a log line repeats of an unknown path.
	maxLoggedPathBytes = 200
)

// Handler answers webhooks. It is safe for concurrent use.
type Handler struct {
	opts      Options
	endpoints map[string]*endpoint
	// nowhere stands for the endpoint of unknown paths.
	nowhere *endpoint
	budget  *semaphore.Weighted
}

// New compiles a valid configuration. A secret that is missing or broken is
// no error: its endpoint answers 503, as the log says, until the file is
// there, and the other endpoints work.
func New(c *pipeline.Config, o Options) (*Handler, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.AckTimeout == 0 {
		o.AckTimeout = defaultAckTimeout
	}
	if o.MaxInflightBytes == 0 {
		o.MaxInflightBytes = defaultMaxInflightBytes
	}
	h := &Handler{
		endpoints: make(map[string]*endpoint, len(c.Endpoints)),
		nowhere:   &endpoint{metrics: o.Metrics.of(event.EndpointRef{}), refusals: newGate(), failures: newGate()},
	}
	for i := range c.Endpoints {
		e, err := newEndpoint(&c.Endpoints[i], &o)
		if err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", c.Endpoints[i].Ref(), err)
		}
		h.endpoints[c.Endpoints[i].Path] = e
		o.MaxInflightBytes = max(o.MaxInflightBytes, e.maxBodyBytes)
		if _, missing := e.keys(); missing != nil {
			o.Logger.Warn("Secret cannot be used", "namespace", e.ref.Namespace, "endpoint", e.ref.Name, "error", missing)
		}
	}
	h.opts = o
	h.budget = semaphore.NewWeighted(o.MaxInflightBytes)
	return h, nil
}

// ServeHTTP answers one request, as the package's documentation says.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	e := h.endpoints[r.URL.Path]
	if e == nil {
		e = h.nowhere
	}
	a := h.judge(e, r)
	a.write(w, r)
	e.metrics.answered(a.result, time.Since(start))
	h.log(e, r, a)
}

// errPanic is the cause of the answer to a request that met a panic.
var errPanic = errors.New("recovered from a panic")

// judge takes a request as far as it gets and returns its answer.
func (h *Handler) judge(e *endpoint, r *http.Request) (a *answer) {
	defer func() {
		if p := recover(); p != nil {
			h.opts.Logger.Error("Recovered from a panic", "namespace", e.ref.Namespace, "endpoint", e.ref.Name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			a = broken.because(errPanic)
		}
	}()
	if e == h.nowhere {
		return &notFound
	}
	if e.suspended {
		return &suspended
	}
	if refused := e.refuseEarly(r); refused != nil {
		return refused
	}
	s := &share{handler: h}
	defer s.release()
	body, refused := e.readBody(r, s)
	if refused != nil {
		return refused
	}
	return h.take(e, r, body)
}

// take verifies, identifies and commits a request whose body has arrived. It
// goes on when the sender hangs up: what is there in full need not be lost,
// and the sender's next try finds it.
func (h *Handler) take(e *endpoint, r *http.Request, body []byte) *answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), h.opts.AckTimeout)
	defer cancel()
	if refused := e.refuse(r.Header, body, h.opts.Now()); refused != nil {
		return refused
	}
	ev, refused := e.identify(r.Header, body)
	if refused != nil {
		return refused
	}
	return e.commit(ctx, h.opts.Enqueuer, ev)
}

// log writes a line about a request that was not simply accepted, unless
// there were too many of late.
func (h *Handler) log(e *endpoint, r *http.Request, a *answer) {
	level, message, g := slog.LevelInfo, "Refused a request", e.refusals
	switch a.result {
	case resultAccepted, resultDuplicate:
		return
	case resultConflict:
		level, message = slog.LevelWarn, "Ignored another body under a known idempotency key"
	case resultUnavailable, resultOverloaded:
		level, message, g = slog.LevelWarn, "Could not take a request", e.failures
	}
	ctx := r.Context()
	if !h.opts.Logger.Enabled(ctx, level) {
		return
	}
	suppressed, ok := g.pass()
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("namespace", e.ref.Namespace),
		slog.String("endpoint", e.ref.Name),
		slog.String("result", string(a.result)),
		slog.Int("status", a.status),
		slog.String("remoteAddr", r.RemoteAddr),
		slog.Int64("suppressed", suppressed),
	}
	if a.cause != nil {
		attrs = append(attrs, slog.String("reason", a.cause.Error()))
	}
	if e == h.nowhere {
		attrs = append(attrs, slog.String("path", toText(r.URL.Path[:min(len(r.URL.Path), maxLoggedPathBytes)])))
	}
	h.opts.Logger.LogAttrs(ctx, level, message, attrs...)
}
