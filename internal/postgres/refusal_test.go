//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ackrail/ackrail/internal/postgres"
)

func TestRefusals(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port

	secret := folder(t)
	tests := map[string]struct {
		prepare func(t *testing.T)
		opts    postgres.Options
		want    string
	}{
		"no folder":       {opts: postgres.Options{}, want: "no folder given"},
		"reserved":        {opts: postgres.Options{Dir: "x", Settings: map[string]string{"port": "1"}}, want: "the setting port cannot be changed"},
		"not a setting":   {opts: postgres.Options{Dir: "x", Settings: map[string]string{"a=b": "1"}}, want: `"a=b" is not the name of a setting`},
		"port in use":     {opts: postgres.Options{Dir: folder(t), Port: taken, Settings: quick()}, want: fmt.Sprintf("the port %d for PostgreSQL cannot be used", taken)},
		"unknown setting": {opts: postgres.Options{Dir: folder(t), Settings: map[string]string{"no_such_thing": "1", "fsync": "off"}}, want: `unrecognized configuration parameter "no_such_thing"`},
		"no programs": {
			prepare: func(t *testing.T) { t.Setenv(postgres.BinEnv, t.TempDir()) },
			opts:    postgres.Options{Dir: folder(t)},
			want:    "no PostgreSQL server programs found: " + postgres.BinEnv,
		},
		"below a secret folder": {
			prepare: func(t *testing.T) {
				if os.Geteuid() != 0 {
					t.Skip("only root runs the server as another user")
				}
				if err := os.Mkdir(secret, 0o700); err != nil {
					t.Fatal(err)
				}
			},
			opts: postgres.Options{Dir: filepath.Join(secret, "below")},
			want: "cannot enter " + secret + ": choose a folder elsewhere, or allow it with 'chmod o+x " + secret + "'",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.prepare != nil {
				tt.prepare(t)
			}
			s, err := postgres.Start(t.Context(), tt.opts)
			if err == nil {
				_ = s.Stop(context.Background())
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestDamagedFolder(t *testing.T) {
	tests := map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
	}{
		"password lost": {
			damage: func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "password")) },
			want:   "is missing: bring the file password back",
		},
		"not a data folder": {
			damage: func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "data", "PG_VERSION")) },
			want:   "holds no PostgreSQL data",
		},
		"written by another version": {
			damage: func(t *testing.T, dir string) {
				if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("99\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			want: "for version 99, which wrote the data",
		},
		"broken configuration": {
			damage: func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "data", "postgresql.conf")) },
			want:   "could not access the server configuration file",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			s := start(t, postgres.Options{Dir: dir, Settings: quick()})
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			tt.damage(t, dir)
			s, err := postgres.Start(t.Context(), postgres.Options{Dir: dir, Settings: quick()})
			if err == nil {
				_ = s.Stop(context.Background())
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
