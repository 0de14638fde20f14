package testenv

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// skewSource is what the standard library's package time gets in addition.
//
//go:embed skew.go.txt
var skewSource string

const (
	// nowLine is the line of time.Now that reads the clock.
	nowLine = "\tsec, nsec, mono := runtimeNow()\n"
	nowEnv  = "ACKRAIL_TEST_CLOCK" // as skew.go.txt has it
)

// Skewed is a Go program whose processes have wall clocks that a test sets.
type Skewed struct {
	t       testing.TB
	dir     string
	program string
}

// BuildSkewed builds a main package with a standard library in which time.Now, and nothing else, looks at a file for how
// wrong the clock is. A Go program reads the time without the C library, so none could be put in between. The first
// build of a package compiles all that it imports anew, which takes minutes; the compiler's cache remembers.
func BuildSkewed(t testing.TB, pkg string) *Skewed {
	t.Helper()
	dir, err := process.folder("skewed")
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // Main removes the rest
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("testenv: finding the standard library: %v", err)
	}
	lib := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(lib, "time.go"))
	if err != nil {
		t.Fatalf("testenv: reading the standard library: %v", err)
	}
	if strings.Count(string(text), nowLine) != 1 {
		t.Fatalf("testenv: time.Now of this version of Go does not read the clock as expected")
	}
	files := map[string]string{
		"time.go": strings.Replace(string(text), nowLine, nowLine+"\tsec += clockSkew()\n", 1),
		"skew.go": skewSource,
	}
	// The compiler's cache knows the files by their content.
	replace := map[string]string{}
	for name, content := range files {
		replace[filepath.Join(lib, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatalf("testenv: %v", err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)
	}
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	s := &Skewed{t: t, dir: dir, program: filepath.Join(dir, "program")}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", s.program, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("testenv: building %s with a clock of its own: %v\n%s", pkg, err, out)
	}
	return s
}

// Clock makes a clock that is right at first.
func (s *Skewed) Clock() *ProcessClock {
	s.t.Helper()
	file, err := os.CreateTemp(s.dir, "clock-")
	if err != nil {
		s.t.Fatalf("testenv: %v", err)
	}
	_ = file.Close()
	c := &ProcessClock{s, file.Name()}
	c.Set(0)
	return c
}

// ProcessClock is the wall clock of processes of a Skewed program.
type ProcessClock struct {
	skewed *Skewed
	file   string
}

// Command changes a command that was not started yet to one of the program with this clock.
func (c *ProcessClock) Command(cmd *exec.Cmd) *exec.Cmd {
	cmd.Path, cmd.Err = c.skewed.program, nil
	cmd.Env = append(cmd.Env, nowEnv+"="+c.file)
	return cmd
}

// Set makes the clock jump: it is ahead from now on, or behind, by whole seconds.
func (c *ProcessClock) Set(ahead time.Duration) {
	c.skewed.t.Helper()
	file, err := os.OpenFile(c.file, os.O_WRONLY, 0) // which the processes share
	if err == nil {
		_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		c.skewed.t.Fatalf("testenv: setting a clock: %v", err)
	}
}
