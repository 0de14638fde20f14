package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The URL that is announced reaches the server through the forwarded address,
// and no further once it was told to end.
func TestRun(t *testing.T) {
	// The server's user, who is another one for root, has to get to its data.
	dir, err := os.MkdirTemp("", "postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "url")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, filepath.Join(dir, "data"), "127.0.0.1:0", file, "20") }()

	url := readURL(t, file, ended)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := conn.QueryRow(t.Context(), "SHOW max_connections").Scan(&got); err != nil || got != "20" {
		t.Errorf("max_connections is %q, %v", got, err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("the database is still there")
	}
}

// readURL waits for the file with the URL.
func readURL(t *testing.T, file string, ended <-chan error) string {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case err := <-ended:
			t.Fatalf("it ended early: %v", err)
		case <-deadline:
			t.Fatal("no URL after a minute")
		case <-time.After(50 * time.Millisecond):
			if url, err := os.ReadFile(file); err == nil {
				return strings.TrimSpace(string(url))
			}
		}
	}
}

func TestRunNamesTheAddressThatIsMissing(t *testing.T) {
	err := run(t.Context(), t.TempDir(), "192.0.2.1:5432", "", "20")
	if err == nil || !strings.Contains(err.Error(), "is the cluster up") {
		t.Errorf("it ended with %v", err)
	}
}

// Whichever side says its last word first, the other's still arrives.
func TestForwardHalfClosed(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = target.Close(), listener.Close() })
	go func() {
		conn, err := target.Accept()
		if err != nil {
			return
		}
		heard, _ := io.ReadAll(conn)
		_, _ = conn.Write(bytes.ToUpper(heard))
		_ = conn.Close()
	}()
	go forward(t.Context(), listener, target.Addr().String())
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("last word")); err != nil {
		t.Fatal(err)
	}
	if err := client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = client.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := io.ReadAll(client)
	if err != nil || string(got) != "LAST WORD" {
		t.Errorf("heard %q, %v", got, err)
	}
}
