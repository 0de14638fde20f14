//go:build unix

package child

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// helperMode makes this test program start a child that lasts, and wait to be killed.
const helperMode = "ACKRAIL_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(helperMode) != "" {
		cmd := exec.Command("cat")
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout // the pipes of the test
		p, err := Start(cmd, nil, syscall.SIGKILL)
		if err != nil {
			panic(err)
		}
		<-p.Gone()
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func shell(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: not within 10 s", what)
	}
}

func TestGoneIncludesDescendants(t *testing.T) {
	hold, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	cmd := shell("exec 4<&0; cat <&4 & exit 3") // the grandchild lasts as long as its input; a shell gives it none by itself
	cmd.Stdin = hold
	p, err := Start(cmd, nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the child exits", p.Exited())
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	if err := p.Signal(syscall.SIGINT); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signalling it: %v", err)
	}
	select {
	case <-p.Gone():
		t.Error("gone, though the grandchild is there")
	default:
	}
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, "the grandchild ends", p.Gone())
}

func TestOwnProcessGroup(t *testing.T) {
	p, err := Start(exec.Command("sleep", "600"), nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if pgid, err := syscall.Getpgid(p.PID()); err != nil || pgid != p.PID() {
		t.Errorf("process group %d, %v", pgid, err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	within(t, "it ends", p.Gone())
}

func TestStartFails(t *testing.T) {
	if _, err := Start(exec.Command("/no/such/program"), nil, syscall.SIGKILL); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestRun(t *testing.T) {
	out, err := Run(shell("echo out; echo err >&2; exit 4"), nil)
	if err == nil || string(out) != "out\nerr\n" {
		t.Errorf("got %q, %v", out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(exec.CommandContext(ctx, "sleep", "600"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run a child as another user")
	}
}

func TestUnprivileged(t *testing.T) {
	as, err := Unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		if as != nil {
			t.Errorf("got %v, though not root", as)
		}
		return
	}
	out, err := Run(exec.Command("id", "-un"), as)
	if err != nil || strings.TrimSpace(string(out)) != as.Name || as.Name == "root" {
		t.Errorf("runs as %q, %v, want %s", bytes.TrimSpace(out), err, as.Name)
	}
	out, err = Run(exec.Command("id", "-G"), as)
	if err != nil || len(strings.Fields(string(out))) != 1 {
		t.Errorf("groups %q, %v", out, err)
	}
}

func TestUnprivilegedFallsBack(t *testing.T) {
	needRoot(t)
	defer func(before []string) { unprivileged = before }(unprivileged)
	unprivileged = []string{"no-such-user", "nobody"}
	if as, err := Unprivileged(); err != nil || as.Name != "nobody" {
		t.Errorf("got %v, %v", as, err)
	}
	unprivileged = []string{"no-such-user"}
	if _, err := Unprivileged(); err == nil {
		t.Error("no error")
	}
}

func TestOwn(t *testing.T) {
	needRoot(t)
	as, err := Unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	below := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if owner, err := Owner(below); err != nil || owner != nil {
		t.Errorf("before: got %v, %v", owner, err)
	}
	if err := as.Own(dir); err != nil {
		t.Fatal(err)
	}
	owner, err := Owner(below)
	if err != nil || owner == nil || *owner != *as {
		t.Errorf("after: got %v, %v", owner, err)
	}
	if _, err := Owner(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: got %v", err)
	}
}

func TestReach(t *testing.T) {
	needRoot(t)
	as, err := Unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	base := t.TempDir() // 0755 below 0700
	closed := filepath.Dir(base)
	if err := as.Reach(base); err == nil || !strings.Contains(err.Error(), "cannot enter "+closed+":") {
		t.Errorf("got %v, want %s in it", err, closed)
	}
	if err := os.Chmod(closed, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := as.Reach(base); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(base, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := as.Reach(base); err == nil {
		t.Error("reached a closed folder")
	}
	if err := as.Own(base); err != nil {
		t.Fatal(err)
	}
	if err := as.Reach(base); err != nil {
		t.Errorf("its own folder: %v", err)
	}
}

func TestNoAccount(t *testing.T) {
	var as *Account
	dir := t.TempDir()
	if err := errors.Join(as.Own(dir), as.Reach(dir)); err != nil {
		t.Error(err)
	}
}
