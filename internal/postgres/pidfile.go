package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const pollInterval = 20 * time.Millisecond

// holder is what postmaster.pid says of the server that holds a data folder.
// https://www.postgresql.org/docs/current/storage-file-layout.html
type holder struct {
	pid    int // negative for a single-user server
	port   int
	status string // starting, ready, stopping; empty while the file is being written
}

func (f folder) pidFile() string { return filepath.Join(f.data(), "postmaster.pid") }

// holder reads postmaster.pid. It returns the zero holder if there is none.
func (f folder) holder() (holder, error) {
	text, err := os.ReadFile(f.pidFile())
	if errors.Is(err, fs.ErrNotExist) {
		return holder{}, nil
	}
	if err != nil {
		return holder{}, fmt.Errorf("reading which server holds the data: %w", err)
	}
	return parseHolder(string(text)), nil
}

func parseHolder(text string) holder {
	lines := strings.Split(text, "\n")
	line := func(i int) string {
		if i >= len(lines) {
			return ""
		}
		return strings.TrimSpace(lines[i])
	}
	var h holder
	h.pid, _ = strconv.Atoi(line(0)) // 0, nobody, if there is no number
	h.port, _ = strconv.Atoi(line(3))
	h.status = line(7)
	return h
}

// serving waits until it is clear whether a server holds the data: it returns one that answers, or the zero holder.
// A server that is starting or stopping is waited for.
func (f folder) serving(ctx context.Context) (holder, error) {
	for {
		h, err := f.holder()
		if err != nil {
			return holder{}, err
		}
		if h.pid <= 0 || !serves(h.pid, f.data()) {
			return holder{}, f.forget(h)
		}
		if h.status == "ready" && probe(ctx, h.port) == nil {
			return h, nil
		}
		if err := wait(ctx, pollInterval); err != nil {
			return holder{}, fmt.Errorf("waiting for the PostgreSQL server (process %d) that holds %s: %w", h.pid, f.data(), err)
		}
	}
}

// forget removes a postmaster.pid that a crashed server left and that would keep the next one from starting: because it
// is empty, or because its process id now belongs to some other program. With any other, the server itself knows how to
// go on.
func (f folder) forget(h holder) error {
	if h.pid < 0 || h.pid > 0 && !alive(h.pid) {
		return nil
	}
	if err := os.Remove(f.pidFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing what a crashed server left: %w", err)
	}
	return nil
}

func alive(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = process.Release() }()
	err = process.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, fs.ErrPermission)
}

// wait pauses between two looks at something that cannot be waited for otherwise.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
