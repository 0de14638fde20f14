package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:18099", "address to listen on")
	mode := flag.String("mode", "mode", "file that says how to behave: ok, fail or hang")
	flag.Parse()
	h := &handler{mode: *mode, processed: map[string]bool{}}
	server := &http.Server{Addr: *listen, Handler: h, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// handler prints a line for each request.
type handler struct {
	mode string

	mu        sync.Mutex
	processed map[string]bool
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "body not read", http.StatusBadRequest)
		return
	}
	id := r.Header.Get("webhook-id")
	did := "effect"
	switch h.behaviour() {
	case "fail":
		did = "failed"
		http.Error(w, "not ready for "+r.Header.Get("Ackrail-Event-Type"), http.StatusInternalServerError)
	case "hang":
		did = "hangs"
		defer func() { <-r.Context().Done() }()
	default:
		if !h.first(id) {
			did = "known already, no effect"
		}
		w.WriteHeader(http.StatusNoContent)
	}
	fmt.Printf("id=%s type=%s run=%s attempt=%s sha256=%x bytes=%d: %s\n", id, r.Header.Get("Ackrail-Event-Type"),
		r.Header.Get("Ackrail-Run"), r.Header.Get("Ackrail-Attempt"), sha256.Sum256(body), len(body), did)
}

func (h *handler) behaviour() string {
	mode, err := os.ReadFile(h.mode)
	if err != nil {
		return "ok"
	}
	return strings.TrimSpace(string(mode))
}

// first reports whether an id has not been processed before.
func (h *handler) first(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.processed[id]
	h.processed[id] = true
	return !known
}
