package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/testenv"
)

const patience = 10 * time.Second

func TestMain(m *testing.M) { testenv.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var value T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatalf("%s: not within %s", what, patience)
		panic("unreachable")
	}
}

// echo is a server that answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-stopped
	})
	go func() {
		defer close(stopped)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return "tcp://" + l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func wantText(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len(want))
	if n, err := io.ReadFull(conn, buf); err != nil || string(buf) != want {
		t.Fatalf("read %q, %v, want %q", buf[:n], err, want)
	}
}

// wantSilence looks for a short while: that nothing comes has no condition to wait for.
func wantSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var buf [1]byte
	if n, err := conn.Read(buf[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %q, %v, want silence", buf[:n], err)
	}
}

// broken returns the error of a connection that is expected to break.
func broken(t *testing.T, conn net.Conn) error {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, conn)
	if err == nil {
		return io.EOF
	}
	return err
}

// fake is a testing.TB whose failure can be looked at.
type fake struct {
	testing.TB
	failed chan string
}

// failure runs fn, which is expected to fail its test, and returns the message.
func failure(t *testing.T, fn func(testing.TB)) string {
	t.Helper()
	f := &fake{TB: t, failed: make(chan string, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			switch r := recover().(type) {
			case nil, failed:
			default:
				panic(r)
			}
		}()
		fn(f)
	}()
	receive(t, "the failure", ended)
	select {
	case message := <-f.failed:
		return message
	default:
		return ""
	}
}

// failed ends a function as Fatal would end a test.
type failed struct{}

func (f *fake) Fatalf(format string, args ...any) {
	f.failed <- fmt.Sprintf(format, args...)
	panic(failed{})
}

func (f *fake) Fatal(args ...any) { f.Fatalf("%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n")) }
