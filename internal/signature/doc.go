// Package signature verifies the signatures of incoming webhooks and makes those of outgoing ones.
//
// A [Scheme] is data: which header carries the signature, what exactly is signed, how the MAC is computed and
// written down. One provider more is one value more, never one code path more. [New] checks a scheme and compiles it
// into a [Verifier] once; the keys are handed in with each call, already decoded, because they change while a process runs.
//
// Everything here works on the raw bytes of the body and fails closed: without a usable key, or with a header that is not
// exactly of the scheme's form, nothing is ever accepted. Failures are an [Error] with a [Reason] out of a small fixed
// set, fit for a metric label; neither carries anything that the sender wrote.
//
// The package must not know where secrets are kept, how an endpoint is configured, or what an event is.
//
// Sources: the Standard Webhooks specification 1.0.0 (https://www.standardwebhooks.com), "Validating webhook deliveries" in
// GitHub's documentation, RFC 2104 (HMAC).
package signature
