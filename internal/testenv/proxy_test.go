package testenv_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/ackrail/ackrail/internal/testenv"
)

func TestProxyForwards(t *testing.T) {
	p := testenv.NewProxy(t, echo(t))
	if want := "tcp://" + p.Addr(); p.URL() != want {
		t.Errorf("URL %s, want %s", p.URL(), want)
	}
	conn := dial(t, p.Addr())
	long := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB, many chunks
	go func() { _, _ = io.WriteString(conn, long) }()
	wantText(t, conn, long)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := broken(t, conn); !errors.Is(err, io.EOF) {
		t.Errorf("after a half-close: %v", err)
	}
}

func TestProxyFreeze(t *testing.T) {
	for name, directions := range map[string][]testenv.Direction{
		"both":      nil,
		"to server": {testenv.ToServer},
		"to client": {testenv.ToClient},
	} {
		t.Run(name, func(t *testing.T) {
			p := testenv.NewProxy(t, echo(t))
			before := dial(t, p.Addr())
			send(t, before, "a")
			wantText(t, before, "a")
			p.Freeze(directions...)
			after := dial(t, p.Addr())
			send(t, before, "b")
			send(t, after, "c")
			wantSilence(t, before)
			wantSilence(t, after)
			p.Thaw()
			wantText(t, before, "b")
			wantText(t, after, "c")
		})
	}
}

// Frozen to the client only, the server still gets what is sent.
func TestProxyFreezeIsDirected(t *testing.T) {
	sink := testenv.NewSink(t)
	p := testenv.NewProxy(t, sink.URL())
	p.Freeze(testenv.ToClient)
	conn := dial(t, p.Addr())
	send(t, conn, "GET /frozen HTTP/1.1\r\nHost: x\r\n\r\n")
	sink.WaitFor(t, patience, func(requests []testenv.Request) error {
		if len(requests) != 1 || requests[0].URI != "/frozen" {
			return errors.New("the request has not arrived")
		}
		return nil
	})
	wantSilence(t, conn)
	p.Thaw()
	wantText(t, conn, "HTTP/1.1 204")
}

func TestProxyCut(t *testing.T) {
	p := testenv.NewProxy(t, echo(t))
	conn := dial(t, p.Addr())
	send(t, conn, "a")
	wantText(t, conn, "a")
	p.Freeze() // what is frozen can be cut too
	send(t, conn, "b")
	p.Cut()
	if err := broken(t, conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
	p.Thaw()
	next := dial(t, p.Addr())
	send(t, next, "c")
	wantText(t, next, "c")
}

func TestProxyRefuse(t *testing.T) {
	p := testenv.NewProxy(t, echo(t))
	before := dial(t, p.Addr())
	send(t, before, "a")
	wantText(t, before, "a")
	p.Refuse()
	p.Refuse()
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	send(t, before, "b")
	wantText(t, before, "b")
	p.Accept()
	p.Accept()
	after := dial(t, p.Addr())
	send(t, after, "c")
	wantText(t, after, "c")
}

func TestProxyServerDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := testenv.NewProxy(t, "tcp://"+l.Addr().String())
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil {
		err = broken(t, conn)
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}

func TestProxyHook(t *testing.T) {
	p := testenv.NewProxy(t, echo(t))
	type seen struct {
		conn      int
		direction testenv.Direction
		text      string
	}
	chunks := make(chan seen, 10)
	p.Hook(func(c testenv.Chunk) testenv.Action {
		chunks <- seen{c.Conn, c.Direction, string(c.Data)}
		switch string(c.Data) {
		case "hold":
			return testenv.Hold
		case "cut":
			return testenv.Cut
		}
		return testenv.Forward
	})
	conn := dial(t, p.Addr())
	send(t, conn, "a")
	wantText(t, conn, "a")
	for _, want := range []seen{{1, testenv.ToServer, "a"}, {1, testenv.ToClient, "a"}} {
		if got := receive(t, "a chunk", chunks); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}

	send(t, conn, "hold")
	if got := receive(t, "the held chunk", chunks); got.text != "hold" {
		t.Errorf("got %v", got)
	}
	send(t, conn, "b")
	wantSilence(t, conn)
	other := dial(t, p.Addr())
	send(t, other, "c")
	wantText(t, other, "c")
	p.Hook(nil)
	p.Release()
	wantText(t, conn, "holdb")

	p.Hook(func(c testenv.Chunk) testenv.Action {
		if c.Conn == 1 {
			return testenv.Cut
		}
		return testenv.Forward
	})
	send(t, conn, "cut")
	if err := broken(t, conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
	send(t, other, "d")
	wantText(t, other, "d")
}

// A marker is found where two chunks meet.
func TestProxyMarkerAcrossChunks(t *testing.T) {
	p := testenv.NewProxy(t, echo(t))
	hit := p.OnReply("marker", testenv.Hold)
	conn := dial(t, p.Addr())
	send(t, conn, "..mar")
	wantText(t, conn, "..mar")
	send(t, conn, "ker..")
	receive(t, "the marker", hit)
	wantSilence(t, conn)
	p.Release()
	wantText(t, conn, "ker..")
}

// The two ways in which a connection can break during COMMIT, and what the client cannot tell apart.
func TestProxyCutsCommit(t *testing.T) {
	tests := map[string]struct {
		arm  func(*testenv.Proxy) <-chan struct{}
		rows int
	}{
		"before the server has it": {func(p *testenv.Proxy) <-chan struct{} { return p.OnRequest("commit", testenv.Cut) }, 0},
		"after the server did it":  {func(p *testenv.Proxy) <-chan struct{} { return p.OnReply("commit", testenv.Cut) }, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			schema := testenv.Schema(t)
			direct := connect(t, schema)
			execute(t, direct, "CREATE TABLE t (id int)")

			p := testenv.NewProxy(t, schema)
			conn := connect(t, p.URL())
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
				t.Fatal(err)
			}
			hit := tt.arm(p)
			if err := tx.Commit(t.Context()); err == nil {
				t.Error("the client believes in the commit")
			}
			receive(t, "the marker", hit)
			if got := query[int](t, direct, "SELECT count(*) FROM t"); got != tt.rows {
				t.Errorf("%d rows, want %d", got, tt.rows)
			}
			again := connect(t, p.URL())
			if got := query[int](t, again, "SELECT count(*) FROM t"); got != tt.rows {
				t.Errorf("%d rows by the proxy, want %d", got, tt.rows)
			}
		})
	}
}

// A reply can be held while the rest of the world sees that its statement is committed.
func TestProxyHoldsReply(t *testing.T) {
	schema := testenv.Schema(t)
	direct := connect(t, schema)
	execute(t, direct, "CREATE TABLE t (id text)")

	p := testenv.NewProxy(t, schema)
	conn := connect(t, p.URL())
	const insert = "INSERT INTO t VALUES ($1)"
	if _, err := conn.Prepare(t.Context(), insert, insert); err != nil {
		t.Fatal(err)
	}
	hit := p.OnReply("event-42", testenv.Hold)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), insert, "event-42")
		done <- err
	}()
	receive(t, "the marker", hit)
	if got := query[int](t, direct, "SELECT count(*) FROM t"); got != 1 {
		t.Errorf("%d rows", got)
	}
	select {
	case err := <-done:
		t.Fatalf("the client has the reply: %v", err)
	default:
	}
	p.Release()
	if err := receive(t, "the reply", done); err != nil {
		t.Error(err)
	}
}
