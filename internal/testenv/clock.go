package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/postgres"
)

// Clock is the clock of a server, which a test sets.
type Clock struct {
	t    testing.TB
	file string
}

const (
	// clockFile has by how many seconds the clock is ahead.
	clockFile = "clock"

	wrapper = `#!/bin/sh
FAKETIME_TIMESTAMP_FILE='%s' FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DISABLE_SHM=1 LD_PRELOAD='%s' exec '%s' "$@"
`
)

// FakeClock restarts a server with a clock that can be set, until the test ends. It needs libfaketime, and fails the
// test without it. Durations that the server measures stay right.
func FakeClock(t testing.TB, s *postgres.Server) *Clock {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1") // fails only for a malformed pattern
	if len(found) == 0 {
		t.Fatal("testenv: libfaketime is not there: install it, for instance with 'apt-get install libfaketime'")
	}
	p := placeOf(t, s)
	dir, err := process.folder("clock")
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // Main removes the rest
	c := &Clock{t, filepath.Join(dir, clockFile)}
	c.Set(0)
	// The server is found by its folder, so one whose programs are these has the clock after each restart.
	text := fmt.Sprintf(wrapper, c.file, found[0], filepath.Join(p.bin, "postgres"))
	if err := os.WriteFile(filepath.Join(dir, "postgres"), []byte(text), 0o755); err != nil { //nolint:gosec // the server's user runs it
		t.Fatalf("testenv: %v", err)
	}
	if err := os.Symlink(filepath.Join(p.bin, "initdb"), filepath.Join(dir, "initdb")); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Setenv(postgres.BinEnv, dir)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return c
}

// Set makes the clock jump: it is ahead from now on, or behind, by whole seconds.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	text := fmt.Sprintf("%+d\n", int64(ahead/time.Second))
	// At once, so that the server never reads a half of it.
	err := os.WriteFile(c.file+".new", []byte(text), 0o644) //nolint:gosec // the server's user reads it
	if err == nil {
		err = os.Rename(c.file+".new", c.file)
	}
	if err != nil {
		c.t.Fatalf("testenv: setting a clock: %v", err)
	}
}
