package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

// A password that is rotated is taken over from the file by running pods.
func TestRotatedDatabasePassword(t *testing.T) {
	t.Parallel()
	server, sink := testenv.Server(t, map[string]string{"fsync": "off"}), testenv.NewSink(t)
	admin, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.Background()) }()
	execute := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	as := func(password string) string {
		u, err := url.Parse(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("app", password)
		q := u.Query()
		q.Set("search_path", "app")
		u.RawQuery = q.Encode()
		return u.String()
	}
	execute("CREATE ROLE app LOGIN PASSWORD 'geheim1'")
	execute("GRANT CREATE ON DATABASE " + pgx.Identifier{admin.Config().Database}.Sanitize() + " TO app")

	dir := t.TempDir()
	file := writeFile(t, dir, "uri", as("geheim1")+"\n")
	r := rig.New(t, as("geheim1"), rig.Secrets(), rig.GitHub("github", sink.URL()))
	if f := rig.Run(t, "", "migrate", "--database-url-file", file); f.Code != 0 || f.Stdout != "The schema is up to date\n" {
		t.Errorf("migrate ended with code %d, %q, %q", f.Code, f.Stdout, f.Stderr)
	}
	address := fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t))
	in := r.Pod("", "ingress", "--database-url-file", file, "--listen", address, "--drain-delay", "0s")
	w := r.Pod("", "worker", "--database-url-file", file)
	hook := "http://" + address + "/hooks/test/github"
	s := rig.NewSender(t, 1)
	arrived(t, sink, s.Accepted(t, hook, "before", []byte("{}")))

	execute("ALTER ROLE app PASSWORD 'geheim2'")
	if err := os.Rename(writeFile(t, dir, "new", as("geheim2")), file); err != nil {
		t.Fatal(err)
	}
	execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
	if conn, err := pgx.Connect(t.Context(), as("geheim1")); err == nil {
		_ = conn.Close(t.Context())
		t.Fatal("the old password is good still")
	}
	var id string
	testenv.Eventually(t, patience, func() error {
		a, err := s.Send(hook, "after", []byte("{}"))
		if err == nil && a.Status != http.StatusAccepted && a.Status != http.StatusOK {
			err = fmt.Errorf("answered with %d", a.Status)
		}
		id = a.EventID
		return err
	})
	arrived(t, sink, id)
	for _, p := range []*rig.Pod{in, w} {
		if code := p.Stop(); code != 0 {
			t.Errorf("it ended with code %d", code)
		}
		if strings.Contains(p.Output(), "geheim") {
			t.Errorf("a log repeats a password:\n%s", p.Output())
		}
	}
}
