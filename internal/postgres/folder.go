package postgres

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ackrail/ackrail/internal/postgres/child"
)

// folder is where one private server keeps everything that it needs.
//
//	data/       the server's data, owned by the user that the server runs as
//	init-…/     data that is being made; left over when that was interrupted, and removed by the next start
//	password    of the role, readable by us only
//	port        the last one, so that the URL stays the same over restarts
//	server.log  what the server says
//	lock        held while a process creates, starts or adopts the server
type folder string

func (f folder) data() string     { return filepath.Join(string(f), "data") }
func (f folder) password() string { return filepath.Join(string(f), "password") }
func (f folder) port() string     { return filepath.Join(string(f), "port") }
func (f folder) log() string      { return filepath.Join(string(f), "server.log") }
func (f folder) lock() string     { return filepath.Join(string(f), "lock") }

const (
	role     = "ackrail"
	database = "ackrail"

	staging = "init-*"

	logLimit = 16 << 20 // bytes in server.log from which a start begins a new one
	logTail  = 4 << 10  // bytes of server.log that an error shows
)

//go:embed bootstrap.sql
var bootstrap string

// open makes the folder if it is not there and returns its path without symbolic links.
func open(path string) (folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding the folder for PostgreSQL: %w", err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", fmt.Errorf("making the folder for PostgreSQL: %w", err)
		}
		// Nobody else needs to look inside; when we are root, the server's user has to pass through.
		mode := fs.FileMode(0o700)
		if os.Geteuid() == 0 {
			mode = 0o711
		}
		if err := os.Chmod(path, mode); err != nil {
			return "", fmt.Errorf("making the folder for PostgreSQL: %w", err)
		}
	}
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("finding the folder for PostgreSQL: %w", err)
	}
	return folder(path), nil
}

// written returns the major version that wrote the data, 0 if there is none yet.
func (f folder) written() (int, error) {
	text, err := os.ReadFile(filepath.Join(f.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(f.data()); err == nil {
			return 0, fmt.Errorf("%s is there but holds no PostgreSQL data: choose another folder", f.data())
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the version of the data (was it created by another user?): %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("reading the version of the data in %s: %w", f.data(), err)
	}
	return major, nil
}

// account returns the user to run the server as, nil for our own. Data that exists stays with the user it belongs to.
func (f folder) account() (*child.Account, error) {
	as, err := child.Owner(f.data())
	if as != nil || (err != nil && !errors.Is(err, fs.ErrNotExist)) {
		return as, err
	}
	as, err = child.Unprivileged()
	if err != nil {
		return nil, err
	}
	if err := as.Own(f.data()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return as, nil
}

// create makes the data, the role and its database. All happens in a sibling folder that is renamed when it is
// complete, so that an interrupted run leaves nothing that looks like data.
func (f folder) create(ctx context.Context, bin binaries, as *child.Account, durable bool) error {
	staged, err := os.MkdirTemp(string(f), staging)
	if err != nil {
		return fmt.Errorf("creating a database: %w", err)
	}
	defer func() { _ = os.RemoveAll(staged) }() // nothing is left there after success
	if err := as.Own(staged); err != nil {
		return err
	}

	args := []string{
		"-D", staged, "-U", "postgres", "--encoding=UTF8", "--locale=C", "--data-checksums",
		"--auth-local=reject", "--auth-host=scram-sha-256",
	}
	single := []string{"--single", "-D", staged, "-j", "-c", "exit_on_error=true"}
	if !durable {
		args, single = append(args, "--no-sync"), append(single, "-F")
	}
	initdb := command(ctx, bin.path("initdb"), args...)
	if out, err := child.Run(initdb, as); err != nil {
		return fmt.Errorf("creating a database with initdb: %w\n%s", err, tail(out))
	}

	// Only hexadecimal digits, so the password needs no quoting in SQL, a URL or a configuration file.
	password := randomHex()
	server := command(ctx, bin.path("postgres"), append(single, "postgres")...)
	server.Stdin = strings.NewReader(strings.Replace(bootstrap, "{{password}}", password, 1))
	if out, err := child.Run(server, as); err != nil {
		return fmt.Errorf("creating the database role: %w\n%s", err, tail(out))
	}
	if err := os.WriteFile(f.password(), []byte(password+"\n"), 0o600); err != nil {
		return fmt.Errorf("keeping the database password: %w", err)
	}
	if err := os.Rename(staged, f.data()); err != nil {
		return fmt.Errorf("creating a database: %w", err)
	}
	return nil
}

// sweep removes what interrupted runs left. A program that is still dying there may win; then the next start sweeps.
func (f folder) sweep() {
	left, _ := filepath.Glob(filepath.Join(string(f), staging)) // fails only for a malformed pattern
	for _, path := range left {
		_ = os.RemoveAll(path)
	}
}

func (f folder) readPassword() (string, error) {
	text, err := os.ReadFile(f.password())
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the password of the database in %s is missing: bring the file password back, or remove the folder to start afresh", f)
	}
	if err != nil {
		return "", fmt.Errorf("reading the database password: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// readPort returns the port of the last start, 0 if it is not known.
func (f folder) readPort() int {
	text, err := os.ReadFile(f.port())
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return port
}

func (f folder) writePort(port int) error {
	if err := os.WriteFile(f.port(), []byte(strconv.Itoa(port)+"\n"), 0o600); err != nil {
		return fmt.Errorf("keeping the database port: %w", err)
	}
	return nil
}

// openLog opens the server's log for appending and returns where what follows will begin.
func (f folder) openLog() (*os.File, int64, error) {
	if info, err := os.Stat(f.log()); err == nil && info.Size() > logLimit {
		if err := os.Rename(f.log(), f.log()+".old"); err != nil {
			return nil, 0, fmt.Errorf("rotating the server log: %w", err)
		}
	}
	file, err := os.OpenFile(f.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("opening the server log: %w", err)
	}
	begin, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("opening the server log: %w", err), file.Close())
	}
	return file, begin, nil
}

// said returns the end of what the server logged from offset on.
func (f folder) said(offset int64) string {
	file, err := os.Open(f.log())
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }()
	if end, err := file.Seek(0, io.SeekEnd); err == nil {
		offset = max(offset, end-logTail)
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(io.LimitReader(file, logTail))
	if err != nil {
		return err.Error()
	}
	return tail(text)
}

func tail(out []byte) string {
	if len(out) > logTail {
		out = out[len(out)-logTail:]
	}
	return strings.TrimSpace(string(out))
}

// command runs one of the server's programs without the variables by which a user configures clients, in a folder
// that any account can be in, speaking English because errors are recognised by their text.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = string(filepath.Separator)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "LC_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	return cmd
}

func randomHex() string {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails: it ends the process instead
	return hex.EncodeToString(secret[:])
}
