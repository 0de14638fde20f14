// Package replay runs a replay from plan to end: it freezes what the replay
// takes, starts the new runs in batches, and waits for them to end. A replay
// that was interrupted at any point goes on where it stopped when it is run
// again under the same id, and takes no delivery twice: what it remembers
// stands in the database.
//
// Pace says how fast runs are started, so that a replay neither buries live
// traffic nor exceeds the rate that its author allows.
//
// It knows neither the database, which it reaches through Store, nor
// Kubernetes, nor how deliveries are made: the workers carry the runs out like
// any others.
package replay
