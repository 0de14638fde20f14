package faults

import (
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/testenv"
)

var _ = Describe("the disk", func() {
	row("disk full, then freed",
		"the file system of the database was filled to its last byte under load, twice: requests were refused with 503, and taken again once there was room",
		func(w *world) {
			disk := testenv.NewDisk(w.t, 192)
			w.server = disk.Server(map[string]string{"max_wal_size": "48MB", "min_wal_size": "32MB"})
			w.run(setting{url: w.server.URL()})
			l := w.load(32)
			for range 2 {
				l.more(300)
				disk.Fill()
				w.did("the disk is full")
				l.refusals(100)
				w.last(5 * time.Second)
				disk.Free()
				w.revive()
				l.returned()
			}
			l.more(300)
		})
})

// revive starts the server again if the fault has ended it.
func (w *world) revive() {
	w.t.Helper()
	select {
	case <-w.server.Done():
		w.restart()
	default:
	}
}
