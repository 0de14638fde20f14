// Package worker runs the slow half of a pipeline: it claims deliveries that
// are due, hands each to a sender, and records how it ended.
//
// A claim's commit writes the intent before the request leaves, and whatever
// is written later is fenced by the claim's attempt, so a worker may be
// killed, paused or cut off at any point: another one takes over when the
// lease ends, and the first one's late words have no effect. Each destination
// has a lane of its own, so one that hangs or fails holds up no other.
//
// The package knows nothing of Kubernetes; the configuration reaches it as a
// pipeline document, and what a delivery looks like on the wire is the
// sender's business.
package worker
