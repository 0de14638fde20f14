package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stopTimeout bounds how long answers under way hold up the end.
const stopTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sink:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("sink", flag.ContinueOnError)
	listen := flags.String("listen", ":8080", "`address` to listen on")
	secretFile := flags.String("secret-file", "", "`file` with the whsec_ secrets that may have signed, one a line; read for each request")
	keep := flags.Int("keep", 100_000, "how `many` of the latest records GET /requests shows")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *keep < 1 {
		return fmt.Errorf("-keep: must be at least 1, is %d", *keep)
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	return serve(ctx, l, newSink(*keep, *secretFile, os.Stdout))
}

// serve answers until ctx ends, and then what is under way.
func serve(ctx context.Context, l net.Listener, s *sink) error {
	server := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	s.stop()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return server.Shutdown(stopping)
}
