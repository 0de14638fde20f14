package ingress

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

const (
	// firstBytes is what is set aside for a body before any of it is there:
	// little, so that senders that declare much and send nothing cannot keep
	// others out.
	firstBytes = 4 << 10
	// growth bounds what is set aside by a multiple of what has arrived.
	growth = 4
)

// share is what one request holds of the handler's budget.
type share struct {
	handler *Handler
	held    int64
}

// grow raises the share to a number of bytes, or reports that there is no
// room for it.
func (s *share) grow(to int64) bool {
	more := to - s.held
	if !s.handler.budget.TryAcquire(more) {
		return false
	}
	s.handler.opts.Metrics.inflightBytes.Add(float64(more))
	s.held = to
	return true
}

func (s *share) release() {
	s.handler.opts.Metrics.inflightBytes.Sub(float64(s.held))
	s.handler.budget.Release(s.held)
}

// readBody reads the whole body, or says how it is refused. The buffer is not
// reused: the store may hold it for longer than the request lasts.
func (e *endpoint) readBody(r *http.Request, s *share) ([]byte, *answer) {
	body, err := e.readBytes(r, s)
	switch {
	case err == nil:
		return body, nil
	case errors.Is(err, errNoRoom):
		return nil, &overloaded
	case errors.Is(err, errUndeclared):
		return nil, tooLarge.because(err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, bodyTimeout.because(err)
	default:
		return nil, bodyIncomplete.because(fmt.Errorf("reading the body: %w", err))
	}
}

var (
	errNoRoom     = errors.New("too many bytes are under way")
	errUndeclared = errors.New("the size was not declared")
)

// readBytes reads as much as is declared, or until the end of a body whose
// length is not declared but within the limit.
func (e *endpoint) readBytes(r *http.Request, s *share) ([]byte, error) {
	declared := r.ContentLength >= 0
	most := e.maxBodyBytes
	if declared {
		most = r.ContentLength
	}
	body := []byte{} // an empty body is not nil, which would be NULL in the database
	for int64(len(body)) < most {
		if len(body) == cap(body) {
			size := min(most, max(firstBytes, growth*int64(len(body))))
			if !s.grow(size) {
				return nil, errNoRoom
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) && (!declared || int64(len(body)) == most) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if declared {
		return body, nil
	}
	return body, atEnd(r.Body)
}

// atEnd returns errUndeclared if a body goes on, and nil where it ends.
func atEnd(body io.Reader) error {
	var next [1]byte
	_, err := io.ReadFull(body, next[:])
	switch {
	case err == nil:
		return errUndeclared
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}
