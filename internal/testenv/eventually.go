package testenv

import (
	"testing"
	"time"
)

const pollInterval = 10 * time.Millisecond

// Eventually calls check until it returns nil. After the timeout it fails the test with check's last error. It must be
// called from the test's own goroutine.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not within %s: %v", timeout, err)
		case <-ticker.C:
		}
	}
}
