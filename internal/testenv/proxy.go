package testenv

import (
	"net"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/postgres"
)

const (
	chunkSize   = 32 << 10 // bytes that a Chunk holds at most
	dialTimeout = 5 * time.Second
)

// Direction is which way bytes flow through a Proxy.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// Proxy is a TCP proxy that stands between a client and a server and fails as a test wants it to. Its
// methods may be called from several goroutines.
type Proxy struct {
	t    testing.TB
	url  *url.URL
	host string
	port int

	serving sync.WaitGroup // the accept loop and all links

	hookMu sync.Mutex // one call of the hook at a time; taken before mu

	mu       sync.Mutex
	target   string       // host and port
	listener net.Listener // nil while refusing
	links    map[*link]struct{}
	count    int
	frozen   [2]bool  // by Direction
	speed    [2]Speed // by Direction
	hook     func(Chunk) Action
	changed  chan struct{} // closed and replaced when something is let go on
	closed   bool
}

// link is one connection of a client with its connection to the server.
type link struct {
	id     int
	client *net.TCPConn
	server *net.TCPConn
	held   [2]bool // by Direction; guarded by Proxy.mu
	once   sync.Once
	dead   chan struct{}
}

// NewProxy starts a proxy on loopback in front of the server that a URL names, for instance of a database or a Sink. It
// is closed when the test ends. A connection to a server that is down is accepted and then reset.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return newProxy(t, "127.0.0.1", target)
}

func newProxy(t testing.TB, host, target string) *Proxy {
	t.Helper()
	u := parseURL(t, target)
	if u.Port() == "" {
		t.Fatalf("testenv: the URL of a proxy's target must name the port")
	}
	// Not a port that outgoing connections get: Accept has to find it free again.
	port, err := postgres.FreePort()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	p := &Proxy{
		t: t, url: u, host: host, port: port, target: u.Host,
		links: map[*link]struct{}{}, changed: make(chan struct{}),
	}
	t.Cleanup(p.close)
	p.Accept()
	return p
}

// Addr is the proxy's own host and port.
func (p *Proxy) Addr() string { return net.JoinHostPort(p.host, strconv.Itoa(p.port)) }

// URL is the target's URL by way of the proxy.
func (p *Proxy) URL() string {
	u := *p.url
	u.Host = p.Addr()
	return u.String()
}

// Retarget leads the connections that are made from now on to the server of another URL.
func (p *Proxy) Retarget(target string) {
	p.t.Helper()
	u := parseURL(p.t, target)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = u.Host
}

// Freeze stops forwarding in the given directions, both if none is given, as a network does that loses packets: all
// connections, also new ones, stay open and silent. A chunk on its way may still pass.
func (p *Proxy) Freeze(directions ...Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(directions) == 0 {
		p.frozen = [2]bool{true, true}
	}
	for _, d := range directions {
		p.frozen[d] = true
	}
}

// Thaw ends what Freeze did. What was sent meanwhile arrives now, except what a hook holds.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = [2]bool{}
	p.wakeLocked()
}

// Release forwards what a hook made the proxy hold. A hook must not call it.
func (p *Proxy) Release() {
	p.hookMu.Lock() // so that what a hook has just decided on is held already
	defer p.hookMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.held = [2]bool{}
	}
	p.wakeLocked()
}

func (p *Proxy) wakeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Cut resets all connections, on both sides. What was held or frozen in them is lost. New connections are served.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Refuse makes the system refuse new connections, as if no server was there. Those that exist stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuseLocked()
}

func (p *Proxy) refuseLocked() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Accept ends what Refuse did.
func (p *Proxy) Accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return
	}
	listener, err := net.Listen("tcp", p.Addr())
	if err != nil {
		p.t.Errorf("testenv: proxy: %v", err)
		return
	}
	p.listener = listener
	p.serving.Go(func() { p.accept(listener) })
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.refuseLocked()
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	p.serving.Wait()
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed by Refuse or at the end
		}
		p.serving.Go(func() { p.connect(conn.(*net.TCPConn)) })
	}
}

// connect carries one connection until both of its directions have ended.
func (p *Proxy) connect(client *net.TCPConn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	conn, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: conn.(*net.TCPConn), dead: make(chan struct{})}
	if !p.add(l) {
		l.reset()
		return
	}
	defer p.remove(l)
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(l, ToServer, l.client, l.server) })
	pumps.Go(func() { p.pump(l, ToClient, l.server, l.client) })
	pumps.Wait()
	_ = l.client.Close()
	_ = l.server.Close()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.count++
	l.id = p.count
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// pass asks the hook about a chunk and waits until it may go on. It returns false if the connection is reset.
func (p *Proxy) pass(l *link, d Direction, data []byte) bool {
	if p.ask(l, Chunk{Conn: l.id, Direction: d, Data: data}) == Cut {
		l.reset()
		return false
	}
	return p.wait(l, d)
}

func (p *Proxy) wait(l *link, d Direction) bool {
	for {
		p.mu.Lock()
		blocked, changed := p.frozen[d] || l.held[d], p.changed
		p.mu.Unlock()
		if !blocked {
			return true
		}
		select {
		case <-changed:
		case <-l.dead:
			return false
		}
	}
}

func (l *link) reset() {
	l.once.Do(func() {
		close(l.dead)
		reset(l.client)
		reset(l.server)
	})
}

// reset closes a connection with a RST instead of a FIN.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
