package testenv_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/testenv"
)

func TestNetwork(t *testing.T) {
	n := testenv.NewNetwork(t)
	lost, other := n.Proxy(echo(t)), n.Proxy(echo(t))
	// talk has a process in the network say something to the echo.
	talk := func(p *testenv.Proxy) (string, error) {
		host, port, _ := strings.Cut(p.Addr(), ":")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-c", `exec 3<>"/dev/tcp/$0/$1" && echo hello >&3 && read -r line <&3 && echo "$line"`, host, port)
		out, err := n.Command(cmd).Output()
		return string(out), err
	}
	want := func(p *testenv.Proxy) {
		t.Helper()
		testenv.Eventually(t, patience, func() error {
			_, err := talk(p)
			return err
		})
		if got, err := talk(p); got != "hello\n" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	want(lost)
	want(other)
	n.Drop(lost)
	if got, err := talk(lost); err == nil {
		t.Errorf("got %q through a network that drops everything", got)
	}
	want(other)
	n.Heal()
	want(lost)
}
