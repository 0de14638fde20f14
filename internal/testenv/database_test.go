//go:build unix

package testenv_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/testenv"
)

func TestSchema(t *testing.T) {
	names := map[string]bool{}
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, testenv.Schema(t))
			schema := query[string](t, conn, "SELECT current_schema()")
			names[schema] = true
			execute(t, conn, "CREATE TABLE only_here (id int)")
			if got := query[string](t, conn, "SELECT schemaname FROM pg_tables WHERE tablename = 'only_here'"); got != schema {
				t.Errorf("the table is in %s, want %s", got, schema)
			}
			if got := query[string](t, conn, "SHOW synchronous_commit"); got != "on" {
				t.Errorf("synchronous_commit is %s", got)
			}
		})
	}
	if len(names) != 2 {
		t.Errorf("schemas: %v", names)
	}
	conn := connect(t, testenv.URL(t))
	if left := query[int](t, conn, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 't\\_%'"); left != 0 {
		t.Errorf("%d schemas are left over", left)
	}
}

func TestGivenDatabase(t *testing.T) {
	given := testenv.URL(t) + "&application_name=given"
	t.Setenv(testenv.URLEnv, given)
	if got := testenv.URL(t); got != given {
		t.Error("the given URL is not used")
	}
	conn := connect(t, testenv.Schema(t))
	if got := query[string](t, conn, "SHOW application_name"); got != "given" {
		t.Errorf("got %q: what the given URL says is lost", got)
	}
	t.Setenv(testenv.URLEnv, "host=localhost password=secret")
	if got := failure(t, func(t testing.TB) { testenv.Schema(t) }); !strings.Contains(got, testenv.URLEnv) || strings.Contains(got, "secret") {
		t.Errorf("got %q", got)
	}
}

func TestNoServerPrograms(t *testing.T) {
	t.Setenv(postgres.BinEnv, t.TempDir())
	got := failure(t, func(t testing.TB) { testenv.Server(t, nil) })
	if !strings.Contains(got, "no PostgreSQL server programs found") {
		t.Errorf("got %q", got)
	}
}

func TestServerMayBeKilled(t *testing.T) {
	var data string
	t.Run("", func(t *testing.T) {
		s := testenv.Server(t, map[string]string{"work_mem": "5MB"})
		conn := connect(t, s.URL())
		data = query[string](t, conn, "SHOW data_directory")
		execute(t, conn, "CREATE TABLE t AS SELECT 1 AS id")
		if got := query[string](t, conn, "SHOW fsync"); got != "on" {
			t.Errorf("fsync is %s", got)
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := query[int](t, connect(t, s.URL()), "SELECT id FROM t"); got != 1 {
			t.Errorf("got %d", got)
		}
		if err := s.Kill(); err != nil { // and left so
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left over: %v", data, err)
	}
}

// TestKilledProcess runs this program once more, has it start a server, and kills it: nothing may be left.
func TestKilledProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child that its parent has died")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperWaits$", "-test.v")
	cmd.Env = append(os.Environ(), helperEnv+"=1", testenv.URLEnv+"=")
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
	var dir string
	var pid int
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "helper: %d %s", &pid, &dir); err != nil {
			continue
		}
	}
	if pid == 0 {
		t.Fatal("the helper has no server")
	}
	root := filepath.Dir(filepath.Dir(dir))
	if _, err := os.Stat(root); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 30*time.Second, func() error {
		if err := syscall.Kill(pid, 0); err == nil {
			return fmt.Errorf("the server is running (process %d)", pid)
		}
		if _, err := os.Stat(root); err == nil {
			return fmt.Errorf("the folder %s is there", root)
		}
		return nil
	})
}

const helperEnv = "ACKRAIL_TEST_TESTENV"

// TestHelperWaits is the process that TestKilledProcess kills.
func TestHelperWaits(t *testing.T) {
	if os.Getenv(helperEnv) == "" {
		return
	}
	data := query[string](t, connect(t, testenv.URL(t)), "SHOW data_directory")
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _, _ := strings.Cut(string(text), "\n")
	fmt.Printf("\nhelper: %s %s\n", pid, data)
	select {}
}
