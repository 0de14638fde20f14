package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// LimitFiles lets a process have no more than a number of files and connections open, until the returned function is
// called. What it has it keeps.
func LimitFiles(t testing.TB, pid, files int) (lift func()) {
	t.Helper()
	limit := func(soft string) {
		run(t, "prlimit", "--pid", strconv.Itoa(pid), "--nofile="+soft+":")
	}
	out, err := exec.Command("prlimit", "--pid", strconv.Itoa(pid), "--nofile", "--output", "SOFT", "--noheadings").Output()
	if err != nil {
		t.Fatalf("testenv: reading the limits of a process: %v", err)
	}
	limit(strconv.Itoa(files))
	return func() { limit(strings.TrimSpace(string(out))) }
}

// OpenFiles is how many files and connections a process has.
func OpenFiles(t testing.TB, pid int) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return len(open)
}

// Memory is a control group with a limit of memory, such as a container's.
type Memory struct {
	t     testing.TB
	dir   string
	mount string // where its processes see it
	peak  string // file with the most that they ever had
}

// NewMemory makes a control group of version 2 or 1, whichever the machine has, until the test ends. Only root can;
// others skip the test.
func NewMemory(t testing.TB, bytes int64) *Memory {
	t.Helper()
	needRoot(t, "limit memory")
	name := "ackrail-" + randomHex()[:8]
	m := &Memory{t: t}
	limit := ""
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err == nil {
		m.mount, m.peak, limit = "/sys/fs/cgroup/memory", "memory.max_usage_in_bytes", "memory.limit_in_bytes"
	} else {
		m.mount, m.peak, limit = "/sys/fs/cgroup", "memory.peak", "memory.max"
		m.write(filepath.Join(m.mount, "cgroup.subtree_control"), "+memory")
	}
	m.dir = filepath.Join(m.mount, name)
	takeBack(t, "rmdir", m.dir)
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		t.Fatalf("testenv: limiting memory: %v", err)
	}
	m.write(filepath.Join(m.dir, limit), strconv.FormatInt(bytes, 10))
	return m
}

func (m *Memory) write(file, value string) {
	m.t.Helper()
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		m.t.Fatalf("testenv: limiting memory: %v", err)
	}
}

// Command changes a command that was not started yet to one that runs within the limit, under the same process id, and
// finds it where a container's processes do. It must have ended before the test does.
func (m *Memory) Command(cmd *exec.Cmd) *exec.Cmd {
	m.t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		m.t.Fatalf("testenv: %v", err)
	}
	const enter = `echo $$ >"$1/cgroup.procs" && mount --bind "$1" "$2" && shift 2 && exec "$@"`
	cmd.Args = append([]string{unshare, "--mount", "--propagation", "private", "sh", "-c", enter, "sh", m.dir, m.mount, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = unshare
	return cmd
}

// Peak is the most that the group's processes had, in bytes; 0 where the system does not count it.
func (m *Memory) Peak() int64 {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, m.peak))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	n, err2 := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err := errors.Join(err, err2); err != nil {
		m.t.Fatalf("testenv: reading the use of memory: %v", err)
	}
	return n
}
