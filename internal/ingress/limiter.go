package ingress

import (
	"net"
	"net/http"
	"sync"
)

// limiter bounds how many connections are open at once: Accept waits for one
// to close. Unlike netutil.LimitListener it hands the connections out as they
// are, so that net/http can shut one direction of them; otherwise a sender
// that is still sending would meet a reset instead of its answer.
type limiter struct {
	net.Listener
	slots  chan struct{} // holds one for each open connection
	closed chan struct{}
	close  sync.Once
}

func newLimiter(l net.Listener, slots chan struct{}) *limiter {
	return &limiter{Listener: l, slots: slots, closed: make(chan struct{})}
}

// Accept returns the next connection once there is room for it.
func (l *limiter) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
	}
	return conn, err
}

// Close also ends an Accept that waits for room.
func (l *limiter) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// release is an http.Server's ConnState: it makes room when a connection has
// closed. Every connection that is accepted comes to that state once.
func release(slots chan struct{}) func(net.Conn, http.ConnState) {
	return func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			<-slots
		}
	}
}
