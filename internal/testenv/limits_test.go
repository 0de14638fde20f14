package testenv_test

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/ackrail/ackrail/internal/testenv"
)

func TestLimitFiles(t *testing.T) {
	// What the shell starts has the shell's limits.
	cmd := exec.Command("sh", "-c", "while read -r line; do cat /dev/null 2>/dev/null && echo opened || echo refused; done")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(out)
	want := func(want string) {
		t.Helper()
		if _, err := io.WriteString(in, "now\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); got != want+"\n" || err != nil {
			t.Errorf("got %q, %v, want %s", got, err, want)
		}
	}
	want("opened")
	lift := testenv.LimitFiles(t, cmd.Process.Pid, testenv.OpenFiles(t, cmd.Process.Pid))
	want("refused")
	lift()
	want("opened")
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestMemory(t *testing.T) {
	const limit = 64 << 20
	m := testenv.NewMemory(t, limit)
	seen, err := m.Command(exec.Command("sh", "-c", "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; true")).Output()
	if got := strings.TrimSpace(string(seen)); got != strconv.Itoa(limit) || err != nil {
		t.Errorf("a process in the group sees the limit %q, %v", got, err)
	}
	var out bytes.Buffer
	greedy := m.Command(exec.Command("sh", "-c", "head -c 200000000 /dev/zero | tail -c 150000000 >/dev/null"))
	greedy.Stdout, greedy.Stderr = &out, &out
	if err := greedy.Run(); err == nil {
		t.Errorf("150 MB fit into 64 MiB: %s", out.String())
	}
	if peak := m.Peak(); peak < limit/2 || peak > limit {
		t.Errorf("the peak was %d bytes", peak)
	}
}
