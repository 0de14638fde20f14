package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ackrail/ackrail/internal/postgres"
)

// Disk is a small file system of its own, which can be full.
type Disk struct {
	t   testing.TB
	dir string
}

// NewDisk mounts a file system in memory, of so many megabytes, until the test ends. Only root can; others skip the
// test.
func NewDisk(t testing.TB, megabytes int) *Disk {
	t.Helper()
	needRoot(t, "mount a small disk")
	dir, err := process.folder("disk")
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	run(t, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm,mode=711", megabytes), "ackrail-test", dir)
	takeBack(t, "umount", dir)
	return &Disk{t, dir}
}

// Server starts a server whose data and write-ahead log lie on the disk: 60 MB in the beginning.
func (d *Disk) Server(settings map[string]string) *postgres.Server {
	d.t.Helper()
	server := serve(d.t, filepath.Join(d.dir, "server"), settings)
	d.t.Cleanup(d.Free) // the server has to be able to shut down
	return server
}

func (d *Disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// Fill takes all space that is left.
func (d *Disk) Fill() {
	d.t.Helper()
	file, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatalf("testenv: filling a disk: %v", err)
	}
	defer func() { _ = file.Close() }()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		_, err := file.Write(chunk)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			chunk = chunk[:len(chunk)/2] // what still fits
		case err != nil:
			d.t.Fatalf("testenv: filling a disk: %v", err)
		}
	}
}

// Free gives the space back that Fill took.
func (d *Disk) Free() {
	d.t.Helper()
	if err := os.Remove(d.ballast()); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Errorf("testenv: freeing a disk: %v", err)
	}
}
