package deliver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/ackrail/ackrail/internal/event"
)

// verdict is what an answer's status means; the table and its reasons stand in the package's description.
func verdict(status int) event.Verdict {
	switch status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusGone,
		http.StatusLengthRequired, http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusRequestHeaderFieldsTooLarge:
		return event.VerdictDead
	}
	if status >= 200 && status <= 299 {
		return event.VerdictDone
	}
	return event.VerdictFailed
}

// classify finds the class of an error of the transport. ctx has the attempt's deadline and is a child of parent.
func classify(parent, ctx context.Context, err error) event.ErrorClass {
	var resolver *net.DNSError
	var network net.Error
	var operation *net.OpError
	switch {
	case parent.Err() != nil:
		return event.ErrorCanceled
	case ctx.Err() != nil:
		return event.ErrorTimeout
	case errors.As(err, &resolver):
		return event.ErrorDNS
	case isTLS(err):
		return event.ErrorTLS
	case errors.As(err, &network) && network.Timeout():
		return event.ErrorTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return event.ErrorConnectionRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return event.ErrorConnectionReset
	case errors.As(err, &operation):
		return event.ErrorNetwork
	default:
		// Most of what net/http finds wrong with an answer has no type to know it by.
		return event.ErrorProtocol
	}
}

// isTLS goes by the text: alerts and most errors of a handshake are of unexported types, but all name their package.
func isTLS(err error) bool { return strings.Contains(err.Error(), "tls: ") }
