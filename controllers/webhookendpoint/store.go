package webhookendpoint

import (
	"context"
	"time"

	"github.com/ackrail/ackrail/internal/event"
)

// Stores are the databases that endpoints keep their events in, each named by
// its URL. Its methods may be called at once, and each must return within
// some five seconds, whatever the database does: while one waits, so does a
// reconciliation of some other endpoint. No error may repeat the URL.
type Stores interface {
	// Check reports whether a URL can be understood, without connecting.
	Check(url string) error
	// Ping reports whether the database answers. It need not have a schema.
	Ping(ctx context.Context, url string) error
	// Migrate brings the database's schema up to the version of this binary.
	// It costs little where that was done before.
	Migrate(ctx context.Context, url string) error
	// Counts returns the counts of destinations, in their order.
	Counts(ctx context.Context, url string, destinations []event.DestinationRef) ([]event.Counts, error)
	// DeadCounts returns what is dead of an endpoint, by destination, also of
	// destinations that it no longer has. Dead letters that are purged within
	// soon count as expiring.
	DeadCounts(ctx context.Context, url string, endpoint event.EndpointRef, soon time.Duration) ([]event.DeadCounts, error)
}
