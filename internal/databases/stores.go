package databases

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
)

const (
	// callTimeout bounds one call.
	callTimeout = 4 * time.Second
	// retryAfter is for how long the answer of a database that failed holds.
	retryAfter = 5 * time.Second
	// migrationTimeout bounds a migration, which goes on in the background
	// when it takes longer than a call.
	migrationTimeout = 10 * time.Minute
	// idleAfter is when the connections to a database that nobody has asked
	// for are given up.
	idleAfter = 5 * time.Minute
	// maxConns bounds the connections to one database; maxReplays of them may
	// be busy with replays, whose calls can take long.
	maxConns   = 4
	maxReplays = 2
)

// Stores are databases by URL. They are safe for concurrent use.
type Stores struct {
	log                                      *slog.Logger
	callTimeout, retryAfter, idle, reapEvery time.Duration

	// running ends when the stores are closed.
	running context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu     sync.Mutex
	open   map[string]*database
	closed bool
}

// New returns stores that log migrations. Close ends them.
func New(log *slog.Logger) *Stores {
	return newStores(log, func(*Stores) {})
}

func newStores(log *slog.Logger, change func(*Stores)) *Stores {
	s := &Stores{
		log: log, callTimeout: callTimeout, retryAfter: retryAfter, idle: idleAfter, reapEvery: idleAfter / 10,
		open: map[string]*database{},
	}
	change(s)
	s.running, s.stop = context.WithCancel(context.Background())
	s.work.Go(s.reap)
	return s
}

// errClosed is returned for calls that come after Close.
var errClosed = errors.New("the program is stopping")

// Close cuts migrations off and gives all connections up, after the calls
// under way have returned.
func (s *Stores) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, d := range s.open {
		d.store.Close()
		delete(s.open, url)
	}
}

// reap gives up databases that nobody uses.
func (s *Stores) reap() {
	tick := time.NewTicker(s.reapEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.running.Done():
			return
		case <-tick.C:
		}
		for _, d := range s.takeIdle(time.Now()) {
			d.store.Close()
		}
	}
}

// takeIdle takes the databases out that nobody has used for long.
func (s *Stores) takeIdle(now time.Time) []*database {
	s.mu.Lock()
	defer s.mu.Unlock()
	var idle []*database
	for url, d := range s.open {
		if d.users == 0 && now.Sub(d.used) >= s.idle {
			delete(s.open, url)
			idle = append(idle, d)
		}
	}
	return idle
}

// acquire returns the database at a URL, which stays until it is released.
func (s *Stores) acquire(url string) (*database, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	d := s.open[url]
	if d == nil {
		clean, err := store.CleanURL(url)
		if err != nil {
			return nil, err
		}
		opened, err := store.Open(clean, store.Options{MaxConns: maxConns, Name: "ackrail manager", IdleTimeout: time.Minute})
		if err != nil {
			return nil, err
		}
		d = &database{stores: s, url: clean, store: opened, replays: make(chan struct{}, maxReplays)}
		s.open[url] = d
	}
	d.users++
	return d, nil
}

func (s *Stores) release(d *database) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.users--
	d.used = time.Now()
}

// background runs something that may outlast the call that started it, and
// holds the database until it has ended.
func (s *Stores) background(d *database, run func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	d.users++
	s.work.Go(func() {
		defer s.release(d)
		run()
	})
	return nil
}

// short makes a call that may take as long as callTimeout.
func (s *Stores) short(ctx context.Context, url string, call func(context.Context, *store.Store) error) error {
	d, err := s.acquire(url)
	if err != nil {
		return err
	}
	defer s.release(d)
	return d.call(ctx, s.callTimeout, call)
}

// Check reports whether a URL can be understood, without connecting.
func (*Stores) Check(url string) error {
	_, err := store.CleanURL(url)
	return err
}

// Ping reports whether the database answers. It need not have a schema.
func (s *Stores) Ping(ctx context.Context, url string) error {
	err := s.short(ctx, url, func(ctx context.Context, db *store.Store) error { return db.Ping(ctx) })
	if errors.Is(err, errNotMigrated) {
		return nil
	}
	return err
}

// Migrate brings the database's schema up to the version of this binary. Once
// it has, it costs nothing until a call finds the schema missing. A migration
// that takes longer than a call goes on in the background, which is an error
// until it is done; one that failed is not tried again for some seconds.
func (s *Stores) Migrate(ctx context.Context, url string) error {
	d, err := s.acquire(url)
	if err != nil {
		return err
	}
	defer s.release(d)
	return d.migrate(ctx)
}

// Counts returns the counts of destinations, in their order.
func (s *Stores) Counts(ctx context.Context, url string, destinations []event.DestinationRef) ([]event.Counts, error) {
	var counts []event.Counts
	err := s.short(ctx, url, func(ctx context.Context, db *store.Store) (err error) {
		counts, err = db.Counts(ctx, destinations)
		return err
	})
	return counts, err
}

// DeadCounts returns what is dead of one endpoint, by destination. Dead
// letters that are purged within soon count as expiring.
func (s *Stores) DeadCounts(ctx context.Context, url string, endpoint event.EndpointRef, soon time.Duration) ([]event.DeadCounts, error) {
	var counts []event.DeadCounts
	err := s.short(ctx, url, func(ctx context.Context, db *store.Store) (err error) {
		counts, err = db.DeadCounts(ctx, []event.EndpointRef{endpoint}, []time.Duration{soon})
		return err
	})
	return counts, err
}
