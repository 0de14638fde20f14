package invariant

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ackrail/ackrail/internal/event"
)

// Send is one request of a sender and the answer to it.
type Send struct {
	Namespace, Endpoint string
	Key                 string   // the idempotency key
	Body                [32]byte // SHA-256
	At, Answered        time.Time
	Status              int    // 0: no answer came, so the outcome is unknown
	EventID             string // from a 2xx
	RetryAfter          string // the header
	Forged              bool   // it must be refused
	Err                 string // why no answer came
}

func (s *Send) acknowledged() bool { return s.Status/100 == 2 }

// Receipt is one request that a destination got.
type Receipt struct {
	At                               time.Time // when it had arrived
	Namespace, Endpoint, Destination string
	EventID                          string
	Attempt, Run                     int    // as the request says
	Replay                           string // as the request says, empty for none
	Body                             [32]byte
	Status                           int // of the answer; 0: none was given
}

// note is something that was done to the system.
type note struct {
	at   time.Time
	text string
}

// History gathers what happened outside the database. The zero value is ready, and safe for concurrent use.
type History struct {
	mu       sync.Mutex
	sends    []Send
	receipts []*Receipt
	notes    []note
}

// Sent adds a request of a sender, once its answer is there or will not come.
func (h *History) Sent(s Send) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sends = append(h.sends, s)
}

// Received adds a request that a destination got.
func (h *History) Received(r Receipt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.receipts = append(h.receipts, &r)
}

// Did notes what was done to the system, now. It is shown with violations of that time.
func (h *History) Did(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, note{time.Now(), fmt.Sprintf(format, args...)})
}

// Sends returns how many requests were sent so far.
func (h *History) Sends() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sends)
}

// Acknowledged returns how many requests were answered with 2xx so far.
func (h *History) Acknowledged() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for i := range h.sends {
		if h.sends[i].acknowledged() {
			n++
		}
	}
	return n
}

// Receipts returns how many requests destinations got so far.
func (h *History) Receipts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.receipts)
}

// contents copies the history, each part in the order of time.
func (h *History) contents() (sends []Send, receipts []Receipt, notes []note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sends, notes = slices.Clone(h.sends), slices.Clone(h.notes)
	for _, r := range h.receipts {
		receipts = append(receipts, *r)
	}
	slices.SortStableFunc(sends, func(a, b Send) int { return a.At.Compare(b.At) })
	slices.SortStableFunc(receipts, func(a, b Receipt) int { return a.At.Compare(b.At) })
	return sends, receipts, notes
}

// Destination adds what a destination gets to the history before next, which can read the body, answers it. The answer's
// status is added before the client can see it.
func (h *History) Destination(ref event.DestinationRef, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // it did not arrive whole
		}
		receipt := &Receipt{
			At:        time.Now(),
			Namespace: ref.Endpoint.Namespace, Endpoint: ref.Endpoint.Name, Destination: ref.Name,
			EventID: r.Header.Get("webhook-id"), Replay: r.Header.Get("Ackrail-Replay"),
			Body: sha256.Sum256(body),
		}
		// What is no number is 0, which no attempt in the ledger has.
		receipt.Attempt, _ = strconv.Atoi(r.Header.Get("Ackrail-Attempt"))
		receipt.Run, _ = strconv.Atoi(r.Header.Get("Ackrail-Run"))
		h.mu.Lock()
		h.receipts = append(h.receipts, receipt)
		h.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		answered := &answer{ResponseWriter: w, begun: func(status int) {
			h.mu.Lock()
			defer h.mu.Unlock()
			receipt.Status = status
		}}
		next.ServeHTTP(answered, r)
		answered.begin(http.StatusOK) // what net/http answers for a handler that did not
	})
}

// answer tells a status before it is sent.
type answer struct {
	http.ResponseWriter
	begun func(status int) // nil once it was called
}

func (a *answer) begin(status int) {
	if a.begun != nil && status >= 200 { // 1xx are not the answer yet
		a.begun(status)
		a.begun = nil
	}
}

func (a *answer) WriteHeader(status int) {
	a.begin(status)
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush, and set deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
