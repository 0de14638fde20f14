package programs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ackrail/ackrail/hack/cluster/internal/progress"
)

// Store builds programs and keeps them.
type Store struct {
	// Source is the folder of the cluster's module, hack/cluster.
	Source string
	// Folder holds what was built, one folder for each thing and version.
	Folder string
	// Report hears of builds and of waiting for the builds of others.
	Report *progress.Reporter
}

// recipe says how to make one thing.
type recipe struct {
	// name is the start of the folder's name.
	name string
	// inputs are the files and folders, relative to Source, that decide about
	// the result. Of folders, the files directly in them count, not tests.
	inputs []string
	// build fills an empty folder.
	build func(ctx context.Context, dir string) error
}

// find returns the folder of what the recipe makes, and whether it exists.
func (s *Store) find(r recipe) (dir string, ok bool, err error) {
	key, err := s.key(r)
	if err != nil {
		return "", false, err
	}
	dir = filepath.Join(s.Folder, r.name+"-"+key)
	_, err = os.Stat(dir)
	return dir, err == nil, nil
}

// get returns the folder of what the recipe makes, and makes it if it is
// missing. Of several processes that ask at once, one builds.
func (s *Store) get(ctx context.Context, r recipe) (string, error) {
	dir, ok, err := s.find(r)
	if err != nil || ok {
		return dir, err
	}
	if err := os.MkdirAll(s.Folder, 0o755); err != nil {
		return "", err
	}
	unlock, err := Lock(ctx, s.Folder+".lock", s.Report, "another build")
	if err != nil {
		return "", err
	}
	defer unlock()
	if dir, ok, err := s.find(r); err != nil || ok {
		return dir, err
	}
	return dir, s.make(ctx, r, dir)
}

const temporary = ".tmp"

func (s *Store) make(ctx context.Context, r recipe, dir string) error {
	// Builds that were killed; nobody else builds while this process has the
	// lock.
	old, err := filepath.Glob(filepath.Join(s.Folder, "*"+temporary))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp(s.Folder, r.name+"-*"+temporary)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := r.build(ctx, work); err != nil {
		return fmt.Errorf("building %s: %w", r.name, err)
	}
	return os.Rename(work, dir)
}

func (s *Store) key(r recipe) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOARCH, buildFlags)
	for _, input := range r.inputs {
		files, err := filesOf(filepath.Join(s.Source, input))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintln(hash, input, filepath.Base(file), len(content))
			hash.Write(content)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}

func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && !strings.HasSuffix(entry.Name(), "_test.go") {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	return files, nil
}

// buildFlags make static programs that do not depend on where they were built.
var buildFlags = []string{"-trimpath", "-buildvcs=false"}

// compile builds one package of the module in folder module into the file out.
func (s *Store) compile(ctx context.Context, module, pkg, out, ldflags string) error {
	args := slices.Concat([]string{"build", "-v"}, buildFlags, []string{"-ldflags", strings.TrimSpace("-s -w " + ldflags), "-o", out, pkg})
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = filepath.Join(s.Source, module)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOOS=linux", "GOARCH="+runtime.GOARCH, "GOWORK=off")
	output := &counter{}
	command.Stdout, command.Stderr = output, output
	// The compilers that go starts have to stop with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second

	name := filepath.Base(out)
	describe := func() string {
		return fmt.Sprintf("Building %s: %d packages compiled", name, output.lines.Load())
	}
	err := s.Report.During(describe, command.Run)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, output.tail())
	}
	return nil
}

// counter keeps the end of a build's output and counts its lines: go build -v
// prints one for each package that it compiles.
type counter struct {
	lines atomic.Int64
	end   []byte
}

const keep = 4 << 10

func (c *counter) Write(p []byte) (int, error) {
	c.lines.Add(int64(bytes.Count(p, []byte("\n"))))
	c.end = append(c.end, p...)
	if excess := len(c.end) - keep; excess > 0 {
		c.end = c.end[excess:]
	}
	return len(p), nil
}

func (c *counter) tail() string { return strings.TrimSpace(string(c.end)) }

// Lock takes the lock that the file is, and returns what gives it back. While
// another process has it, the report says what is being waited for.
func Lock(ctx context.Context, file string, report *progress.Reporter, what string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	take := func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	if err := take(); errors.Is(err, syscall.EWOULDBLOCK) {
		waiting := func() string { return fmt.Sprintf("Waiting for %s (it has the lock %s)", what, file) }
		report.Say("%s", waiting())
		if err := report.During(waiting, func() error { return poll(ctx, take) }); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("waiting for %s: %w", what, err)
		}
	} else if err != nil {
		_ = f.Close()
		return nil, &fs.PathError{Op: "flock", Path: file, Err: err}
	}
	return func() { _ = f.Close() }, nil
}

// poll tries to take a lock until it succeeds: flock cannot be interrupted by
// a context.
func poll(ctx context.Context, take func() error) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if err := take(); !errors.Is(err, syscall.EWOULDBLOCK) {
				return err
			}
		}
	}
}
