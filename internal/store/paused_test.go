package store

import (
	"context"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/testenv"
)

// A process that is paused or cut off in the middle of a change must not
// leave locks behind: the whole change is the server's, once it has it.
func TestPausedProcessHoldsNobodyUp(t *testing.T) {
	url := migrated(t)
	others := openStore(t, url)
	ids := newDead(t, others, 2)
	for name, c := range map[string]struct {
		marker string
		change func(ctx context.Context, s *Store, n int) error
	}{
		"partitions": {"create_partition", func(ctx context.Context, s *Store, n int) error {
			return s.EnsurePartitions(ctx, []Keep{{Events: time.Duration(20+n*10) * day, Ledger: day}})
		}},
		"replay": {"picked AS MATERIALIZED", func(ctx context.Context, s *Store, n int) error {
			r := replay.Request{ID: ids[n], Namespace: "test", Name: digits(n), Endpoint: dest("a").Endpoint, Selector: replay.Selector{States: []event.State{event.StateDead}}}
			if err := s.PlanReplay(ctx, r); err != nil {
				return err
			}
			_, _, err := s.RunReplay(ctx, r.ID, nil, 1)
			return err
		}},
		"purge": {"DELETE FROM held_event", func(ctx context.Context, s *Store, _ int) error {
			return s.purge(ctx, &Maintained{})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := testenv.NewProxy(t, url)
			paused, err := Open(proxy.URL(), Options{MaxConns: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer paused.Close()
			// The first time statements are described, which is no use here.
			if err := c.change(t.Context(), paused, 0); err != nil {
				t.Fatal(err)
			}
			held := proxy.OnReply(c.marker, testenv.Hold)
			ctx, unpause := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = c.change(ctx, paused, 1)
			}()
			<-held
			waiting, giveUp := context.WithTimeout(t.Context(), patience)
			defer giveUp()
			if err := c.change(waiting, others, 1); err != nil {
				t.Error(err)
			} else {
				enqueueNew(t, others, 1, "a")
			}
			proxy.Cut()
			unpause()
			<-ended
		})
	}
}
