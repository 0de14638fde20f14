package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ackrail/ackrail/internal/postgres/child"
)

const (
	// startLimit bounds a start whose context has no earlier deadline. It leaves room for crash recovery.
	startLimit = 2 * time.Minute

	retryInterval = 100 * time.Millisecond
	watchInterval = 250 * time.Millisecond
)

// instance is the server from one start to its end.
type instance struct {
	port     int
	password string
	process  *child.Process // nil if another process started the server
	asked    atomic.Bool    // Stop or Kill was called, so its end is no surprise
	done     chan struct{}
	err      error         // set before done is closed
	release  chan struct{} // ends the watch over a server that another process started
}

func (i *instance) running() bool {
	select {
	case <-i.done:
		return false
	default:
		return true
	}
}

// launch adopts the server that holds the folder or starts one, creating the data if there is none. Port 0 means any.
func (s *Server) launch(ctx context.Context, port int) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	unlock, err := lock(ctx, s.folder.lock())
	if err != nil {
		return nil, err
	}
	defer unlock()
	s.folder.sweep()

	held, err := s.folder.serving(ctx)
	if err != nil {
		return nil, err
	}
	if held.pid != 0 {
		return s.adopt(held)
	}
	if port != 0 {
		if err := portFree(port); err != nil {
			return nil, fmt.Errorf("the port %d for PostgreSQL cannot be used, choose another: %w", port, err)
		}
	}
	major, err := s.folder.written()
	if err != nil {
		return nil, err
	}
	bin, err := find(ctx, major)
	if err != nil {
		return nil, err
	}
	as, err := s.folder.account()
	if err != nil {
		return nil, err
	}
	for _, path := range []string{string(s.folder), bin.folder} {
		if err := as.Reach(path); err != nil {
			return nil, err
		}
	}
	if major == 0 {
		s.logf("Creating a database in %s", s.folder)
		if err := s.folder.create(ctx, bin, as, s.opts.Settings["fsync"] != "off"); err != nil {
			return nil, err
		}
	}
	return s.start(ctx, port, bin, as)
}

// adopt makes a handle for a server that another process started and will end.
func (s *Server) adopt(held holder) (*instance, error) {
	password, err := s.folder.readPassword()
	if err != nil {
		return nil, err
	}
	s.logf("Using the PostgreSQL server that already runs in %s (process %d, port %d)", s.folder, held.pid, held.port)
	i := &instance{port: held.port, password: password, done: make(chan struct{}), release: make(chan struct{})}
	go func() {
		defer close(i.done)
		ticker := time.NewTicker(watchInterval)
		defer ticker.Stop()
		for {
			select {
			case <-i.release:
				return
			case <-ticker.C:
				if !serves(held.pid, s.folder.data()) {
					i.err = fmt.Errorf("the PostgreSQL server that another process ran in %s has ended", s.folder)
					return
				}
			}
		}
	}()
	return i, nil
}

// start starts our own server, again and again while what stands in the way is passing.
func (s *Server) start(ctx context.Context, wanted int, bin binaries, as *child.Account) (*instance, error) {
	password, err := s.folder.readPassword()
	if err != nil {
		return nil, err
	}
	for {
		port, err := s.choosePort(wanted)
		if err != nil {
			return nil, err
		}
		s.logf("Starting PostgreSQL %s on %s", bin.version, address(port))
		i, err := s.startOn(ctx, port, bin, as)
		switch {
		case err == nil:
			i.password = password
			return i, s.folder.writePort(port)
		case errors.Is(err, errPortTaken) && wanted == 0:
		case errors.Is(err, errStillDying):
		default:
			return nil, err
		}
		if wait(ctx, retryInterval) != nil {
			return nil, err
		}
	}
}

// choosePort returns the port wanted, else the one of the last time if it is free, else any.
func (s *Server) choosePort(wanted int) (int, error) {
	if wanted != 0 {
		return wanted, nil
	}
	if port := s.folder.readPort(); port != 0 && portFree(port) == nil {
		return port, nil
	}
	return FreePort()
}

var (
	errPortTaken  = errors.New("its port is taken")
	errStillDying = errors.New("processes of a crashed server are still ending")
)

// passing are the causes of a failed start that go away, by what the server logs then.
var passing = map[string]error{
	"could not create any TCP/IP sockets": errPortTaken,
	"pre-existing shared memory block":    errStillDying,
}

func (s *Server) startOn(ctx context.Context, port int, bin binaries, as *child.Account) (*instance, error) {
	log, begin, err := s.folder.openLog()
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	// The server outlives this context, which bounds the start only.
	cmd := command(context.WithoutCancel(ctx), bin.path("postgres"), s.arguments(port)...)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := child.Start(cmd, as, syscall.SIGINT)
	if err != nil {
		return nil, err
	}
	if err := s.ready(ctx, process, port); err != nil {
		end(process, syscall.SIGQUIT)
		said := s.folder.said(begin)
		for text, cause := range passing {
			if strings.Contains(said, text) {
				err = cause
			}
		}
		return nil, fmt.Errorf("starting PostgreSQL: %w; it said:\n%s", err, said)
	}
	i := &instance{port: port, process: process, done: make(chan struct{})}
	go func() {
		defer close(i.done)
		<-process.Exited()
		if !i.asked.Load() {
			i.err = fmt.Errorf("PostgreSQL ended unexpectedly (%w); it said:\n%s", exitError(process), s.folder.said(begin))
		}
	}()
	return i, nil
}

// arguments puts the settings in a fixed order, which is the order of ps and of the error for a wrong one.
func (s *Server) arguments(port int) []string {
	args := []string{"-D", s.folder.data(), "-p", fmt.Sprint(port)}
	settings := []string{"listen_addresses=127.0.0.1", "unix_socket_directories="}
	for name, value := range s.opts.Settings {
		settings = append(settings, name+"="+value)
	}
	slices.Sort(settings)
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	return args
}

// ready waits until the process, and not another server that happens to have the port, accepts connections.
func (s *Server) ready(ctx context.Context, process *child.Process, port int) error {
	for {
		h, err := s.folder.holder()
		if err == nil && h.pid == process.PID() && h.status == "ready" && probe(ctx, port) == nil {
			return nil
		}
		select {
		case <-process.Exited():
			return exitError(process)
		default:
		}
		if err := wait(ctx, pollInterval); err != nil {
			return fmt.Errorf("waiting until it accepts connections: %w", err)
		}
	}
}

func exitError(process *child.Process) error {
	if err := process.Err(); err != nil {
		return err
	}
	return errors.New("exit status 0")
}
