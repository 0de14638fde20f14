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
		f := runCmd(t, asPlugin(t, append(args, "--help")...), "")
		if want := "Usage:\n  " + strings.Join(append([]string{"kubectl", "ackrail"}, args...), " "); f.code != 0 || f.stderr != "" || !strings.Contains(f.stdout, want) {
			t.Errorf("%v --help ended with code %d, %q and said\n%s", args, f.code, f.stderr, f.stdout)
		}
		if at := bare.FindString(f.stdout); at != "" {
			t.Errorf("%v --help has %q:\n%s", args, at, f.stdout)
		}
		for line := range strings.Lines(f.stdout) {
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
	if f := runCmd(t, asPlugin(t, "--version"), ""); f.stdout != "kubectl ackrail version dev\n" {
		t.Errorf("--version said %q, %q", f.stdout, f.stderr)
	}
	if f := runCmd(t, asPlugin(t, "events", "frob"), ""); f.code != 1 || f.stderr != "Error: unknown command \"frob\" for \"kubectl ackrail events\": see kubectl ackrail events --help\n" {
		t.Errorf("a misspelt command ended with code %d and said %q", f.code, f.stderr)
	}
}

// asPlugin prepares a process that was started under the name by which kubectl
// finds its plugins.
func asPlugin(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, args...)
	link := filepath.Join(t.TempDir(), pluginName)
	if err := os.Symlink(cmd.Path, link); err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args[0] = link, link
	return cmd
}
