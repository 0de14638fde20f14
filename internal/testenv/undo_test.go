package testenv_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/testenv"
)

const undoEnv = "ACKRAIL_TEST_UNDO"

// outside tells what tests have outside their folders.
func outside(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	networks, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	groups, err := exec.Command("find", "/sys/fs/cgroup", "-maxdepth", "2", "-name", "ackrail-*").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(mounts) + string(networks) + string(groups)
}

// TestKilledProcessLeavesNothingOutside runs this program once more, has it make a disk, a network and a control group,
// and kills it.
func TestKilledProcessLeavesNothingOutside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make what is to be taken back")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperIsOutside$", "-test.v")
	cmd.Env = append(os.Environ(), undoEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var names []string
	for lines := bufio.NewScanner(out); names == nil && lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "helper: "); found {
			names = strings.Fields(text)
		}
	}
	if len(names) != 3 {
		t.Fatalf("the helper has made %v", names)
	}
	for _, name := range names {
		if !strings.Contains(outside(t), name) {
			t.Errorf("the helper has not made %s", name)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 30*time.Second, func() error {
		for _, name := range names {
			if strings.Contains(outside(t), name) {
				return fmt.Errorf("%s is left over", name)
			}
		}
		return nil
	})
}

// TestHelperIsOutside is the process that TestKilledProcessLeavesNothingOutside kills.
func TestHelperIsOutside(t *testing.T) {
	if os.Getenv(undoEnv) == "" {
		return
	}
	disk, network, memory := testenv.NewDisk(t, 1), testenv.NewNetwork(t), testenv.NewMemory(t, 1<<30)
	fmt.Println("\nhelper:", disk.Dir(), network.Name(), memory.Dir())
	select {}
}
