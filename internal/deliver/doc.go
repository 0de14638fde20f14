// Package deliver sends events to destinations over HTTP and says what came of it.
//
// [HTTP.Destination] checks a destination once; [Destination.Send] makes one POST to it, which is one attempt, and turns
// whatever happens into an [Outcome]. There is no error beside it: an answer, a refused connection and a secret that
// cannot be read are all ways in which an attempt can end.
//
// # The request
//
// The body and the content type are the sender's, byte for byte. Beside them go
//
//	webhook-id          the event's id, the same in all attempts and replays
//	webhook-timestamp   when this attempt was made, in Unix seconds
//	webhook-signature   with a signing secret: as Standard Webhooks 1.0.0 says, over the three above
//	Idempotency-Key     the event's id again, for receivers that look there
//	Ackrail-Attempt     grows with each attempt of the run
//	Ackrail-Run         1, and one more with each replay
//	Ackrail-Event-Type  the event's type, where it has one
//	Ackrail-Replay      the replay that started the run, where one did
//	traceparent         the sender's trace, or one whose trace id is the event's id
//	User-Agent          Ackrail and its version
//
// Run is not part of the idempotency key: a replay repeats an event, and a receiver that has already handled it should
// see that. One that is meant to do it all again can tell by Ackrail-Run.
//
// # The answer
//
//	2xx                                       done, whatever comes of the body
//	400 405 406 410 411 413 414 415 422 431   dead at once: the same request would be refused again
//	any other                                 failed, to be tried again
//
// 401, 403 and 404 are tried again because they are usually a rollout that is half done or a credential that was just
// rotated, and 3xx because redirects are not followed: whoever moves a receiver must change the destination. A Retry-After
// counts with every status that is tried again.
//
// One deadline, the destination's timeout, holds for everything from the name's resolution to the last byte of the
// answer. Of the body at most 64 KiB are read, and its beginning is kept as it was sent, compressed or not.
//
// The package must not know where deliveries come from, how outcomes are recorded or how many attempts there may be.
package deliver
