package child

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// outputGrace is how long Run waits for grandchildren that still hold the output open after the child itself ended.
const outputGrace = 5 * time.Second

// Process is a running child.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	gone   chan struct{}
	err    error
}

// Start starts cmd as the account. On Linux the child gets onParentDeath when this process ends without having stopped
// it; elsewhere it then stays. cmd must not have SysProcAttr or ExtraFiles set, and its output must go to files.
func Start(cmd *exec.Cmd, as *Account, onParentDeath syscall.Signal) (*Process, error) {
	attr, err := attributes(as, onParentDeath)
	if err != nil {
		return nil, err
	}
	// Every process that the child forks inherits the writing end of this pipe, so its end of file means that the
	// last of them is gone, wherever they have been re-parented to.
	life, held, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	cmd.SysProcAttr = attr
	cmd.ExtraFiles = []*os.File{held}
	p := &Process{cmd: cmd, exited: make(chan struct{}), gone: make(chan struct{})}

	started := make(chan error)
	go func() {
		// The kernel sends the death signal when the thread that forked ends, not the process: keep it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = held.Close()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		_ = life.Close()
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, life)
		_ = life.Close()
		<-p.exited
		close(p.gone)
	}()
	return p, nil
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the child alone, not to what it has forked. It fails with os.ErrProcessDone once the child
// has exited.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Exited is closed when the child itself has exited.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Gone is closed when the child and everything that it forked have exited.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Err tells how the child exited, nil for status 0. It may be called after Exited is closed.
func (p *Process) Err() error { return p.err }

// Run runs cmd as the account until it ends and returns what it printed. It is killed when this process dies (on
// Linux) or when the context that cmd was made with ends.
func Run(cmd *exec.Cmd, as *Account) ([]byte, error) {
	attr, err := attributes(as, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = attr
	cmd.WaitDelay = outputGrace
	runtime.LockOSThread() // for the reason given in Start
	defer runtime.UnlockOSThread()
	return cmd.CombinedOutput()
}
