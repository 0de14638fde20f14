package worker

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync"
	"testing"

	"github.com/ackrail/ackrail/internal/testenv"
)

// wire reads along what is said to a database, and remembers every statement
// that was executed.
type wire struct {
	t     testing.TB
	proxy *testenv.Proxy

	mu       sync.Mutex
	conns    map[int]*wireConn
	executed []string
}

// wireConn is what one connection said that is not read yet.
type wireConn struct {
	rest    []byte
	started bool
	parsed  map[string]string // statements by name
	bound   string
}

func newWire(t testing.TB, url string) *wire {
	t.Helper()
	w := &wire{t: t, proxy: testenv.NewProxy(t, url), conns: map[int]*wireConn{}}
	w.proxy.Hook(func(c testenv.Chunk) testenv.Action {
		if c.Direction == testenv.ToServer {
			w.read(c)
		}
		return testenv.Forward
	})
	return w
}

// url is the database's URL by way of the wire, without encryption.
func (w *wire) url() string { return with(w.t, w.proxy.URL(), "sslmode", "disable") }

func (w *wire) read(chunk testenv.Chunk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.conns[chunk.Conn]
	if c == nil {
		c = &wireConn{parsed: map[string]string{}}
		w.conns[chunk.Conn] = c
	}
	c.rest = append(c.rest, chunk.Data...)
	for {
		typ, body, ok := c.next()
		if !ok {
			return
		}
		switch typ {
		case 'P': // Parse: the statement's name, the statement
			texts := bytes.SplitN(body, []byte{0}, 3)
			c.parsed[string(texts[0])] = string(texts[1])
		case 'B': // Bind: the portal's name, the statement's
			c.bound = c.parsed[string(bytes.SplitN(body, []byte{0}, 3)[1])]
		case 'E': // Execute
			w.executed = append(w.executed, c.bound)
		case 'Q': // Query
			w.executed = append(w.executed, string(bytes.TrimRight(body, "\x00")))
		}
	}
}

// next takes one message: a type and a length with what follows it. The first
// one of a connection has no type.
func (c *wireConn) next() (typ byte, body []byte, ok bool) {
	head := 5
	if !c.started {
		head = 4
	}
	if len(c.rest) < head {
		return 0, nil, false
	}
	size := head - 4 + int(binary.BigEndian.Uint32(c.rest[head-4:]))
	if len(c.rest) < size {
		return 0, nil, false
	}
	if c.started {
		typ = c.rest[0]
	}
	c.started = true
	body, c.rest = c.rest[head:size], c.rest[size:]
	return typ, body, true
}

// count returns how many statements were executed that contain a text.
func (w *wire) count(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, statement := range w.executed {
		if strings.Contains(statement, text) {
			n++
		}
	}
	return n
}
