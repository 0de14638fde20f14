// Package eventreplay reconciles EventReplay objects: it plans each of them in
// its endpoint's database, starts its runs at the pace that its spec allows,
// follows them to their end, and says in the status how far it is.
//
// Everything that must survive the manager stands in the database, under the
// object's UID; what a Reconciler remembers between two looks may be lost at
// any moment. There is no finalizer: whoever deletes an EventReplay stops it
// from starting further runs, and what it has started is delivered.
//
// Request and SetStatus, which translate between the object and the replay
// package, are pure, and serve the command line too.
//
// The package must not know the database: it reaches it through Stores.
package eventreplay
