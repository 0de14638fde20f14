package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/ackrail/ackrail/internal/postgres/child"
)

const (
	// fastLimit bounds a fast shutdown, which has to write out what is in memory.
	fastLimit = 30 * time.Second
	// immediateLimit bounds an immediate shutdown, which only has to end processes. The server itself gives them 5 s.
	immediateLimit = 10 * time.Second
	// killLimit bounds how long the server's other processes take to notice that the first one was killed.
	killLimit = 30 * time.Second
)

// ErrAdopted is returned by what only the process that started the server may do.
var ErrAdopted = errors.New("the PostgreSQL server was started by another process")

// Options say where the server lives and how it runs.
type Options struct {
	// Dir is the folder for the data, the password and the log. It is made if it is not there. When this process is
	// root, the server's user must be able to enter the folders above it.
	Dir string

	// Port on 127.0.0.1. 0 means the one of the last start in Dir if it is free, else any free one. An adopted server
	// keeps its own.
	Port int

	// Settings are configuration parameters by name. They take effect when the server is started, not when a running
	// one is adopted. With fsync=off, creating the data is quick and not durable either.
	Settings map[string]string

	// Logf, if set, is told each step that takes a while, as a sentence without a full stop.
	Logf func(format string, args ...any)
}

// Server is a handle on a private PostgreSQL server. Its methods may be called from several goroutines.
type Server struct {
	opts   Options
	folder folder

	operation sync.Mutex // one Stop, Kill or Restart at a time

	mu      sync.Mutex
	current *instance
}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// ours are the settings by which the server is kept private and found again.
var ours = []string{"port", "listen_addresses", "unix_socket_directories", "data_directory", "external_pid_file"}

// Start returns a handle on the server of opts.Dir once it accepts connections. If a server of that folder runs already
// it is adopted: it is used, but not stopped, by this process. Otherwise one is started, after its data was created if
// need be. The context, and two minutes at most, bound the start and not the server's life.
//
// On Linux the server shuts down when this process dies. It is in a process group of its own, so that a Ctrl-C at the
// terminal ends it only through this process.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Dir == "" {
		return nil, errors.New("starting PostgreSQL: no folder given")
	}
	for name := range opts.Settings {
		if !settingName.MatchString(name) {
			return nil, fmt.Errorf("starting PostgreSQL: %q is not the name of a setting", name)
		}
		for _, reserved := range ours {
			if name == reserved {
				return nil, fmt.Errorf("starting PostgreSQL: the setting %s cannot be changed", name)
			}
		}
	}
	dir, err := open(opts.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, folder: dir}
	if s.current, err = s.launch(ctx, opts.Port); err != nil {
		return nil, err
	}
	return s, nil
}

// URL is a connection string with the password of the role ackrail, an ordinary role that owns the database ackrail and
// may create roles and databases. It is a secret.
func (s *Server) URL() string {
	i := s.instance()
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(role, i.password),
		Host:     address(i.port),
		Path:     "/" + database,
		RawQuery: url.Values{"sslmode": {"disable"}}.Encode(),
	}
	return u.String()
}

// Adopted tells whether another process started the server, and will end it.
func (s *Server) Adopted() bool { return s.instance().process == nil }

// Done is closed when the server has ended, or, if it is adopted, when Stop was called. A Restart makes a new channel.
func (s *Server) Done() <-chan struct{} { return s.instance().done }

// Err tells why the server ended if neither Stop nor Kill was called. It is nil while Done is open.
func (s *Server) Err() error {
	i := s.instance()
	if i.running() {
		return nil
	}
	return i.err
}

// Stop shuts the server down and waits until it is gone: as the server likes it best while ctx lasts (30 s at most),
// then at once, at the price of a recovery at the next start. An adopted server is left alone. Stop of a server that
// has ended does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.operation.Lock()
	defer s.operation.Unlock()
	return s.stop(ctx)
}

func (s *Server) stop(ctx context.Context) error {
	i := s.instance()
	if i.process == nil {
		if i.asked.CompareAndSwap(false, true) {
			close(i.release)
		}
		<-i.done
		return nil
	}
	i.asked.Store(true)
	ctx, cancel := context.WithTimeout(ctx, fastLimit)
	defer cancel()
	if err := signal(i.process, syscall.SIGINT); err != nil {
		return fmt.Errorf("stopping PostgreSQL: %w", err)
	}
	select {
	case <-i.process.Exited():
	case <-ctx.Done():
		end(i.process, syscall.SIGQUIT)
	}
	return s.gone(i)
}

// Kill ends the server with SIGKILL, for tests of crashes, and waits until all its processes are gone, so that nothing
// stands in the way of a Restart.
func (s *Server) Kill() error {
	s.operation.Lock()
	defer s.operation.Unlock()
	i := s.instance()
	if i.process == nil {
		return fmt.Errorf("killing PostgreSQL: %w", ErrAdopted)
	}
	i.asked.Store(true)
	if err := signal(i.process, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing PostgreSQL: %w", err)
	}
	return s.gone(i)
}

// Restart brings the server back, on the same port and data: after Stop, Kill or its unexpected end, or by stopping it
// first if it runs. If meanwhile another process has started a server there, that one is adopted.
func (s *Server) Restart(ctx context.Context) error {
	s.operation.Lock()
	defer s.operation.Unlock()
	if i := s.instance(); i.process == nil && i.running() {
		return fmt.Errorf("restarting PostgreSQL: %w", ErrAdopted)
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	next, err := s.launch(ctx, s.instance().port)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.current = next
	s.mu.Unlock()
	return nil
}

// gone waits for the last process of the server. Those that were busy when the first was killed need a moment.
func (s *Server) gone(i *instance) error {
	select {
	case <-i.process.Gone():
		<-i.done
		return nil
	case <-time.After(killLimit):
		return fmt.Errorf("processes of the PostgreSQL server in %s are still there %s after the first one ended", s.folder, killLimit)
	}
}

func (s *Server) instance() *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func (s *Server) logf(format string, args ...any) {
	if s.opts.Logf != nil {
		s.opts.Logf(format, args...)
	}
}

// signal is content if the process has exited already.
func signal(process *child.Process, sig syscall.Signal) error {
	if err := process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// end sends a last polite signal, and kills the process if it is still there a moment later.
func end(process *child.Process, sig syscall.Signal) {
	_ = signal(process, sig) // if it cannot be sent, the next one will tell
	select {
	case <-process.Exited():
		return
	case <-time.After(immediateLimit):
	}
	_ = signal(process, syscall.SIGKILL)
	<-process.Exited()
}
