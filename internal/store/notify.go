package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Notifier tells workers on other connections and machines that there is
// work. It coalesces: the first call is passed on at once, further ones
// within the interval become one. A notification may be lost; workers poll
// as well.
type Notifier struct {
	store    *Store
	interval time.Duration
	pending  chan struct{}
	stop     context.CancelFunc
	ended    sync.WaitGroup
}

// notifyInterval is the least time between two notifications. A worker that
// is busy needs none, and an idle one waits for the first.
const notifyInterval = 20 * time.Millisecond

// NewNotifier starts a notifier. Close ends it.
func NewNotifier(s *Store) *Notifier {
	ctx, cancel := context.WithCancel(context.Background())
	n := &Notifier{store: s, interval: notifyInterval, pending: make(chan struct{}, 1), stop: cancel}
	n.ended.Go(func() { n.run(ctx) })
	return n
}

// Notify asks for a notification and never blocks.
func (n *Notifier) Notify() {
	select {
	case n.pending <- struct{}{}:
	default:
	}
}

// Close ends the notifier without passing on what is pending.
func (n *Notifier) Close() {
	n.stop()
	n.ended.Wait()
}

func (n *Notifier) run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.pending:
		}
		n.send(ctx)
		pause.Reset(n.interval)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// Wake notifies the workers at once, for whoever made work once.
func (s *Store) Wake(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, sqlNotify)
	return classify("waking the workers", err)
}

// send loses the notification when the database is away: whoever listens has
// lost its connection too and looks when it is back.
func (n *Notifier) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = n.store.Wake(ctx)
}

// Listen calls wake once at the start and for every notification, until the
// context ends or the connection breaks, whose error it returns. It uses a
// connection of its own, outside the pool. Through a pooler in transaction
// mode it hears nothing, which costs latency only.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	conn, err := pgx.ConnectConfig(ctx, s.connConfig())
	if err != nil {
		return classify("listening for work", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	var channel string
	if err := conn.QueryRow(ctx, sqlChannel).Scan(&channel); err != nil {
		return classify("listening for work", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return classify("listening for work", err)
	}
	for {
		wake()
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return fmt.Errorf("listening for work: %w: %w", ErrUnavailable, err)
		}
	}
}
