// Package faults breaks what the product runs on, and the product itself, and
// checks that its promises hold all the same: nothing acknowledged is lost,
// nothing has effect that must not, nothing gets stuck. Each spec is one row of
// docs/faults.md. It has a PostgreSQL server of its own, which syncs to disk,
// real ingress and worker processes, proxies between them and the database,
// senders that insist, and a destination that remembers. What happened is
// judged by internal/invariant, whatever the row itself looks at.
//
// `go test` runs the rows labelled "short", `make faults` all of them, which
// also writes docs/faults.md.
//
// The rows know the product by its processes, its HTTP contracts and its
// tables. They reach into it only where a fault cannot be had otherwise.
package faults
