//go:build unix

package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChoose(t *testing.T) {
	v := func(major int) binaries {
		return binaries{folder: fmt.Sprintf("/opt/%d", major), version: fmt.Sprintf("%d.1", major), major: major}
	}
	tests := map[string]struct {
		found []binaries
		major int
		want  int
		err   string
	}{
		"none":                     {err: "install PostgreSQL, for instance with 'apt-get install postgresql'"},
		"first":                    {found: []binaries{v(15), v(17)}, want: 15},
		"first that is new enough": {found: []binaries{v(13), v(14)}, want: 14},
		"all too old":              {found: []binaries{v(13), v(12)}, err: "13.1 in /opt/13, but 14 or newer is needed"},
		"the one of the data":      {found: []binaries{v(17), v(15)}, major: 15, want: 15},
		"not the one of the data":  {found: []binaries{v(17)}, major: 15, err: "version 15, which wrote the data (found 17.1 in /opt/17)"},
		"data too old":             {found: []binaries{v(13)}, major: 13, err: "14 or newer is needed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := choose(tt.found, tt.major)
			if tt.err != "" {
				if !errors.Is(err, ErrNoServer) || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || got.major != tt.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestInspect(t *testing.T) {
	tests := map[string]struct {
		prints string
		want   binaries
		err    string
	}{
		"release":      {prints: "postgres (PostgreSQL) 15.10 (Debian 15.10-0+deb12u1)", want: binaries{version: "15.10", major: 15}},
		"beta":         {prints: "postgres (PostgreSQL) 18beta2", want: binaries{version: "18beta2", major: 18}},
		"old numbers":  {prints: "postgres (PostgreSQL) 9.6.24", want: binaries{version: "9.6.24", major: 9}},
		"not postgres": {prints: "hello", err: `unknown version "hello"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program(t, dir, "initdb", "")
			program(t, dir, "postgres", tt.prints)
			got, err := inspect(t.Context(), dir)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want %q", err, tt.err)
				}
				return
			}
			tt.want.folder = got.folder
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
	t.Run("client programs only", func(t *testing.T) {
		dir := t.TempDir()
		program(t, dir, "postgres", "postgres (PostgreSQL) 15.10")
		if _, err := inspect(t.Context(), dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// A folder named by the environment is the only one looked at.
func TestFindHonoursEnvironment(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, "initdb", "")
	program(t, dir, "postgres", "postgres (PostgreSQL) 99.1")
	t.Setenv(BinEnv, dir)
	got, err := find(t.Context(), 0)
	if err != nil || got.version != "99.1" {
		t.Errorf("got %+v, %v", got, err)
	}
	t.Setenv("PATH", dir)
	t.Setenv(BinEnv, "")
	got, err = find(t.Context(), 0)
	if err != nil || got.version != "99.1" {
		t.Errorf("by PATH: got %+v, %v", got, err)
	}
}

func TestCompareVersions(t *testing.T) {
	paths := []string{"/usr/lib/postgresql/14/bin", "/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/15/bin"}
	slices.SortFunc(paths, compareVersions)
	want := []string{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/14/bin", "/usr/lib/postgresql/15/bin"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// program writes a shell script that prints a line.
func program(t *testing.T, dir, name, prints string) {
	t.Helper()
	script := fmt.Sprintf("#!/bin/sh\necho '%s'\n", prints)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}
