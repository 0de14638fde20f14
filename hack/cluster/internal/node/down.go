package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ackrail/ackrail/hack/cluster/internal/progress"
)

// Down removes the cluster, and what is left of one that has crashed. It fails
// if anything remains.
func (l Layout) Down(ctx context.Context, report *progress.Reporter) error {
	if err := l.Available(); err != nil {
		return err
	}
	r, err := readRecord()
	if err != nil {
		return err
	}
	switch left := l.leftovers(); {
	case r != nil && r.Process.alive():
		report.Say("Stopping the cluster")
		if err := r.Process.kill(ctx); err != nil {
			return err
		}
	case len(left) > 0:
		report.Say("Removing what is left of a cluster: %s", strings.Join(left, ", "))
	default:
		report.Say("No cluster runs")
		return nil
	}
	if err := l.cleanAll(ctx); err != nil {
		return err
	}
	report.Say("The cluster is gone")
	return nil
}

// cleanAll is clean, again for a while if it fails: what the kernel or another
// program held a moment ago may be free now.
func (l Layout) cleanAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var last error
	if err := poll(ctx, func() bool {
		last = l.clean()
		return last == nil
	}); err != nil {
		return last
	}
	return nil
}

// kill ends the process and, as it is the first of its namespace, all others
// there. The kernel lets it go only after them.
func (p process) kill(ctx context.Context) error {
	// A descriptor of the process cannot come to mean another one.
	found, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	if !p.alive() {
		return nil
	}
	if err := found.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing process %d: %w", p.PID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := poll(ctx, func() bool { return !p.alive() }); err != nil {
		return fmt.Errorf("process %d does not end: %w", p.PID, err)
	}
	return nil
}

func poll(ctx context.Context, done func() bool) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}

// clean removes everything of a cluster whose processes have ended, and
// returns an error that lists what remains.
func (l Layout) clean() error {
	r, err := readRecord()
	if err != nil {
		return err
	}
	errs := []error{disconnect(), removeCgroups()}
	runs := []string{l.Run}
	if r != nil {
		runs = append(runs, r.Run)
		if boot, err := bootID(); err == nil && r.Process.Boot == boot {
			errs = append(errs, restoreSettings(r.Settings))
		}
		for _, dir := range r.Created {
			// Not if somebody else has put something into it.
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
				errs = append(errs, err)
			}
		}
	}
	for _, dir := range append(runs, volatile) {
		errs = append(errs, os.RemoveAll(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if left := l.leftovers(); len(left) > 0 {
		return fmt.Errorf("the cluster has left behind: %s", strings.Join(left, ", "))
	}
	return nil
}

// leftovers lists what a cluster has, or has left, on this machine.
func (l Layout) leftovers() []string {
	var left []string
	left = append(left, l.processes()...)
	left = append(left, l.mounts()...)
	if interfaceExists(bridge) {
		left = append(left, "the interface "+bridge)
	}
	for _, table := range proxyTables() {
		left = append(left, "the nftables table "+table)
	}
	for _, rule := range leftRules() {
		left = append(left, "the firewall rule "+rule)
	}
	if dirs := cgroups(); len(dirs) > 0 {
		left = append(left, "the control groups "+strings.Join(dirs, " "))
	}
	for _, dir := range []string{l.Run, volatile} {
		if _, err := os.Stat(dir); err == nil {
			left = append(left, "the folder "+dir)
		}
	}
	return left
}

// servers are the programs whose processes are the cluster's if their arguments
// name its folders. Others do so as well: kubectl, a shell, an editor.
var servers = []string{"kube", "containerd", "containerd-shim-runc-v2", "cluster"}

// processes lists those of the cluster's processes that can be told from
// others; all others end with them.
func (l Layout) processes() []string {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil
	}
	var found []string
	for _, link := range links {
		dir := filepath.Dir(link)
		exe, err := os.Readlink(link)
		if err != nil {
			continue // a kernel thread, or gone
		}
		program := strings.TrimSuffix(filepath.Base(exe), " (deleted)")
		arguments, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !slices.Contains(servers, program) || strings.HasPrefix(string(arguments), "kubectl\x00") {
			continue
		}
		text := strings.ReplaceAll(string(arguments), "\x00", " ") + " "
		if strings.Contains(text, l.Run+"/") || strings.Contains(text, l.Run+" ") || strings.Contains(text, volatile+"/") {
			found = append(found, fmt.Sprintf("process %s (%s)", filepath.Base(dir), program))
		}
	}
	return found
}

func (l Layout) mounts() []string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	var found []string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			dir := fields[1] + "/"
			if strings.HasPrefix(dir, l.Run+"/") || strings.HasPrefix(dir, volatile+"/") {
				found = append(found, "the mount "+fields[1])
			}
		}
	}
	return found
}

// cgroups returns the control groups that containerd makes for pods, of either
// version, unless they hold processes: those are of another Kubernetes, since
// all of this cluster's have ended.
func cgroups() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io"} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, dir := range dirs {
			if !populated(dir) {
				found = append(found, dir)
			}
		}
	}
	return found
}

// populated says whether a control group, or one in it, holds a process.
func populated(group string) bool {
	root, err := os.OpenRoot(group)
	if err != nil {
		return false // what is gone holds nothing
	}
	defer root.Close()
	found := false
	_ = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "cgroup.procs" {
			processes, readErr := root.ReadFile(path)
			found = found || readErr == nil && len(processes) > 0
		}
		return nil
	})
	return found
}

// removeCgroups removes the pods' control groups. The kernel may keep a group
// for a moment after its last process has ended.
func removeCgroups() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var last error
	err := poll(ctx, func() bool {
		last = nil
		for _, group := range cgroups() {
			last = errors.Join(last, removeGroup(group))
		}
		return last == nil
	})
	if err != nil {
		return last
	}
	return nil
}

// removeGroup removes a group and those in it. Their files go with them.
func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeGroup(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return syscall.Rmdir(dir)
}
