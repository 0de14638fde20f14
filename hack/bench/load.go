package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// load says how an ingress is to be loaded.
type load struct {
	connections int
	duration    time.Duration
	// pace is how much time each connection takes for a request; 0 for as
	// little as possible.
	pace time.Duration
	// refused counts answers with 503.
	refused *atomic.Int64
	// answered, if set, is told each answer's body, from several goroutines.
	answered func(body []byte)
}

// loaded is what came of it.
type loaded struct {
	// rate is how many requests were acknowledged with 202 per second.
	rate float64
	// latencies are sorted.
	latencies []time.Duration
}

// load sends signed requests to an ingress. It writes and reads HTTP by hand:
// the load generator shares the cores with what is measured.
func (e *env) load(ctx context.Context, address string, l load) (*loaded, error) {
	body := makeBody(e.body)
	head := requestHead(body)
	l.refused = &e.refused
	latencies := make([][]time.Duration, l.connections)
	start := time.Now()
	took, err := concurrently(l.connections, func(i int) (err error) {
		// Paced connections take turns.
		begin := start.Add(time.Duration(i) * l.pace / time.Duration(l.connections))
		latencies[i], err = l.send(ctx, address, head, body, begin)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	if len(all) == 0 {
		return nil, errors.New("no request was acknowledged")
	}
	return &loaded{rate: float64(len(all)) / took.Seconds(), latencies: all}, nil
}

// requestHead is a request up to the value of its last header, the
// idempotency key.
func requestHead(body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return fmt.Sprintf("POST /hooks/bench/github HTTP/1.1\r\nHost: bench\r\nUser-Agent: GitHub-Hookshot/1\r\nContent-Type: application/json\r\n"+
		"X-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=%x\r\nContent-Length: %d\r\nX-GitHub-Delivery: ", mac.Sum(nil), len(body))
}

// send is one connection.
func (l *load) send(ctx context.Context, address, head string, body []byte, next time.Time) ([]time.Duration, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	latencies := make([]time.Duration, 0, 1024)
	var request bytes.Buffer
	for deadline := time.Now().Add(l.duration); time.Now().Before(deadline) && ctx.Err() == nil; {
		if l.pace > 0 {
			time.Sleep(time.Until(next))
			next = next.Add(l.pace)
		}
		request.Reset()
		request.WriteString(head)
		request.WriteString(uuid.NewString())
		request.WriteString("\r\n\r\n")
		request.Write(body)
		sent := time.Now()
		if _, err := conn.Write(request.Bytes()); err != nil {
			return nil, err
		}
		status, answer, err := readAnswer(reader)
		if err != nil {
			return nil, err
		}
		switch status {
		case http.StatusAccepted:
		case http.StatusServiceUnavailable:
			// To be told, and not to be measured as an answer.
			l.refused.Add(1)
			time.Sleep(10 * time.Millisecond)
			continue
		default:
			return nil, fmt.Errorf("answered with %d: %s", status, answer)
		}
		latencies = append(latencies, time.Since(sent))
		if l.answered != nil {
			l.answered(answer)
		}
	}
	return latencies, nil
}

// readAnswer reads an answer that says how long its body is.
func readAnswer(r *bufio.Reader) (status int, body []byte, err error) {
	length := 0
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if first && len(text) >= len("HTTP/1.1 200") {
			if status, err = strconv.Atoi(text[9:12]); err != nil {
				return 0, nil, err
			}
		}
		if after, found := strings.CutPrefix(text, "Content-Length: "); found {
			if length, err = strconv.Atoi(after); err != nil {
				return 0, nil, err
			}
		}
		if text == "" {
			body = make([]byte, length)
			_, err := io.ReadFull(r, body)
			return status, body, err
		}
	}
}

// makeBody returns a JSON document of about n bytes that does not compress to
// nothing.
func makeBody(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"values":["`)
	for b.Len() < n-40 {
		b.WriteString(uuid.NewString() + `","`)
	}
	b.WriteString(`"]}`)
	return b.Bytes()
}
