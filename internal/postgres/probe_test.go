package postgres

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// refusal is an ErrorResponse with a severity, a code and a message.
func refusal(code string) string {
	body := "SFATAL\x00C" + code + "\x00Mno\x00\x00"
	return "E\x00\x00\x00" + string(rune(len(body)+4)) + body
}

func TestProbe(t *testing.T) {
	tests := map[string]struct{ answer, err string }{
		"asks for a password":  {answer: "R\x00\x00\x00\x08\x00\x00\x00\x0a"},
		"full, but accepting":  {answer: refusal("53300")},
		"starting or stopping": {answer: refusal(cannotConnectNow), err: "not ready"},
		"another protocol":     {answer: "HTTP/1.1 400 Bad Request\r\n\r\n", err: "not a PostgreSQL server"},
		"nothing":              {answer: "", err: "EOF"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			served := make(chan error, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					served <- err
					return
				}
				defer conn.Close()
				startup := make([]byte, len(startupMessage()))
				if _, err := conn.Read(startup); err != nil {
					served <- err
					return
				}
				_, err = conn.Write([]byte(tt.answer))
				served <- err
			}()
			err = probe(t.Context(), l.Addr().(*net.TCPAddr).Port)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if probe(t.Context(), port) == nil {
			t.Error("no error")
		}
	})
	t.Run("silence", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := probe(ctx, l.Addr().(*net.TCPAddr).Port); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestParseHolder(t *testing.T) {
	tests := map[string]struct {
		text string
		want holder
	}{
		"ready":       {"4711\n/data\n1700000000\n5433\n\n127.0.0.1\n  1234  56\nready   \n", holder{4711, 5433, "ready"}},
		"stopping":    {"4711\n/data\n1700000000\n5433\n\n127.0.0.1\n  1234  56\nstopping\n", holder{4711, 5433, "stopping"}},
		"half":        {"4711\n/data\n1700000000\n5433\n\n", holder{pid: 4711, port: 5433}},
		"single user": {"-4711\n/data\n1700000000\n5433\n\n", holder{pid: -4711, port: 5433}},
		"empty":       {"", holder{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := parseHolder(tt.text); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
