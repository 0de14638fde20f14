package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/testenv"
)

var unsynced = map[string]string{"fsync": "off"}

// arrives waits until a server has a number of rows.
func arrives(t *testing.T, s *postgres.Server, rows int) {
	t.Helper()
	conn := connect(t, s.URL())
	testenv.Eventually(t, patience, func() error {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n)
		if err == nil && n != rows {
			err = fmt.Errorf("%d rows, want %d", n, rows)
		}
		return err
	})
}

func TestStandby(t *testing.T) {
	primary := testenv.Primary(t, unsynced)
	conn := connect(t, primary.URL())
	execute(t, conn, "CREATE TABLE t AS SELECT 1 AS id")
	standby := testenv.Standby(t, primary, unsynced)
	execute(t, conn, "INSERT INTO t VALUES (2)")
	arrives(t, standby, 2)

	testenv.Configure(t, primary, "synchronous_standby_names", "standby")
	execute(t, conn, "INSERT INTO t VALUES (3)")
	if err := standby.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "INSERT INTO t VALUES (4)"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a commit without the synchronous standby: %v", err)
	}
	testenv.Configure(t, primary, "synchronous_standby_names", "")
	if err := standby.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrives(t, standby, 4)

	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Promote(t, standby)
	execute(t, connect(t, standby.URL()), "INSERT INTO t VALUES (5)")
	arrives(t, standby, 5)
	if err := primary.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, connect(t, primary.URL()), "INSERT INTO t VALUES (6)")
	arrives(t, primary, 5)
	arrives(t, standby, 5)
}

func TestPause(t *testing.T) {
	s := testenv.Server(t, unsynced)
	conn := connect(t, s.URL())
	resume := testenv.Pause(t, s)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT 1")
		done <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(ctx, s.URL()); err == nil {
		t.Error("a paused server answers")
	}
	select {
	case err := <-done:
		t.Errorf("a paused server's session answers: %v", err)
	default:
	}
	resume()
	resume()
	if err := receive(t, "the answer", done); err != nil {
		t.Error(err)
	}
}

func TestDisk(t *testing.T) {
	var dir string
	t.Run("", func(t *testing.T) {
		disk := testenv.NewDisk(t, 128)
		s := disk.Server(unsynced)
		conn := connect(t, s.URL())
		dir = query[string](t, conn, "SHOW data_directory")
		execute(t, conn, "CREATE TABLE t (filler text)")
		const insert = "INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 1000)"
		execute(t, conn, insert)
		disk.Fill()
		_, err := conn.Exec(t.Context(), insert)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "53100" { // disk_full
			t.Errorf("on a full disk: %v", err)
		}
		disk.Free()
		execute(t, conn, insert)
		disk.Fill() // and left so
	})
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left over: %v", dir, err)
	}
}
