package ingress

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

// reservation is how much memory a body may take: what is declared, or the
// endpoint's limit where nothing is.
func (e *endpoint) reservation(r *http.Request) int64 {
	if r.ContentLength < 0 {
		return e.maxBodyBytes
	}
	return r.ContentLength
}

// readBody reads the whole body, or says how it is refused. The buffer is not
// reused: the store may hold it for longer than the request lasts.
func (e *endpoint) readBody(r *http.Request) ([]byte, *answer) {
	body, err := e.readBytes(r)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, bodyTimeout.because(err)
	case err != nil:
		return nil, bodyIncomplete.because(fmt.Errorf("reading the body: %w", err))
	case int64(len(body)) > e.maxBodyBytes:
		return nil, tooLarge.because(errUndeclared)
	}
	return body, nil
}

var errUndeclared = errors.New("the size was not declared")

// readBytes reads the body, or one byte more than the limit of one whose
// length is not declared.
func (e *endpoint) readBytes(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(io.LimitReader(r.Body, e.maxBodyBytes+1))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}
