package testenv_test

import (
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/testenv"
)

func TestFakeClock(t *testing.T) {
	s := testenv.Server(t, unsynced)
	clock := testenv.FakeClock(t, s)
	conn := connect(t, s.URL())
	near := func(want time.Duration) {
		t.Helper()
		ahead := time.Until(query[time.Time](t, conn, "SELECT now()"))
		if off := ahead - want; off.Abs() > patience {
			t.Errorf("the server's clock is ahead by %s, want %s", ahead, want)
		}
	}
	near(0)
	clock.Set(-time.Hour)
	near(-time.Hour)
	clock.Set(48 * time.Hour)
	near(48 * time.Hour)
	clock.Set(0)
	near(0)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	clock.Set(time.Hour)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn = connect(t, s.URL())
	near(time.Hour)
}

func TestBuildSkewed(t *testing.T) {
	clock := testenv.BuildSkewed(t, "./testdata/now").Clock()
	cmd := clock.Command(exec.Command("now"))
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
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		clock.Set(ahead)
		if _, err := io.WriteString(in, "now\n"); err != nil {
			t.Fatal(err)
		}
		var seconds, took int64
		if _, err := fmt.Fscan(out, &seconds, &took); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(time.Unix(seconds, 0)) - ahead; off.Abs() > patience {
			t.Errorf("the process' clock is off by %s, want %s", off+ahead, ahead)
		}
		if time.Duration(took) > patience {
			t.Errorf("a millisecond took %s", time.Duration(took))
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
