package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ackrail/ackrail/internal/postgres"
)

func main() {
	dir := flag.String("dir", "", "`folder` for the server's data (required)")
	listen := flag.String("listen", "10.244.0.1:5432", "`address` that pods reach, forwarded to the server")
	urlFile := flag.String("url-file", "", "`file` to write the URL to once the database answers; it holds the password")
	connections := flag.String("max-connections", "400", "`number` of connections that the server takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *listen, *urlFile, *connections); err != nil {
		fmt.Fprintln(os.Stderr, "postgres:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, listen, urlFile, connections string) (err error) {
	// Whoever cannot be reached need not start a server.
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("-listen: %w (is the cluster up, whose bridge has this address?)", err)
	}
	defer func() { _ = listener.Close() }()
	server, err := postgres.Start(ctx, postgres.Options{
		Dir:      dir,
		Settings: map[string]string{"max_connections": connections},
		Logf:     func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if stopErr := server.Stop(stopping); err == nil {
			err = stopErr
		}
	}()
	public, err := at(server.URL(), listener.Addr())
	if err != nil {
		return err
	}
	if err := announce(public, urlFile); err != nil {
		return err
	}
	private, err := url.Parse(server.URL())
	if err != nil {
		return fmt.Errorf("reading the server's URL: %w", err)
	}
	forwarding, done := context.WithCancel(ctx)
	defer done()
	go forward(forwarding, listener, private.Host)
	select {
	case <-ctx.Done():
		return nil
	case <-server.Done():
		return fmt.Errorf("the server ended: %w", server.Err())
	}
}

// at returns a database's URL with another address.
func at(database string, address net.Addr) (string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", fmt.Errorf("reading the server's URL: %w", err)
	}
	u.Host = address.String()
	return u.String(), nil
}

// announce tells the URL: in a file, which appears whole, or on standard
// output.
func announce(database, file string) error {
	if file == "" {
		fmt.Println(database)
		return nil
	}
	scratch, err := os.CreateTemp(filepath.Dir(file), ".url-*") // readable by us only
	if err != nil {
		return fmt.Errorf("-url-file: %w", err)
	}
	defer func() { _ = os.Remove(scratch.Name()) }() // gone already after success
	_, err = fmt.Fprintln(scratch, database)
	if closeErr := scratch.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(scratch.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("-url-file: %w", err)
	}
	fmt.Println("The database answers")
	return nil
}
