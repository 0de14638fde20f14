package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"time"
)

// measureIdle counts what processes that have nothing to do ask the database.
func measureIdle(ctx context.Context, e *env) ([]figure, error) {
	window := 30 * time.Second
	if e.short {
		window = 10 * time.Second
	}
	to, err := e.sink()
	if err != nil {
		return nil, err
	}
	c := configuration(endpoint(to.url))
	database, err := e.migrated(ctx)
	if err != nil {
		return nil, err
	}
	counted := func(start func(url string) error) (float64, error) {
		p, err := e.countQueries(database)
		if err != nil {
			return 0, err
		}
		if err := start(p.url); err != nil {
			return 0, err
		}
		// What belongs to the start is not counted.
		if err := sleep(ctx, 3*time.Second); err != nil {
			return 0, err
		}
		before := p.queries.Load()
		if err := sleep(ctx, window); err != nil {
			return 0, err
		}
		return float64(p.queries.Load()-before) / window.Seconds(), nil
	}
	worker := newFigure("queries of an idle worker", "/s", atMost(2, 1))
	rate, err := counted(func(url string) error {
		_, err := e.worker(ctx, url, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	worker.Product = append(worker.Product, rate)
	ingress := newFigure("queries of an idle ingress", "/s", atMost(0, 0))
	if rate, err = counted(func(url string) error {
		_, err := e.ingress(ctx, url, c)
		return err
	}); err != nil {
		return nil, err
	}
	ingress.Product = append(ingress.Product, rate)
	worker.Note = fmt.Sprintf("in %s", window)
	return []figure{worker, ingress}, nil
}

// queryCounter stands between a process and its database.
type queryCounter struct {
	url     string
	queries atomic.Int64
}

// countQueries starts a counter that ends with the row.
func (e *env) countQueries(database string) (*queryCounter, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	server := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e.onEnd(func() { _ = l.Close() })
	u.Host = l.Addr().String()
	c := &queryCounter{url: u.String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go c.pass(client, server)
		}
	}()
	return c, nil
}

// pass passes a connection on, which ends when either side does.
func (c *queryCounter) pass(client net.Conn, address string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_ = c.forward(server, client)
}

// forward passes a client's messages on and counts those that have the server
// carry something out. The first message has no type.
func (c *queryCounter) forward(server io.Writer, client io.Reader) error {
	for first := true; ; first = false {
		head := make([]byte, 5)
		if first {
			head = head[:4]
		}
		if _, err := io.ReadFull(client, head); err != nil {
			return err
		}
		length := binary.BigEndian.Uint32(head[len(head)-4:])
		if length < 4 {
			return errors.New("no message of PostgreSQL's")
		}
		if !first && (head[0] == 'Q' || head[0] == 'E') { // Query, Execute
			c.queries.Add(1)
		}
		if _, err := server.Write(head); err != nil {
			return err
		}
		if _, err := io.CopyN(server, client, int64(length)-4); err != nil {
			return err
		}
	}
}
