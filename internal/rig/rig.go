package rig

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// patience bounds what takes a moment on a quiet machine.
const patience = time.Minute

// operations asks the operations server of a process, which a stopped one
// never answers.
var operations = &http.Client{Timeout: 5 * time.Second}

// Rig is a pipeline whose processes a test starts, kills and replaces.
type Rig struct {
	// T is the test that made it.
	T testing.TB
	// Dir is the folder of the secrets, File the configuration in it.
	Dir, File string
	// URL leads to the database.
	URL string
	// Config is what File says.
	Config *pipeline.Config
}

// New migrates a database and writes a configuration with its secrets, by
// file name.
func New(t testing.TB, url string, secrets map[string]string, endpoints ...pipeline.Endpoint) *Rig {
	t.Helper()
	r := &Rig{T: t, Dir: t.TempDir(), URL: url, Config: &pipeline.Config{Version: pipeline.Version, Endpoints: endpoints}}
	if err := store.Migrate(context.Background(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	r.File = filepath.Join(r.Dir, "pipeline.json")
	r.Write()
	for name, secret := range secrets {
		if err := os.WriteFile(filepath.Join(r.Dir, name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Write writes what Config says into File, for the processes that begin from
// now on.
func (r *Rig) Write() {
	r.T.Helper()
	config, err := json.Marshal(r.Config)
	if err != nil {
		r.T.Fatal(err)
	}
	if err := os.WriteFile(r.File, config, 0o600); err != nil {
		r.T.Fatal(err)
	}
}

// Pod is an ingress or worker process with the addresses that it answers on.
type Pod struct {
	*Process
	// Role is ingress or worker.
	Role string
	// URL is where an ingress takes webhooks.
	URL string
	// OpsURL is of the operations server.
	OpsURL string
}

// Ingress starts an ingress on a port (0: any) and waits until it answers. A
// URL other than the rig's may lead through a proxy.
func (r *Rig) Ingress(port int, url string) *Pod {
	r.T.Helper()
	if port == 0 {
		port = FreePort(r.T)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p := r.Pod(url, "ingress", "--listen", address, "--drain-delay", "0s")
	p.URL = "http://" + address
	return p
}

// Worker starts a worker and waits until it is ready.
func (r *Rig) Worker(url string) *Pod {
	r.T.Helper()
	return r.Pod(url, "worker")
}

// Pod starts a process of a role with further arguments and waits until it is
// ready. An empty URL leaves the database to the arguments.
func (r *Rig) Pod(url, role string, args ...string) *Pod {
	r.T.Helper()
	return r.PodAt(Place{}, url, role, args...)
}

// Place is where a process runs. The zero value is here.
type Place struct {
	// Host is the address that its operations server listens on, 127.0.0.1
	// if empty.
	Host string
	// Command puts a command there.
	Command func(*exec.Cmd) *exec.Cmd
}

// PodAt is Pod for another place.
func (r *Rig) PodAt(place Place, url, role string, args ...string) *Pod {
	r.T.Helper()
	ops := net.JoinHostPort(cmp.Or(place.Host, "127.0.0.1"), strconv.Itoa(FreePort(r.T)))
	cmd := Command(r.T, append([]string{role, "--config", r.File, "--secrets-dir", r.Dir, "--ops-listen", ops, "--log-level", "warn"}, args...)...)
	cmd.Env = append(cmd.Env, databaseEnv+"="+url)
	if place.Command != nil {
		cmd = place.Command(cmd)
	}
	p := &Pod{Process: StartCmd(r.T, cmd), Role: role, OpsURL: "http://" + ops}
	testenv.Eventually(r.T, patience, func() error {
		if !p.Running() {
			return errors.New("it ended")
		}
		return p.Ready()
	})
	return p
}

// Ready asks the readiness probe: an error, which begins with the status if
// there was an answer, says that the process is not ready.
func (p *Pod) Ready() error {
	response, err := operations.Get(p.OpsURL + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// Unready waits until a process says that it is not ready, which it must be
// alive to say.
func (p *Pod) Unready() {
	p.T.Helper()
	testenv.Eventually(p.T, patience, func() error {
		switch err := p.Ready(); {
		case err == nil:
			return errors.New("it is ready still")
		case !strings.HasPrefix(err.Error(), "503 "):
			p.T.Fatalf("asked whether it is ready: %v", err)
		}
		return nil
	})
}

// Metric returns the value of a series, such as
// `ackrail_fenced_total{write="done"}`.
func (p *Pod) Metric(series string) (value float64, err error) {
	response, err := operations.Get(p.OpsURL + "/metrics")
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

// FreePort returns a port on loopback that nobody has and no connection gets.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := postgres.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
