// Package ingress takes webhooks in over HTTP: it accepts a request, bounds
// it, verifies it over its raw bytes, identifies it, has it committed, and
// only then answers. No 2xx leaves before the commit.
//
// A Handler serves every endpoint of one pipeline configuration. It judges a
// request in one order: path (404), suspension (503), method (405), media type (415), declared
// size (413), the body itself as memory allows (503, 413, 408, 400), signature (401),
// JSON where the provider sends JSON (400), identity (422), commit (202, 200,
// 503). Each refusal has one constant text; why exactly is in the log and the
// metrics only. There is no 500: whatever goes wrong on this side is a 503
// that the sender may retry.
//
// The package knows the store through one method. It must not know how
// deliveries are made, and nothing of Kubernetes; liveness, readiness and
// metrics are served elsewhere.
package ingress
