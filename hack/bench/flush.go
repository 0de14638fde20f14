package main

import (
	"context"
	_ "embed" // slowflush.c
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

//go:embed slowflush/slowflush.c
var slowFlush []byte

// delayFlushes has programs that are started from now on, until restore is
// called, take longer for each flush.
func delayFlushes(ctx context.Context, d time.Duration, dir string) (restore func(), err error) {
	if d == 0 {
		return func() {}, nil
	}
	source, library := filepath.Join(dir, "slowflush.c"), filepath.Join(dir, "slowflush.so")
	if err := os.WriteFile(source, slowFlush, 0o600); err != nil {
		return nil, err
	}
	//nolint:gosec // the arguments are ours
	if out, err := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling for -flush-delay: %w: %s", err, out)
	}
	return func() { _ = errors.Join(os.Unsetenv("LD_PRELOAD"), os.Unsetenv("SLOWFLUSH_US")) },
		errors.Join(os.Setenv("LD_PRELOAD", library), os.Setenv("SLOWFLUSH_US", strconv.FormatInt(d.Microseconds(), 10)))
}

// flushTime measures how long PostgreSQL takes to flush a page: as the disk
// does, and by how much it is made slower.
func (e *env) flushTime() (time.Duration, error) {
	f, err := os.Create(filepath.Join(e.dir, "flush"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	const rounds = 200
	page := make([]byte, 8192)
	start := time.Now()
	for range rounds {
		if _, err := f.WriteAt(page, 0); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return time.Since(start)/rounds + e.flushDelay, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
