package faults

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"

	"github.com/ackrail/ackrail/internal/rig"
)

var _ = Describe("PostgreSQL", func() {
	for _, r := range []struct {
		name, did string
		times     int
		end       func(*world) error
		labels    Labels
	}{
		{
			"postmaster killed", "SIGKILL to the postmaster under the load of 64 senders, five times, each time down until 200 requests were refused",
			5, func(w *world) error { return w.server.Kill() }, nil,
		},
		{
			"PostgreSQL shut down fast", "a fast shutdown under the load of 64 senders, twice, each time down until 200 requests were refused",
			2, func(w *world) error { return w.server.Stop(w.ctx) }, short,
		},
		{
			"PostgreSQL shut down immediately", "an immediate shutdown under the load of 64 senders, three times, each time down until 200 requests were refused",
			3, func(w *world) error {
				// A stop without patience is an immediate one.
				ctx, cancel := context.WithCancel(w.ctx)
				cancel()
				return w.server.Stop(ctx)
			}, nil,
		},
	} {
		row(r.name, r.did, func(w *world) {
			in, worker := w.run(setting{})
			l := w.load(64)
			for range r.times {
				l.more(50)
				w.did("%s", r.name)
				if err := r.end(w); err != nil {
					w.t.Fatal(err)
				}
				l.refusals(200)
				w.restart()
				l.returned()
			}
			l.more(50)
			w.alive(in, worker)
		}, r.labels)
	}

	row("random backends terminated",
		"pg_terminate_backend on two of the product's sessions at random under the load of 64 senders, forty times",
		func(w *world) {
			in, worker := w.run(setting{})
			l := w.load(64)
			for range 40 {
				l.more(20)
				w.execute(terminate + " ORDER BY random() LIMIT 2")
				w.did("two backends terminated")
			}
			l.more(50)
			w.alive(in, worker)
		})

	row("max_connections reached",
		"the product's sessions were terminated and all connections taken by others; senders got 503 until they were given back",
		func(w *world) {
			in, worker := w.run(setting{postgres: map[string]string{"max_connections": "25"}})
			l := w.load(16)
			l.more(50)
			release := w.occupy()
			defer release()
			l.refusals(100)
			release()
			l.returned()
			l.more(50)
			w.alive(in, worker)
		})

	row("database read-only",
		"default_transaction_read_only was set and the product's sessions terminated; senders got 503 until it was set back, with the sessions of that time still there",
		func(w *world) {
			in, worker := w.run(setting{})
			database := pgx.Identifier{w.Pool.Config().ConnConfig.Database}.Sanitize()
			l := w.load(16)
			l.more(50)
			w.execute("ALTER DATABASE " + database + " SET default_transaction_read_only = on")
			w.execute(terminate)
			w.did("database made read-only")
			l.refusals(100)
			w.execute("ALTER DATABASE " + database + " RESET default_transaction_read_only")
			w.did("database made writable")
			l.returned()
			l.more(50)
			w.alive(in, worker)
		})

	row("pool exhausted",
		"another session held the idempotency keys of eight webhooks until all connections of the ingress waited for them and other senders got 503",
		func(w *world) {
			in, worker := w.run(setting{})
			s := rig.NewSender(w.t, 1)
			w.accept(s, uuid.NewString()) // names are known now
			tx, err := w.Pool.Begin(w.ctx)
			if err != nil {
				w.t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			l := w.load(0)
			for range 8 {
				key := uuid.NewString()
				if _, err := tx.Exec(w.ctx, `INSERT INTO dedup (endpoint_id, key_digest, event_id, body_digest, expires_at)
					SELECT id, sha256(convert_to($1, 'UTF8')), gen_random_uuid(), 0, now() + interval '1 hour' FROM endpoint`, key); err != nil {
					w.t.Fatal(err)
				}
				l.start(func() { l.insistOn(key, body(key)) })
			}
			w.did("eight keys held")
			// Each of them takes a connection with it, until none is left for
			// others.
			w.until(func() error {
				key := uuid.NewString()
				a, err := w.send(s, key, body(key))
				if err == nil && a.Status != http.StatusServiceUnavailable {
					err = fmt.Errorf("another webhook was answered with %d", a.Status)
				}
				return err
			})
			if err := tx.Rollback(w.ctx); err != nil {
				w.t.Fatal(err)
			}
			w.did("keys given back")
			l.more(8)
			w.accept(s, uuid.NewString())
			w.alive(in, worker)
		})
})

// terminate ends the product's sessions.
const terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'ackrail %'"

// alive checks that processes have come through.
func (w *world) alive(pods ...*rig.Pod) {
	w.t.Helper()
	for _, p := range pods {
		if !p.Running() {
			w.t.Errorf("the %s ended with code %d", p.Role, p.ExitCode())
		}
	}
}

// occupy ends the product's sessions and takes all connections that there are,
// until release is called.
func (w *world) occupy() (release func()) {
	w.t.Helper()
	admin, err := pgx.Connect(w.ctx, w.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	taken := []*pgx.Conn{admin}
	// The product is at it too, so its new sessions are ended until none
	// fits in any more.
	for deadline := time.Now().Add(patience); ; {
		if _, err := admin.Exec(w.ctx, terminate); err != nil {
			w.t.Fatal(err)
		}
		conn, err := pgx.Connect(w.ctx, w.URL)
		if err == nil {
			taken = append(taken, conn)
			continue
		}
		var product int
		if err := admin.QueryRow(w.ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'ackrail %'").Scan(&product); err != nil {
			w.t.Fatal(err)
		}
		if product == 0 {
			break
		}
		if time.Now().After(deadline) {
			w.t.Fatal("the product has sessions still")
		}
	}
	w.did("all %d connections taken", len(taken))
	return sync.OnceFunc(func() {
		for _, conn := range taken {
			_ = conn.Close(context.Background())
		}
		w.history.Did("all connections given back")
	})
}

// refuseAll sends webhooks at once, which must all be refused for the moment.
func (w *world) refuseAll(s *rig.Sender, keys []string) {
	w.t.Helper()
	answers := make([]rig.Answer, len(keys))
	errs := make([]error, len(keys))
	var senders sync.WaitGroup
	for i, key := range keys {
		senders.Go(func() { answers[i], errs[i] = w.send(s, key, body(key)) })
	}
	senders.Wait()
	for i, a := range answers {
		if errs[i] != nil {
			w.t.Error(errs[i])
		} else if a.Status != http.StatusServiceUnavailable || a.RetryAfter == "" {
			w.t.Errorf("%s was answered with %d, Retry-After %q, want 503 with one", keys[i], a.Status, a.RetryAfter)
		}
		w.result.SlowestRefusal = max(w.result.SlowestRefusal, a.Took)
	}
}
