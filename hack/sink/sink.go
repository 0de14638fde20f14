package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// maxBody is more than any endpoint takes.
const maxBody = 64 << 20

// record is what is known of a request when its body has arrived. Its JSON is
// what GET /requests and standard output show.
type record struct {
	Time      time.Time `json:"time"`
	Path      string    `json:"path"`
	ID        string    `json:"id"`      // webhook-id: the same for all attempts and runs of an event
	Attempt   int       `json:"attempt"` // 0 if the header is missing or no number
	Run       int       `json:"run"`
	Replay    string    `json:"replay,omitempty"`
	Type      string    `json:"type,omitempty"`
	SHA256    string    `json:"sha256"` // of the body, hex
	Bytes     int       `json:"bytes"`
	Signature string    `json:"signature"`      // unchecked, valid or invalid
	Status    int       `json:"status"`         // what it is answered, if its sender waits long enough
	Hang      bool      `json:"hang,omitempty"` // it is not answered
}

// behaviour is how requests are answered.
type behaviour struct {
	status int
	delay  time.Duration
	hang   bool
	times  int // how many requests it still holds for; 0 for ever
}

var content = behaviour{status: http.StatusNoContent}

// sink records and answers. Its methods may be called from several goroutines.
type sink struct {
	keep       int
	secretFile string
	stopping   chan struct{}
	stop       func()

	mu         sync.Mutex
	log        *json.Encoder
	records    []record
	dropped    int
	behaviours map[string]behaviour // by path; "" for those without one of their own
}

func newSink(keep int, secretFile string, log io.Writer) *sink {
	stopping := make(chan struct{})
	return &sink{
		keep:       keep,
		secretFile: secretFile,
		stopping:   stopping,
		stop:       sync.OnceFunc(func() { close(stopping) }),
		log:        json.NewEncoder(log),
		behaviours: map[string]behaviour{},
	}
}

func (s *sink) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /requests", s.list)
	mux.HandleFunc("DELETE /requests", s.forget)
	mux.HandleFunc("PUT /behaviour", s.behave)
	mux.HandleFunc("DELETE /behaviour", s.reset)
	mux.HandleFunc("POST /", s.receive)
	return mux
}

func (s *sink) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		// Not arrived, so not recorded.
		http.Error(w, "reading the body: "+err.Error(), http.StatusBadRequest)
		return
	}
	sum := sha256.Sum256(body)
	attempt, _ := strconv.Atoi(r.Header.Get("Ackrail-Attempt"))
	run, _ := strconv.Atoi(r.Header.Get("Ackrail-Run"))
	b := s.record(record{
		Time:      time.Now().UTC(),
		Path:      r.URL.Path,
		ID:        r.Header.Get("Webhook-Id"),
		Attempt:   attempt,
		Run:       run,
		Replay:    r.Header.Get("Ackrail-Replay"),
		Type:      r.Header.Get("Ackrail-Event-Type"),
		SHA256:    hex.EncodeToString(sum[:]),
		Bytes:     len(body),
		Signature: s.judge(r.Header, body),
	})
	if !s.wait(r, b) {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(b.status)
}

func (s *sink) judge(header http.Header, body []byte) string {
	switch {
	case s.secretFile == "":
		return "unchecked"
	case verify(s.secretFile, header, body, time.Now()):
		return "valid"
	}
	return "invalid"
}

// record keeps and logs a request, and returns how to answer it.
func (s *sink) record(r record) behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.next(r.Path)
	r.Status, r.Hang = b.status, b.hang
	if b.hang {
		r.Status = 0
	}
	if len(s.records) == s.keep {
		s.records = s.records[1:]
		s.dropped++
	}
	s.records = append(s.records, r)
	// Standard output may be closed; the records are still here.
	_ = s.log.Encode(r)
	return b
}

// next returns the behaviour for a request, and counts it.
func (s *sink) next(path string) behaviour {
	for _, key := range []string{path, ""} {
		b, ok := s.behaviours[key]
		if !ok {
			continue
		}
		if b.times == 1 {
			delete(s.behaviours, key)
		} else if b.times > 1 {
			left := b
			left.times--
			s.behaviours[key] = left
		}
		return b
	}
	return content
}

// wait lets the delay pass and reports whether there is still someone to answer.
func (s *sink) wait(r *http.Request, b behaviour) bool {
	if !b.hang && b.delay == 0 {
		return true
	}
	var passed <-chan time.Time
	if !b.hang {
		timer := time.NewTimer(b.delay)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-passed:
		return true
	case <-r.Context().Done():
	case <-s.stopping:
	}
	return false
}

func (s *sink) list(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	// Records are only ever appended and cut off, so this part stays as it is.
	records, dropped := s.records[:len(s.records):len(s.records)], s.dropped
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("Sink-Dropped", strconv.Itoa(dropped))
	encoder := json.NewEncoder(w)
	for _, r := range records {
		if encoder.Encode(r) != nil {
			return // The client has gone.
		}
	}
}

func (s *sink) forget(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records, s.dropped = nil, 0
	w.WriteHeader(http.StatusNoContent)
}

func (s *sink) behave(w http.ResponseWriter, r *http.Request) {
	path, b, err := parseBehaviour(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behaviours[path] = b
	w.WriteHeader(http.StatusNoContent)
}

func (s *sink) reset(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.behaviours)
	w.WriteHeader(http.StatusNoContent)
}

func parseBehaviour(query url.Values) (path string, b behaviour, err error) {
	b = content
	for key := range query {
		value := query.Get(key)
		switch key {
		case "path":
			path = value
		case "status":
			b.status, err = strconv.Atoi(value)
			if err == nil && (b.status < 200 || b.status > 599) {
				err = fmt.Errorf("must be between 200 and 599, is %d", b.status)
			}
		case "delay":
			b.delay, err = time.ParseDuration(value)
		case "hang":
			b.hang, err = strconv.ParseBool(value)
		case "times":
			b.times, err = strconv.Atoi(value)
			if err == nil && b.times < 1 {
				err = fmt.Errorf("must be at least 1, is %d", b.times)
			}
		default:
			err = fmt.Errorf("is unknown: path, status, delay, hang and times are known")
		}
		if err != nil {
			return "", behaviour{}, fmt.Errorf("%s: %w", cmp.Or(key, "empty name"), err)
		}
	}
	return path, b, nil
}
