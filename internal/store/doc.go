// Package store keeps events and what is owed of them in PostgreSQL: it
// migrates the schema, commits events with natural batching, hands out claims
// with leases, records outcomes fenced by the claim's attempt, starts replays
// as new runs, counts, and retires what is old.
//
// Every statement is one round trip in one implicit transaction, or a short
// explicit one; nothing holds a transaction, a session lock or any other
// session state across a delivery, so a pooler in transaction mode may stand
// in between. All comparisons of time happen in the database, by its clock.
// The SQL stands in the sql folder.
//
// The package knows nothing of HTTP, Kubernetes or the pipeline's
// configuration: callers pass what a statement needs.
package store
