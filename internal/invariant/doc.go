// Package invariant gives a verdict on a pipeline's promises, I1 to I12 of docs/architecture.md. It compares four
// sources: what senders sent and were answered, what the database has, what its ledger says, and what destinations
// received. A test gathers the first and the last in a History, lets anything happen to the system, and calls Check.
//
// Only _test.go files may import it. It reads the store's tables by itself and must not go through the store's, the
// worker's or the ingress' own code, which is what it judges.
package invariant
