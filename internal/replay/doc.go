// Package replay runs a replay from plan to end: it freezes what the replay
// takes, starts the new runs in batches, and waits for them to end. A replay
// that was interrupted at any point goes on where it stopped when it is run
// again under the same id, and takes no delivery twice.
//
// It knows nothing of Kubernetes, and nothing of how deliveries are made: the
// workers carry the runs out like any others.
package replay
