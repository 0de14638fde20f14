package deliver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/backoff"
	"github.com/ackrail/ackrail/internal/event"
)

// Request is one attempt to be made.
type Request struct {
	// Event is what is sent: its ID, Type, ContentType, TraceParent and Body are used, and not changed.
	Event *event.Event
	// Run and Attempt count from 1.
	Run     int
	Attempt int
	// Replay is the replay that started the run, nil for the first run.
	Replay *uuid.UUID
}

// Outcome is how an attempt ended. All texts are bounded, valid UTF-8 and free of control characters but
// tab and line breaks; none contains a secret or the URL.
type Outcome struct {
	// Verdict is done, failed (to be tried again), dead, or released: not sent because the context was already done.
	Verdict event.Verdict
	// Status is the answer's status code, 0 if there was no answer.
	Status int
	// Class is ErrorNone if and only if the verdict is done.
	Class event.ErrorClass
	// Error says in at most 512 bytes what went wrong; empty if the verdict is done.
	Error string
	// RetryAfter is what the destination asked for, at most the longest backoff; 0 if it asked for nothing. Set only with
	// the verdict failed.
	RetryAfter time.Duration
	// Latency is how long the exchange took, up to the last byte that was read.
	Latency time.Duration
	// Excerpt is the beginning of the answer's body, at most 1 KiB.
	Excerpt string
}

// Send makes one attempt and returns when it has ended, at the latest when the destination's timeout is over. With ctx
// done it ends at once, as a failure of class Canceled since the destination may have got the request.
//
// A request that may have reached the destination is never sent a second time within the attempt.
func (d *Destination) Send(ctx context.Context, r *Request) Outcome {
	if err := ctx.Err(); err != nil {
		return Outcome{Verdict: event.VerdictReleased, Class: event.ErrorCanceled, Error: "not sent: the worker is stopping"}
	}
	start := time.Now()
	outcome := d.send(ctx, r, start)
	outcome.Latency = time.Since(start)
	return outcome
}

func (d *Destination) send(parent context.Context, r *Request, now time.Time) Outcome {
	header, err := d.header(r, now)
	if err != nil {
		return failure(event.ErrorSigningSecret, fmt.Sprintf("not sent: %v", err))
	}
	ctx, cancel := context.WithDeadline(parent, now.Add(d.timeout))
	defer cancel()
	// The transport and not a client: a client would follow redirects and put the URL into its errors.
	response, err := d.http.transport.RoundTrip(d.request(ctx, header, r.Event.Body))
	if err != nil {
		return failure(classify(parent, ctx, err), d.describe(parent, ctx, err))
	}
	defer response.Body.Close()
	return d.judge(response, now)
}

func failure(class event.ErrorClass, text string) Outcome {
	return Outcome{Verdict: event.VerdictFailed, Class: class, Error: printable([]byte(text), maxErrorBytes)}
}

// describe adds what the bare error of a context does not say.
func (d *Destination) describe(parent, ctx context.Context, err error) string {
	switch {
	case parent.Err() != nil:
		return "the worker stopped before the answer came"
	case ctx.Err() != nil:
		return fmt.Sprintf("no answer within %v", d.timeout)
	default:
		return err.Error()
	}
}

// request copies the template.
func (d *Destination) request(ctx context.Context, header http.Header, body []byte) *http.Request {
	req := d.template.WithContext(ctx)
	req.Header = header
	if len(body) == 0 {
		return req // as the template: http.NoBody, which sends Content-Length: 0
	}
	req.ContentLength = int64(len(body))
	// Allows the transport to start anew on another connection when the one that it took was closed before anything was written.
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
	return req
}

// header makes the headers, and signs. Names are in lower case where the standards that they come from write them so. For
// Idempotency-Key that matters beyond looks: net/http resends a POST on a broken connection, even one that was written
// completely, if it finds that name in its canonical form, and the ledger would not show it.
func (d *Destination) header(r *Request, now time.Time) (http.Header, error) {
	id := r.Event.ID.String()
	h := http.Header{
		"User-Agent":      {d.http.userAgent},
		"idempotency-key": {id},
		"Ackrail-Attempt": {strconv.Itoa(r.Attempt)},
		"Ackrail-Run":     {strconv.Itoa(r.Run)},
		"traceparent":     {traceParent(r.Event)},
	}
	if r.Event.ContentType != "" {
		h["Content-Type"] = []string{r.Event.ContentType}
	}
	if r.Event.Type != "" {
		h["Ackrail-Event-Type"] = []string{r.Event.Type}
	}
	if r.Replay != nil {
		h["Ackrail-Replay"] = []string{r.Replay.String()}
	}
	if d.key == nil {
		h["Webhook-Id"] = []string{id}
		h["Webhook-Timestamp"] = []string{strconv.FormatInt(now.Unix(), 10)}
		return h, nil
	}
	key, err := d.key.Value()
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	if err := d.http.signer.Sign(h, key, id, now, r.Event.Body); err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return h, nil
}

// judge turns an answer into an outcome.
func (d *Destination) judge(response *http.Response, now time.Time) Outcome {
	outcome := Outcome{Status: response.StatusCode, Verdict: verdict(response.StatusCode), Excerpt: excerpt(response)}
	if outcome.Verdict == event.VerdictDone {
		return outcome
	}
	outcome.Class = event.ErrorHTTPStatus
	outcome.Error = fmt.Sprintf("answered with status %d", response.StatusCode)
	if text := http.StatusText(response.StatusCode); text != "" {
		outcome.Error += " " + text
	}
	if outcome.Verdict == event.VerdictFailed {
		outcome.RetryAfter = d.retryAfter(response.Header, now)
	}
	return outcome
}

// retryAfter reads a date against the destination's own clock if it sent one: then it does not matter whose is wrong.
func (d *Destination) retryAfter(header http.Header, now time.Time) time.Duration {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	delay, _ := backoff.RetryAfter(header.Get("Retry-After"), now, d.maxRetryAfter)
	return delay
}

// excerpt reads the body up to its cap, so that the connection can be used again, and returns its beginning. Errors are of
// no interest: the status has decided.
func excerpt(response *http.Response) string {
	// After this status the body is the bare connection, on which reading heeds no deadline.
	if response.StatusCode == http.StatusSwitchingProtocols {
		return ""
	}
	body := io.LimitReader(response.Body, maxResponseBodyBytes)
	// Some bytes more than are kept, so that the last character can be seen whole.
	var buf [maxExcerptBytes + utf8.UTFMax]byte
	n, err := io.ReadFull(body, buf[:])
	if err == nil {
		_, _ = io.Copy(io.Discard, body)
	}
	return printable(buf[:n], maxExcerptBytes)
}
