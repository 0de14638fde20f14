// Package backoff is the retry schedule: how long to wait after a failed attempt. It is pure arithmetic on durations;
// the random source and the time are handed in.
//
// The schedule is a capped exponential with full jitter, as Marc Brooker's "Exponential Backoff And Jitter" (AWS
// Architecture Blog, 2015) recommends it: the delay is drawn uniformly below a ceiling that doubles with each failure, so
// that many deliveries that failed at the same moment do not return at the same moment. Unlike there the draw
// starts at the minimum and not at zero, because the minimum is a promise to the destination.
//
// The package must not know what is retried, how many attempts there are, or where the next attempt's time is stored.
package backoff
