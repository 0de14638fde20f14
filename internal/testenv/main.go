package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/postgres/child"
)

// process is what the tests of this process share.
var process environment

type environment struct {
	mu     sync.Mutex
	active bool   // Main is running
	root   string // folder of everything below; empty until something needs it

	reaper  *child.Process
	running *os.File // the reaper's input, which ends when this process does

	shared    *postgres.Server
	sharedErr error // the server could not be started, and will not be tried again
}

// Main runs the tests, ends what they shared, and exits: with a failure also if goroutines are still running then, but
// for those that are to be ignored.
func Main(m *testing.M, ignore ...goleak.Option) {
	process.begin()
	code := m.Run()
	if err := process.end(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(ignore...); err != nil {
			fmt.Fprintln(os.Stderr, "testenv:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func (e *environment) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active = true
}

func (e *environment) end() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active = false
	var errs []error
	if e.shared != nil {
		errs = append(errs, e.shared.Stop(context.Background()))
		e.shared = nil
	}
	if e.root != "" {
		errs = append(errs, os.RemoveAll(e.root), e.running.Close())
		<-e.reaper.Gone()
		e.root = ""
	}
	return errors.Join(errs...)
}

// folder makes a folder that a server's user can reach, and that is gone when this process is.
func (e *environment) folder(name string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.folderLocked(name)
}

func (e *environment) folderLocked(name string) (string, error) {
	if err := e.prepare(); err != nil {
		return "", fmt.Errorf("making a temporary folder: %w", err)
	}
	dir, err := os.MkdirTemp(e.root, name+"-")
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w", err)
	}
	return dir, os.Chmod(dir, 0o711)
}

// reap waits until the test process is gone, then until the servers that it had are too (the system tells them to end),
// 30 s at most because a killed one leaves its postmaster.pid behind, undoes what was done outside the folder, and
// removes it.
const reap = `
cat >/dev/null
tries=0
while [ $tries -lt 300 ] && ls "$1"/*/data/postmaster.pid "$1"/*/*/data/postmaster.pid 2>/dev/null | grep -q .; do
	tries=$((tries + 1))
	sleep 0.1
done
if [ -f "$1/undo" ]; then
	sh "$1/undo" >/dev/null 2>&1
fi
rm -rf -- "$1"
`

// undo notes a command that takes something back which a test is about to do outside its folder, should this process be
// killed. After a test that took it back itself it does no harm.
func (e *environment) undo(command ...string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.prepare(); err != nil {
		return fmt.Errorf("preparing to undo: %w", err)
	}
	list, err := os.OpenFile(filepath.Join(e.root, "undo"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("preparing to undo: %w", err)
	}
	_, err = fmt.Fprintf(list, "'%s'\n", strings.Join(command, "' '"))
	return errors.Join(err, list.Close())
}

// takeBack does the same when the test ends.
func takeBack(t testing.TB, command ...string) {
	t.Helper()
	if err := process.undo(command...); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() { run(t, command...) })
}

// run runs a program of the system, which must succeed.
func run(t testing.TB, command ...string) {
	t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("testenv: %s: %v\n%s", strings.Join(command, " "), err, out)
	}
}

// needRoot skips a test that only root can run.
func needRoot(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("only root can %s", why)
	}
}

// prepare makes the root folder, with a process that removes it should this one be killed.
func (e *environment) prepare() error {
	switch {
	case !e.active:
		return errors.New("the package's TestMain must call testenv.Main")
	case e.root != "":
		return nil
	}
	root, err := os.MkdirTemp("", "ackrail-test-")
	if err != nil {
		return err
	}
	input, running, err := os.Pipe()
	if err != nil {
		return errors.Join(err, os.Remove(root))
	}
	defer func() { _ = input.Close() }()
	cmd := exec.Command("sh", "-c", reap, "reaper", root)
	cmd.Stdin = input
	const outliveParent = 0
	reaper, err := child.Start(cmd, nil, outliveParent)
	if err != nil {
		return errors.Join(err, running.Close(), os.Remove(root))
	}
	e.root, e.reaper, e.running = root, reaper, running
	return os.Chmod(root, 0o711)
}
