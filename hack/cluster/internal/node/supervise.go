package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Names of the hidden commands that the cluster's first two processes run.
const (
	InitCommand      = "init"
	SuperviseCommand = "supervise"
)

// goAhead is the file descriptor on which Init hears that it is on record.
const goAhead = 3

// start starts Init in namespaces of its own and puts it on record before it
// does anything.
func (c *Config) start(r *record) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	log, err := openLog(c.Log(SuperviseCommand))
	if err != nil {
		return errors.Join(err, write.Close())
	}
	defer func() { _ = log.Close() }()
	command := exec.Command("/proc/self/exe", InitCommand, c.Run, c.Programs)
	command.Args[0] = "ackrail-cluster"
	command.Dir = c.Run
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{read}
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Setsid: true}
	if err := command.Start(); err != nil {
		return errors.Join(fmt.Errorf("starting the cluster's first process: %w", err), write.Close())
	}
	if r.Process, err = identify(command.Process.Pid); err != nil {
		return errors.Join(err, write.Close())
	}
	if err := r.write(); err != nil {
		return errors.Join(err, write.Close())
	}
	if _, err := write.Write([]byte{1}); err != nil {
		return errors.Join(err, write.Close())
	}
	// Somebody has to take note should it end while this process waits.
	go func() { _ = command.Wait() }()
	return write.Close()
}

// Init is the first process of the cluster's process namespace: it mounts what
// the namespace needs, starts the supervisor and buries orphans, which is why
// it is a process apart. It returns when the supervisor has ended.
func Init(run, programs string) error {
	if _, err := io.ReadFull(os.NewFile(goAhead, "go ahead"), make([]byte, 1)); err != nil {
		return errors.New("the command that started the cluster ended too early")
	}
	syscall.CloseOnExec(goAhead)
	if err := mountPrivate(); err != nil {
		return err
	}
	supervisor, err := os.StartProcess("/proc/self/exe", []string{"ackrail-cluster", SuperviseCommand, run, programs}, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{nil, os.Stdout, os.Stderr},
	})
	if err != nil {
		return err
	}
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == supervisor.Pid:
			return errors.New("the supervisor has ended")
		}
	}
}

func mountPrivate() error {
	// Nothing that is mounted from here on gets out.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return os.NewSyscallError("mount /", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return os.NewSyscallError("mount /proc", err)
	}
	for _, dir := range private {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"); err != nil {
			return os.NewSyscallError("mount "+dir, err)
		}
	}
	return nil
}

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// supervisor keeps the cluster's servers running.
type supervisor struct {
	layout Layout
	log    *slog.Logger
}

// Supervise starts the servers, each when those work that it needs, and starts
// again what ends, until the process is killed.
func Supervise(run, programs string) error {
	s := &supervisor{layout: Layout{Run: run}, log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	client, err := s.layout.client()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, c := range s.layout.components(programs) {
		all.Go(func() { s.keep(client, c) })
	}
	all.Wait()
	return nil
}

// Pauses before a server is started again, shortest and longest.
const (
	shortPause = time.Second
	longPause  = 10 * time.Second
	// proven is how long a server has to run to be started quickly again.
	proven = time.Minute
)

func (s *supervisor) keep(client *client, c component) {
	pause := shortPause
	for {
		for _, needed := range c.after {
			for client.check(context.Background(), needed) != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
		began := time.Now()
		err := s.run(c)
		s.log.Error("Component ended", "component", c.name, "error", err, "after", time.Since(began), "log", s.layout.Log(c.name))
		if time.Since(began) > proven {
			pause = shortPause
		}
		time.Sleep(pause)
		pause = min(2*pause, longPause)
	}
}

// run runs a component until it ends.
func (s *supervisor) run(c component) error {
	log, err := openLog(s.layout.Log(c.name))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(c.path, c.args...)
	command.Dir = s.layout.Run
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	s.log.Info("Component started", "component", c.name, "pid", command.Process.Pid)
	return command.Wait()
}
