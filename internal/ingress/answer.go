package ingress

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/ackrail/ackrail/internal/store"
)

// result labels what became of a request, in metrics and logs.
type result string

const (
	resultAccepted             result = "accepted"
	resultDuplicate            result = "duplicate"
	resultConflict             result = "conflict"
	resultUnauthorized         result = "unauthorized"
	resultTooLarge             result = "too_large"
	resultBadRequest           result = "bad_request"
	resultTimeout              result = "timeout"
	resultUnsupportedMediaType result = "unsupported_media_type"
	resultMethodNotAllowed     result = "method_not_allowed"
	resultUnprocessable        result = "unprocessable"
	resultUnavailable          result = "unavailable"
	resultOverloaded           result = "overloaded"
	resultSuspended            result = "suspended"
	resultNotFound             result = "not_found"
)

// answer is what a request gets.
type answer struct {
	result result
	status int
	body   []byte
	// retryAfter is when the sender may try again; 0 where that is no use.
	retryAfter time.Duration
	// acceptEncoding says which content codings are taken; usually empty.
	acceptEncoding string
	// unread: the body may not have been read to its end.
	unread bool
	// cause says why, for the log. The sender never sees it.
	cause error
}

// because returns the answer with a cause.
func (a answer) because(cause error) *answer {
	a.cause = cause
	return &a
}

// retryAfter is long enough for a queue to empty or a database to fail over,
// and short enough that the first retry after it finds the service back.
const retryAfter = time.Second

// secretRetryAfter is for what a person has to mend.
const secretRetryAfter = 5 * time.Second

// suspendRetryAfter is for what somebody has stopped on purpose: few senders
// try more than a handful of times, so they should not use them up at once.
const suspendRetryAfter = 30 * time.Second

// The refusals. Those with a header's name are made for each endpoint.
var (
	notFound = answer{result: resultNotFound, status: http.StatusNotFound, body: errorBody("not found"), unread: true}

	suspended = answer{
		result: resultSuspended, status: http.StatusServiceUnavailable,
		body: errorBody("suspended"), retryAfter: suspendRetryAfter, unread: true,
	}

	methodNotAllowed = answer{result: resultMethodNotAllowed, status: http.StatusMethodNotAllowed, body: errorBody("method not allowed"), unread: true}

	unsupportedMediaType = answer{
		result: resultUnsupportedMediaType, status: http.StatusUnsupportedMediaType,
		body: errorBody("unsupported media type"), unread: true,
	}
	unsupportedCoding = answer{
		result: resultUnsupportedMediaType, status: http.StatusUnsupportedMediaType,
		body: errorBody("unsupported content coding"), unread: true, acceptEncoding: identityCoding,
	}
	tooLarge = answer{result: resultTooLarge, status: http.StatusRequestEntityTooLarge, body: errorBody("body too large"), unread: true}

	overloaded = answer{
		result: resultOverloaded, status: http.StatusServiceUnavailable,
		body: errorBody("overloaded"), retryAfter: retryAfter, unread: true,
	}
	bodyTimeout    = answer{result: resultTimeout, status: http.StatusRequestTimeout, body: errorBody("request timeout"), unread: true}
	bodyIncomplete = answer{result: resultBadRequest, status: http.StatusBadRequest, body: errorBody("incomplete body"), unread: true}

	unauthorized  = answer{result: resultUnauthorized, status: http.StatusUnauthorized, body: errorBody("unauthorized")}
	malformedJSON = answer{result: resultBadRequest, status: http.StatusBadRequest, body: errorBody("malformed JSON")}
	rejected      = answer{result: resultUnprocessable, status: http.StatusUnprocessableEntity, body: errorBody("the event cannot be stored")}

	queueFull   = answer{result: resultOverloaded, status: http.StatusServiceUnavailable, body: errorBody("overloaded"), retryAfter: retryAfter}
	unavailable = answer{result: resultUnavailable, status: http.StatusServiceUnavailable, body: errorBody("unavailable"), retryAfter: retryAfter}
	noSecret    = answer{result: resultUnavailable, status: http.StatusServiceUnavailable, body: errorBody("unavailable"), retryAfter: secretRetryAfter}
	// broken comes at any time, so the body may be unread.
	broken = answer{
		result: resultUnavailable, status: http.StatusServiceUnavailable,
		body: errorBody("unavailable"), retryAfter: retryAfter, unread: true,
	}
)

// invalidHeader is the refusal that names a header and says what it must be.
func invalidHeader(name, want string) answer {
	return answer{
		result: resultUnprocessable, status: http.StatusUnprocessableEntity,
		body: errorBody(fmt.Sprintf("header %s: want %s", name, want)),
	}
}

// received is the answer to an event that is committed.
func received(r store.Receipt) *answer {
	a := &answer{result: resultAccepted, status: http.StatusAccepted}
	status := "accepted"
	if r.Duplicate {
		a.result, a.status, status = resultDuplicate, http.StatusOK, "duplicate"
	}
	if r.Conflict {
		a.result = resultConflict
	}
	a.body = encode(struct {
		Status  string `json:"status"`
		EventID string `json:"eventId"`
	}{status, r.EventID.String()})
	return a
}

func errorBody(text string) []byte {
	return encode(struct {
		Error string `json:"error"`
	}{text})
}

// encode cannot fail: it is given strings only.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if a.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(a.retryAfter/time.Second), 10))
	}
	if a.status == http.StatusMethodNotAllowed {
		h.Set("Allow", http.MethodPost)
	}
	if a.acceptEncoding != "" {
		h.Set("Accept-Encoding", a.acceptEncoding)
	}
	// net/http would read up to 256 KiB of what is left of a body before it
	// sends the answer, however slowly the rest comes, unless the connection
	// is to be closed anyway.
	if a.unread && r.ContentLength != 0 {
		h.Set("Connection", "close")
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a sender that has gone will ask again
}
