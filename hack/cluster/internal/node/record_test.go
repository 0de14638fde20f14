package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// started returns a process that runs until it is killed.
func started(t *testing.T) (*exec.Cmd, process) {
	t.Helper()
	command := exec.Command("sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	p, err := identify(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return command, p
}

func TestAlive(t *testing.T) {
	_, p := started(t)
	if !p.alive() {
		t.Error("a running process is not alive")
	}
	recycled := p
	recycled.Start--
	if recycled.alive() {
		t.Error("a process that got the id of another one passes for it")
	}
	earlier := p
	earlier.Boot = "another"
	if earlier.alive() {
		t.Error("a process of an earlier boot is alive")
	}
	if (process{}).alive() {
		t.Error("no process is alive")
	}
}

func TestKill(t *testing.T) {
	command, p := started(t)
	recycled := p
	recycled.Start--
	if err := recycled.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !p.alive() {
		t.Fatal("killed a process that got the id of another one")
	}
	// Not waited for, it stays as a zombie, which is dead.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.kill(ctx); err != nil {
		t.Error(err)
	}
	if err := command.Wait(); err == nil {
		t.Error("the process has ended by itself")
	}
}

// What else names the folder of a cluster, such as who reads its logs, is no
// server of it.
func TestServersAreToldFromOthers(t *testing.T) {
	l := Layout{Run: t.TempDir()}
	tail, err := exec.LookPath("tail")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(tail)
	if err != nil {
		t.Fatal(err)
	}
	listed := func(program string) bool {
		t.Helper()
		command := exec.Command(program, "-f", "/dev/null", l.path("containerd.toml"))
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
		})
		pid := fmt.Sprintf("process %d ", command.Process.Pid)
		return slices.ContainsFunc(l.processes(), func(found string) bool { return strings.HasPrefix(found, pid) })
	}
	if listed(tail) {
		t.Error("who reads a file of the cluster passes for a server")
	}
	server := filepath.Join(t.TempDir(), "containerd")
	if err := os.WriteFile(server, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	if !listed(server) {
		t.Error("a server is not found")
	}
}
