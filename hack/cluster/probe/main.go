package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: probe serve | get URL | lookup NAME | eat"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch command, argument := os.Args[1], strings.Join(os.Args[2:], " "); command {
	case "serve":
		err = serve(ctx)
	case "get":
		err = get(ctx, argument)
	case "lookup":
		err = lookup(ctx, argument)
	case "eat":
		eat()
	default:
		err = fmt.Errorf("unknown command %q", command)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "probe:", err)
	os.Exit(1)
}

// serve answers with the pod's name and the VERSION it was given.
func serve(ctx context.Context) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr:              ":8080",
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintln(w, name, os.Getenv("VERSION"))
		}),
	}
	stopped := context.WithoutCancel(ctx)
	context.AfterFunc(ctx, func() { _ = server.Shutdown(stopped) })
	fmt.Println("Serving as", name)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) //nolint:gosec // the tester names it
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request) //nolint:gosec // the tester names it
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

func lookup(ctx context.Context, name string) error {
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(addresses, " "))
	return nil
}

// eat takes memory until something stops it.
func eat() {
	var eaten [][]byte
	for {
		chunk := make([]byte, 1<<20)
		for i := range chunk {
			chunk[i] = 1
		}
		eaten = append(eaten, chunk)
		fmt.Println(len(eaten), "MiB")
	}
}
