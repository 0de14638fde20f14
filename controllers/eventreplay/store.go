package eventreplay

import (
	"context"

	"github.com/ackrail/ackrail/internal/replay"
)

// Stores are the databases that endpoints keep their events in. It is safe
// for concurrent use.
type Stores interface {
	// For returns the database at a URL, good for one look at a replay. It
	// need not connect. No error, of the store neither, may repeat the URL.
	For(ctx context.Context, url string) (replay.Store, error)
}
