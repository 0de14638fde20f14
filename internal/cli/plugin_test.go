package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ackrail/ackrail/internal/rig"
)

func TestIsPlugin(t *testing.T) {
	t.Parallel()
	for arg0, want := range map[string]bool{
		"kubectl-ackrail": true, "/usr/local/bin/kubectl-ackrail": true, "kubectl-ackrail.exe": true,
		"ackrail": false, "kubectl": false, "/opt/kubectl-ackrail/ackrail": false, "kubectl-ackrail-events": false,
	} {
		if got := isPlugin(arg0); got != want {
			t.Errorf("%s: %t", arg0, got)
		}
	}
}

// Under the other name everything is called by that name.
func TestPluginHelp(t *testing.T) {
	t.Parallel()
	bare := regexp.MustCompile(`(^|[^l]) ackrail [a-z]|(^|\n)ackrail `)
	var walk func(c *cobra.Command, args ...string)
	walk = func(c *cobra.Command, args ...string) {
		f := rig.RunCmd(t, asPlugin(t, append(args, "--help")...), "")
		if want := "Usage:\n  " + strings.Join(append([]string{"kubectl", "ackrail"}, args...), " "); f.Code != 0 || f.Stderr != "" || !strings.Contains(f.Stdout, want) {
			t.Errorf("%v --help ended with code %d, %q and said\n%s", args, f.Code, f.Stderr, f.Stdout)
		}
		if at := bare.FindString(f.Stdout); at != "" {
			t.Errorf("%v --help has %q:\n%s", args, at, f.Stdout)
		}
		for line := range strings.Lines(f.Stdout) {
			// Cobra's own last line grows with the name.
			if utf8.RuneCountInString(line) > 81 && !strings.HasPrefix(line, "Use \"") {
				t.Errorf("a line is too long for a terminal: %s", line)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub, append(args[:len(args):len(args)], sub.Name())...)
		}
	}
	walk(newRoot())
	if f := rig.RunCmd(t, asPlugin(t, "--version"), ""); f.Stdout != "kubectl ackrail version dev\n" {
		t.Errorf("--version said %q, %q", f.Stdout, f.Stderr)
	}
	if f := rig.RunCmd(t, asPlugin(t, "events", "frob"), ""); f.Code != 1 || f.Stderr != "Error: unknown command \"frob\" for \"kubectl ackrail events\": see kubectl ackrail events --help\n" {
		t.Errorf("a misspelt command ended with code %d and said %q", f.Code, f.Stderr)
	}
}

// asPlugin prepares a process that was started under the name by which kubectl
// finds its plugins.
func asPlugin(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := rig.Command(t, args...)
	link := filepath.Join(t.TempDir(), pluginName)
	if err := os.Symlink(cmd.Path, link); err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args[0] = link, link
	return cmd
}
