package testenv

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// maxTransit is how many chunks are on their way at most, in one direction of a connection.
const maxTransit = 64

// paceInterval is how often a direction of limited bandwidth lets bytes pass.
const paceInterval = 50 * time.Millisecond

// Speed is how fast one direction of a connection is. The zero value is as fast as the machine.
type Speed struct {
	// Latency is how long each byte is on its way; as in a long cable, others follow meanwhile.
	Latency time.Duration
	// BytesPerSecond bounds what passes in each connection; 0: no bound.
	BytesPerSecond int
}

// Slow gives the directions a speed, both if none is given. It holds for what is on its way too, so the zero Speed lets
// everything arrive at once.
func (p *Proxy) Slow(s Speed, directions ...Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(directions) == 0 {
		directions = []Direction{ToServer, ToClient}
	}
	for _, d := range directions {
		p.speed[d] = s
	}
	p.wakeLocked()
}

// parcel is a chunk on its way; with an error, there is nothing after it.
type parcel struct {
	data []byte
	sent time.Time
	err  error
}

// pump carries one direction of a connection until its end or a reset. Reading goes on while chunks are on their way.
func (p *Proxy) pump(l *link, d Direction, from, to *net.TCPConn) {
	transit := make(chan parcel, maxTransit)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { l.read(from, transit) })
	for {
		var next parcel
		select {
		case next = <-transit:
		case <-l.dead:
			return
		}
		if len(next.data) > 0 && !p.forward(l, d, to, next) {
			l.reset()
			return
		}
		switch {
		case errors.Is(next.err, io.EOF):
			if p.wait(l, d) && p.arrive(l, d, next.sent) {
				_ = to.CloseWrite() // if it is gone, its own direction notices
			}
			return
		case next.err != nil:
			l.reset()
			return
		}
	}
}

// read puts what comes into transit until there is no more.
func (l *link) read(from *net.TCPConn, transit chan<- parcel) {
	buf := make([]byte, chunkSize)
	for {
		n, err := from.Read(buf)
		select {
		case transit <- parcel{data: bytes.Clone(buf[:n]), sent: time.Now(), err: err}:
		case <-l.dead:
			return
		}
		if err != nil {
			return
		}
	}
}

// forward brings a chunk to the other side. It returns false if the connection is at its end.
func (p *Proxy) forward(l *link, d Direction, to *net.TCPConn, next parcel) bool {
	if !p.pass(l, d, next.data) || !p.arrive(l, d, next.sent) {
		return false
	}
	for rest := next.data; len(rest) > 0; {
		n, pause := p.portion(d, len(rest))
		if _, err := to.Write(rest[:n]); err != nil {
			return false
		}
		rest = rest[n:]
		if pause > 0 && !l.pause(pause) {
			return false
		}
	}
	return true
}

// arrive waits until what was sent at a time has come through.
func (p *Proxy) arrive(l *link, d Direction, sent time.Time) bool {
	for {
		p.mu.Lock()
		left, changed := time.Until(sent.Add(p.speed[d].Latency)), p.changed
		p.mu.Unlock()
		if left <= 0 {
			return true
		}
		there := time.NewTimer(left)
		select {
		case <-there.C:
		case <-changed:
			there.Stop()
		case <-l.dead:
			there.Stop()
			return false
		}
	}
}

// portion says how many of some bytes pass at once, and how long it takes until the next ones may.
func (p *Proxy) portion(d Direction, bytes int) (n int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rate := p.speed[d].BytesPerSecond
	if rate == 0 {
		return bytes, 0
	}
	n = min(bytes, max(1, rate*int(paceInterval/time.Millisecond)/1000))
	return n, time.Duration(n) * time.Second / time.Duration(rate)
}

func (l *link) pause(d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return true
	case <-l.dead:
		return false
	}
}
