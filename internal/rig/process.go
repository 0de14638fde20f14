package rig

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ackrail/ackrail/internal/testenv"
)

const (
	// runMainEnv makes the test binary behave as the product, so that tests
	// run real processes of the code that is tested, race detector included.
	runMainEnv = "ACKRAIL_RUN_MAIN"
	// databaseEnv is where the product looks for its database's URL.
	databaseEnv = "ACKRAIL_DATABASE_URL"
)

// Main runs the product's main function in processes that are to behave as the
// product, and the tests in all others, as testenv.Main does.
func Main(m *testing.M, product func() int, ignore ...goleak.Option) {
	if os.Getenv(runMainEnv) != "" {
		os.Exit(product())
	}
	testenv.Main(m, ignore...)
}

// Command prepares a process of the product. It dies with the test process, and
// knows no database unless its arguments or its environment are given one.
func Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), runMainEnv+"=1", databaseEnv+"=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Finished is how a command that ran to its end came out.
type Finished struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a command to its end, a minute at most.
func Run(t testing.TB, stdin string, args ...string) Finished {
	t.Helper()
	return RunCmd(t, Command(t, args...), stdin)
}

// RunCmd is Run for what Command prepared.
func RunCmd(t testing.TB, cmd *exec.Cmd, stdin string) Finished {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer overdue.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Finished{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// Process is a product process that runs until it is told to stop.
type Process struct {
	// T is the test that started it.
	T testing.TB

	cmd    *exec.Cmd
	output lockedBuffer
	ended  chan struct{}
}

// lockedBuffer is what a process has printed so far.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Start starts a product process. It is killed when the test ends; what it
// printed is shown if the test failed.
func Start(t testing.TB, args ...string) *Process {
	t.Helper()
	return StartCmd(t, Command(t, args...))
}

// StartCmd is Start for what Command prepared.
func StartCmd(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{T: t, cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", strings.Join(cmd.Args[1:], " "), p.Output())
		}
	})
	return p
}

// PID is the process' id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output is what the process has printed so far, on both its outputs.
func (p *Process) Output() string { return p.output.String() }

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// ExitCode is that of a process that has ended, -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal to the process, if it still runs.
func (p *Process) Signal(s syscall.Signal) {
	p.T.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.T.Errorf("signalling %v: %v", s, err)
	}
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Process) Kill() {
	p.T.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Stop asks the process to end, waits for a minute at most, and returns its
// exit code.
func (p *Process) Stop() int {
	p.T.Helper()
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.T.Error("the process did not end within a minute of SIGTERM")
		p.Kill()
	}
	return p.ExitCode()
}
