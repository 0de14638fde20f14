package testenv_test

import (
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
		ahead := query[time.Time](t, conn, "SELECT now()").Sub(time.Now())
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
