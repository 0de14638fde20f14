package testenv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/postgres"
)

// pageSize is that of PostgreSQL's tables, in bytes.
const pageSize = 8192

// Damage restarts a server with a page of a table, counted from 0, overwritten in its middle: the server will not read
// it, and fails what needs it. The returned function restarts the server with the page restored.
func Damage(t testing.TB, s *postgres.Server, table string, page int64) (restore func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	var data, file string
	err = conn.QueryRow(ctx, "SELECT current_setting('data_directory'), pg_relation_filepath($1::text::regclass)", table).Scan(&data, &file)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		t.Fatalf("testenv: finding a table: %v", err)
	}
	where := page*pageSize + pageSize/2
	replace := func(with []byte) []byte {
		if err := s.Stop(t.Context()); err != nil {
			t.Fatalf("testenv: %v", err)
		}
		was, err := overwrite(filepath.Join(data, file), with, where)
		if err != nil {
			t.Fatalf("testenv: damaging a table: %v", err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatalf("testenv: %v", err)
		}
		return was
	}
	was := replace([]byte("not what the server has written"))
	return func() { replace(was) }
}

// overwrite returns what stood there.
func overwrite(path string, with []byte, where int64) (was []byte, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	was = make([]byte, len(with))
	if _, err = file.ReadAt(was, where); err == nil {
		_, err = file.WriteAt(with, where)
	}
	return was, errors.Join(err, file.Close())
}
