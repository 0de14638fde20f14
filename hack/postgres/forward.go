package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// forward connects whoever comes to listener with target, both of which speak
// TCP, until the listener is closed.
func forward(ctx context.Context, listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		switch {
		case err == nil:
			go join(ctx, client, target)
		case errors.Is(err, net.ErrClosed):
			return
		default: // such as too many open files
			fmt.Fprintln(os.Stderr, "postgres:", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// join passes bytes on in both directions until both have ended. The end of
// one direction is passed on, so that neither side misses the last bytes of
// the other.
func join(ctx context.Context, client net.Conn, target string) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return // the client sees a connection that ends
	}
	defer func() { _ = server.Close() }()
	ended := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(*net.TCPConn); ok && err == nil {
			_ = half.CloseWrite()
		} else {
			// Broken: nothing more can be said in either direction.
			_ = client.Close()
			_ = server.Close()
		}
		ended <- struct{}{}
	}
	go pass(server, client)
	go pass(client, server)
	<-ended
	<-ended
}
