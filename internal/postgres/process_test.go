//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ackrail/ackrail/internal/postgres"
)

func TestAdoptsRunningServer(t *testing.T) {
	dir := folder(t)
	owner := start(t, postgres.Options{Dir: dir, Settings: quick()})
	guest := start(t, postgres.Options{Dir: dir, Settings: quick()})
	if owner.Adopted() || !guest.Adopted() {
		t.Fatalf("owner adopted: %t, guest adopted: %t", owner.Adopted(), guest.Adopted())
	}
	if owner.URL() != guest.URL() {
		t.Error("the URLs differ")
	}
	for name, forbidden := range map[string]func() error{
		"Kill":    guest.Kill,
		"Restart": func() error { return guest.Restart(t.Context()) },
	} {
		if err := forbidden(); !errors.Is(err, postgres.ErrAdopted) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := guest.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	query[int](t, owner.URL(), "SELECT 1")

	heir := start(t, postgres.Options{Dir: dir, Settings: quick()})
	if err := owner.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-heir.Done()
	if heir.Err() == nil {
		t.Error("no error though the server has ended")
	}
	if err := heir.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if heir.Adopted() || heir.URL() != owner.URL() {
		t.Error("the heir did not take over")
	}
	query[int](t, heir.URL(), "SELECT 1")
}

// Several processes that start at the same time end up with one server.
func TestStartsRace(t *testing.T) {
	dir := folder(t)
	type result struct {
		s   *postgres.Server
		err error
	}
	results := make(chan result)
	for range 4 {
		go func() {
			s, err := postgres.Start(t.Context(), postgres.Options{Dir: dir, Settings: quick()})
			results <- result{s, err}
		}()
	}
	var urls []string
	owners := 0
	for range 4 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		t.Cleanup(func() { _ = r.s.Stop(context.Background()) })
		urls = append(urls, r.s.URL())
		if !r.s.Adopted() {
			owners++
		}
	}
	if len(slices.Compact(urls)) != 1 || owners != 1 {
		t.Errorf("%d different URLs, %d owners", len(slices.Compact(urls)), owners)
	}
}

func TestEndsWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child that its parent has died")
	}
	dir := folder(t)
	cmd, out := startHelper(t, dir)
	eventually(t, "the helper has a server", func() bool { return out.contains("postgres://") })
	pid := postmaster(t, dir)
	if pgid, err := syscall.Getpgid(pid); err != nil || pgid != pid {
		t.Errorf("the server is in process group %d (%v), not in its own", pgid, err)
	}
	guest := start(t, postgres.Options{Dir: dir, Settings: quick()})
	if !guest.Adopted() {
		t.Fatal("not adopted")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server ends", func() bool { return !running(pid) })
	log, err := os.ReadFile(filepath.Join(dir, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "received fast shutdown request") {
		t.Errorf("no fast shutdown:\n%s", log)
	}
	<-guest.Done()
	if err := guest.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	query[int](t, guest.URL(), "SELECT 1")
}

func TestInterruptedCreation(t *testing.T) {
	dir := folder(t)
	staged := func() []string {
		paths, err := filepath.Glob(filepath.Join(dir, "init-*", "base"))
		if err != nil {
			t.Fatal(err)
		}
		return paths
	}
	cmd, _ := startHelper(t, dir)
	eventually(t, "initdb is at work", func() bool { return len(staged()) > 0 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		t.Fatal("the interrupted run had completed; the test needs to interrupt earlier")
	}
	s := start(t, postgres.Options{Dir: dir, Settings: quick()})
	query[int](t, s.URL(), "SELECT 1")
	if err := s.Restart(t.Context()); err != nil { // sweeps again what was still dying the first time
		t.Fatal(err)
	}
	if left := staged(); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	dir := folder(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := postgres.Start(ctx, postgres.Options{Dir: dir, Settings: quick(), Logf: func(format string, _ ...any) {
		if strings.HasPrefix(format, "Starting") {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	s := start(t, postgres.Options{Dir: dir, Settings: quick()})
	if s.Adopted() {
		t.Error("a server was left running")
	}
}
