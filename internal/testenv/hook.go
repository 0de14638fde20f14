package testenv

import "bytes"

// Chunk is what a Proxy read at once from one side of a connection, 32 KiB at most. A message of a protocol may come in
// several chunks, and a chunk may hold several messages.
type Chunk struct {
	Conn      int // counts the connections of the proxy, from 1
	Direction Direction
	Data      []byte // valid during the call of the hook
}

// Action is what becomes of a chunk.
type Action int

// The actions. Hold keeps the chunk, and what follows it in its direction of its connection, until Release. Cut drops
// it and resets its connection.
const (
	Forward Action = iota
	Hold
	Cut
)

// Hook has fn called with each chunk before it is forwarded, one call at a time. nil removes the hook. fn must not
// block.
func (p *Proxy) Hook(fn func(Chunk) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = fn
}

func (p *Proxy) ask(l *link, c Chunk) Action {
	p.hookMu.Lock()
	defer p.hookMu.Unlock()
	p.mu.Lock()
	hook := p.hook
	p.mu.Unlock()
	if hook == nil {
		return Forward
	}
	action := hook(c)
	if action == Hold {
		p.mu.Lock()
		l.held[c.Direction] = true
		p.mu.Unlock()
	}
	return action
}

// OnRequest sets a hook that applies the action to the first chunk that brings the marker from a client to the server:
// the server never sees all of it. The returned channel is closed when that has happened; later chunks are forwarded.
//
// Mind that a driver which prepares statements sends the text of a statement once, before its first execution; bound
// values, and "begin" and "commit", are in every execution.
func (p *Proxy) OnRequest(marker string, action Action) <-chan struct{} {
	s := search{marker: []byte(marker)}
	hit := make(chan struct{})
	done := false
	p.Hook(func(c Chunk) Action {
		if done || c.Direction != ToServer || !s.found(c) {
			return Forward
		}
		done = true
		close(hit)
		return action
	})
	return hit
}

// OnReply sets a hook that applies the action to the first chunk that the server sends after the marker went to it on
// the same connection: the server has done its work, and the client does not learn of it. The returned channel is closed
// when that has happened; later chunks are forwarded. See OnRequest for what a marker can be.
func (p *Proxy) OnReply(marker string, action Action) <-chan struct{} {
	s := search{marker: []byte(marker)}
	hit := make(chan struct{})
	conn, done := 0, false
	p.Hook(func(c Chunk) Action {
		switch {
		case done:
		case conn == 0:
			if c.Direction == ToServer && s.found(c) {
				conn = c.Conn
			}
		case c.Direction == ToClient && c.Conn == conn:
			done = true
			close(hit)
			return action
		}
		return Forward
	})
	return hit
}

// search finds a marker in the chunks of each connection, also where it is split between two.
type search struct {
	marker []byte
	tails  map[int][]byte // by connection, what a marker may have begun in
}

func (s *search) found(c Chunk) bool {
	text := append(s.tails[c.Conn], c.Data...)
	if bytes.Contains(text, s.marker) {
		return true
	}
	if s.tails == nil {
		s.tails = map[int][]byte{}
	}
	keep := min(len(text), len(s.marker)-1)
	s.tails[c.Conn] = bytes.Clone(text[len(text)-keep:])
	return false
}
