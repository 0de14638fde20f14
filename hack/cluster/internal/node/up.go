package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ackrail/ackrail/hack/cluster/internal/progress"
)

// deadline is how long a cluster may take to become ready. On two idle cores it
// takes some 15 seconds.
const deadline = 3 * time.Minute

// Up starts the cluster unless it runs, and waits until it is ready. What a
// cluster left that ended without Down is removed first.
func (c *Config) Up(ctx context.Context, report *progress.Reporter) error {
	if err := c.Available(); err != nil {
		return err
	}
	r, err := readRecord()
	if err != nil {
		return err
	}
	if r != nil && r.Process.alive() {
		if r.Programs != c.Programs {
			report.Say("The cluster that runs has other versions of its programs; for these, take it down first")
		}
	} else if r, err = c.create(report); err != nil {
		return err
	}
	if err := c.awaitAll(ctx, r, report); err != nil {
		return err
	}
	report.Say("The cluster is ready. KUBECONFIG=%s", c.Kubeconfig())
	return nil
}

// Available returns an error if the cluster of another folder runs on this
// machine.
func (l Layout) Available() error {
	r, err := readRecord()
	if err == nil && r != nil && r.Process.alive() && r.Run != l.Run {
		return otherCluster(r)
	}
	return err
}

func otherCluster(r *record) error {
	return fmt.Errorf("a cluster with its data in %s runs on this machine (process %d), which can run one at a time", r.Run, r.Process.PID)
}

// create makes a new cluster and starts its processes.
func (c *Config) create(report *progress.Reporter) (*record, error) {
	if left := c.leftovers(); len(left) > 0 {
		report.Say("Removing what a cluster left that was not taken down: %s", strings.Join(left, ", "))
		if err := c.clean(); err != nil {
			return nil, err
		}
	}
	report.Say("Starting a cluster in %s", c.Run)
	loadModules()
	if err := errors.Join(checkNetworks(), checkPorts()); err != nil {
		return nil, err
	}
	for _, dir := range []string{c.Run, volatile} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	r := &record{Run: c.Run, Programs: c.Programs}
	var err error
	if r.Settings, err = currentSettings(); err != nil {
		return nil, err
	}
	for _, dir := range private {
		r.Created = append(r.Created, missing(dir)...)
	}
	// On record before the first change, so that Down knows of it.
	if err := r.write(); err != nil {
		return nil, err
	}
	for _, dir := range private {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := c.write(); err != nil {
		return nil, err
	}
	if err := connect(); err != nil {
		return nil, fmt.Errorf("connecting the pods' network: %w", err)
	}
	return r, c.start(r)
}

// missing returns dir and those of its parents that do not exist, the
// innermost first.
func missing(dir string) []string {
	var dirs []string
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// awaitAll waits until everything works, and installs what runs in pods.
func (c *Config) awaitAll(ctx context.Context, r *record, report *progress.Reporter) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	w := &waiter{layout: c.Layout, process: r.Process, report: report}
	component := func(name string) func(context.Context) error {
		return func(ctx context.Context) error { return client.check(ctx, name) }
	}
	return firstError(
		func() error { return w.until(ctx, "containerd", "containerd", component("containerd")) },
		func() error { return c.once("images", func() error { return c.LoadImages(ctx, c.Images) }) },
		func() error { return w.until(ctx, "etcd", "etcd", component("etcd")) },
		func() error { return w.until(ctx, "the API server", "kube-apiserver", component("kube-apiserver")) },
		func() error { return c.once("coredns", func() error { return c.apply(ctx, "coredns.yaml") }) },
		func() error {
			return w.until(ctx, "the controller manager", "kube-controller-manager", component("kube-controller-manager"))
		},
		func() error { return w.until(ctx, "the scheduler", "kube-scheduler", component("kube-scheduler")) },
		func() error { return w.until(ctx, "kube-proxy", "kube-proxy", component("kube-proxy")) },
		func() error { return w.until(ctx, "the kubelet", "kubelet", component("kubelet")) },
		func() error { return w.until(ctx, "the node", "kubelet", client.node) },
		func() error { return w.until(ctx, "the name server", "kubelet", client.nameServer) },
	)
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// once calls f unless it has succeeded in this cluster before.
func (c *Config) once(what string, f func() error) error {
	mark := c.path("done-" + what)
	if _, err := os.Stat(mark); err == nil {
		return nil
	}
	if err := f(); err != nil {
		return fmt.Errorf("installing %s: %w", what, err)
	}
	return os.WriteFile(mark, nil, 0o600)
}

// LoadImages makes images available to pods under the names that the files,
// tars of OCI layouts, give them.
func (l Layout) LoadImages(ctx context.Context, files []string) error {
	for _, file := range files {
		load := exec.CommandContext(ctx, "ctr", "--address", l.ContainerdSocket(), "--namespace", "k8s.io", "images", "import", file)
		if out, err := load.CombinedOutput(); err != nil {
			return fmt.Errorf("importing %s: %w: %s", file, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

func (c *Config) apply(ctx context.Context, file string) error {
	apply := exec.CommandContext(ctx, filepath.Join(c.Programs, "kubectl"), "--kubeconfig", c.Kubeconfig(), "apply", "--filename", c.path(file))
	if out, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// waiter waits for parts of a cluster while its processes live.
type waiter struct {
	layout  Layout
	process process
	report  *progress.Reporter
}

// until waits until check returns nil. What says what is waited for, component
// whose log tells why it fails.
func (w *waiter) until(ctx context.Context, what, component string, check func(context.Context) error) error {
	describe := func() string { return "Waiting for " + what }
	return w.report.During(describe, func() error {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			err := check(ctx)
			if err == nil {
				return nil
			}
			if !w.process.alive() {
				return w.failed("the cluster's processes ended while waiting for "+what, SuperviseCommand)
			}
			select {
			case <-ctx.Done():
				return w.failed(fmt.Sprintf("%s is not ready: %v", what, err), component)
			case <-ticker.C:
			}
		}
	})
}

// failed returns an error that shows the end of a log.
func (w *waiter) failed(message, component string) error {
	const lines = 10
	log := w.layout.Log(component)
	content, err := os.ReadFile(log)
	if err != nil {
		return fmt.Errorf("%s (%w)", message, err)
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	end := strings.Join(all[max(0, len(all)-lines):], "\n")
	return fmt.Errorf("%s; see %s, which ends in:\n%s", message, log, end)
}
