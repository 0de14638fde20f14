package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// runMainEnv makes the test binary behave as the product, so that tests run
// real processes of the code that is tested, race detector included.
const runMainEnv = "ACKRAIL_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMainEnv) != "" {
		os.Exit(Main())
	}
	testenv.Main(m)
}

// command prepares a process of the product. It dies with the test process.
func command(t testing.TB, args ...string) *exec.Cmd {
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

// finished is how a command that ran to its end came out.
type finished struct {
	stdout, stderr string
	code           int
}

// runCommand runs a command to its end, a minute at most.
func runCommand(t testing.TB, stdin string, args ...string) finished {
	t.Helper()
	cmd := command(t, args...)
	return runCmd(t, cmd, stdin)
}

func runCmd(t testing.TB, cmd *exec.Cmd, stdin string) finished {
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
	return finished{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// process is a product process that runs until it is told to stop.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	output *lockedBuffer
	ended  chan struct{}
}

// lockedBuffer is what a process has printed so far, on both its outputs.
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

// start starts a product process. It is killed when the test ends; what it
// printed is shown if the test failed.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	return startCmd(t, command(t, args...))
}

func startCmd(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, output: &lockedBuffer{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", strings.Join(cmd.Args[1:], " "), p.output)
		}
	})
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signalling %v: %v", s, err)
	}
}

// kill ends the process with SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// stop asks the process to end and returns its exit code.
func (p *process) stop() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.t.Error("the process did not end within a minute of SIGTERM")
		p.kill()
	}
	return p.cmd.ProcessState.ExitCode()
}

// running reports whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// rig is a pipeline whose processes a test starts, kills and replaces.
type rig struct {
	t    testing.TB
	dir  string
	url  string
	file string
}

// newRig migrates a database and writes a configuration with its secrets, by
// file name.
func newRig(t testing.TB, url string, secrets map[string]string, endpoints ...pipeline.Endpoint) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), url: url}
	if err := store.Migrate(context.Background(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(pipeline.Config{Version: pipeline.Version, Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	r.file = filepath.Join(r.dir, "pipeline.json")
	if err := os.WriteFile(r.file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, secret := range secrets {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// pod is an ingress or worker process with the addresses that it answers on.
type pod struct {
	*process
	url, opsURL string
}

// ingress starts an ingress on a port (0: any) and waits until it answers. A
// URL other than the rig's may lead through a proxy.
func (r *rig) ingress(port int, url string) *pod {
	r.t.Helper()
	if port == 0 {
		port = freePort(r.t)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p := r.pod(url, "ingress", "--listen", address, "--drain-delay", "0s")
	p.url = "http://" + address
	return p
}

// worker starts a worker and waits until it is ready.
func (r *rig) worker(url string) *pod {
	r.t.Helper()
	return r.pod(url, "worker")
}

func (r *rig) pod(url, role string, args ...string) *pod {
	r.t.Helper()
	ops := fmt.Sprintf("127.0.0.1:%d", freePort(r.t))
	cmd := command(r.t, append([]string{role, "--config", r.file, "--secrets-dir", r.dir, "--ops-listen", ops, "--log-level", "warn"}, args...)...)
	cmd.Env = append(cmd.Env, databaseEnv+"="+url)
	p := &pod{process: startCmd(r.t, cmd), opsURL: "http://" + ops}
	testenv.Eventually(r.t, 30*time.Second, func() error {
		if !p.running() {
			return errors.New("it ended")
		}
		return p.ready()
	})
	return p
}

func (p *pod) ready() error {
	response, err := http.Get(p.opsURL + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// metric returns the value of a series, such as
// `ackrail_fenced_total{write="done"}`.
func (p *pod) metric(series string) (value float64, err error) {
	response, err := http.Get(p.opsURL + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, series+" "); found {
			_, err := fmt.Sscan(rest, &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("no series %s", series)
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := postgres.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
