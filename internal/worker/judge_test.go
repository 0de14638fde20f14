package worker

import (
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

func TestJudge(t *testing.T) {
	const second, minute, day = time.Second, time.Minute, 24 * time.Hour
	failed := func(class event.ErrorClass) deliver.Outcome {
		return deliver.Outcome{Verdict: event.VerdictFailed, Class: class, Error: "why", Latency: second}
	}
	for _, tc := range []struct {
		name     string
		attempts int
		outcome  deliver.Outcome
		random   uint64 // of all that may be drawn, in percent
		want     store.Outcome
	}{
		{
			name: "done", attempts: 1,
			outcome: deliver.Outcome{Verdict: event.VerdictDone, Status: 200, Latency: second, Excerpt: "ok"},
			want:    store.Outcome{Verdict: event.VerdictDone, Status: 200, Latency: second, Excerpt: "ok"},
		},
		{
			name: "done with the last attempt", attempts: 5,
			outcome: deliver.Outcome{Verdict: event.VerdictDone, Status: 204},
			want:    store.Outcome{Verdict: event.VerdictDone, Status: 204},
		},
		{
			name: "not sent", attempts: 5,
			outcome: deliver.Outcome{Verdict: event.VerdictReleased, Class: event.ErrorCanceled, Error: "why"},
			want:    store.Outcome{Verdict: event.VerdictReleased, ErrorClass: event.ErrorCanceled, Error: "why"},
		},
		{
			name: "permanent", attempts: 1,
			outcome: deliver.Outcome{Verdict: event.VerdictDead, Status: 410, Class: event.ErrorHTTPStatus, Error: "why", Excerpt: "gone", Latency: second},
			want: store.Outcome{
				Verdict: event.VerdictDead, Reason: event.ReasonPermanentStatus, Status: 410, ErrorClass: event.ErrorHTTPStatus, Error: "why", Excerpt: "gone", Latency: second,
			},
		},
		{
			name: "permanent with the last attempt", attempts: 5,
			outcome: deliver.Outcome{Verdict: event.VerdictDead, Status: 410, Class: event.ErrorHTTPStatus},
			want:    store.Outcome{Verdict: event.VerdictDead, Reason: event.ReasonPermanentStatus, Status: 410, ErrorClass: event.ErrorHTTPStatus},
		},
		{
			name: "first failure, soonest", attempts: 1, outcome: failed(event.ErrorTimeout),
			want: store.Outcome{Verdict: event.VerdictFailed, ErrorClass: event.ErrorTimeout, Error: "why", Latency: second, Delay: 10 * second},
		},
		{
			name: "first failure, latest", attempts: 1, outcome: failed(event.ErrorTimeout), random: 100,
			want: store.Outcome{Verdict: event.VerdictFailed, ErrorClass: event.ErrorTimeout, Error: "why", Latency: second, Delay: 20 * second},
		},
		{
			name: "third failure, latest", attempts: 3, outcome: failed(event.ErrorDNS), random: 100,
			want: store.Outcome{Verdict: event.VerdictFailed, ErrorClass: event.ErrorDNS, Error: "why", Latency: second, Delay: 80 * second},
		},
		{
			name: "fourth failure, capped", attempts: 4, outcome: failed(event.ErrorDNS), random: 100,
			want: store.Outcome{Verdict: event.VerdictFailed, ErrorClass: event.ErrorDNS, Error: "why", Latency: second, Delay: 100 * second},
		},
		{
			name: "asked to wait longer than the policy", attempts: 1,
			outcome: deliver.Outcome{Verdict: event.VerdictFailed, Status: 503, Class: event.ErrorHTTPStatus, RetryAfter: minute},
			want:    store.Outcome{Verdict: event.VerdictFailed, Status: 503, ErrorClass: event.ErrorHTTPStatus, Delay: minute},
		},
		{
			name: "asked to wait for less", attempts: 1, random: 100,
			outcome: deliver.Outcome{Verdict: event.VerdictFailed, Status: 503, Class: event.ErrorHTTPStatus, RetryAfter: second},
			want:    store.Outcome{Verdict: event.VerdictFailed, Status: 503, ErrorClass: event.ErrorHTTPStatus, Delay: 20 * second},
		},
		{
			name: "asked to wait for ever", attempts: 1,
			outcome: deliver.Outcome{Verdict: event.VerdictFailed, Status: 503, Class: event.ErrorHTTPStatus, RetryAfter: 1<<63 - 1},
			want:    store.Outcome{Verdict: event.VerdictFailed, Status: 503, ErrorClass: event.ErrorHTTPStatus, Delay: 100 * second},
		},
		{
			name: "cut off is due at once", attempts: 4, outcome: failed(event.ErrorCanceled), random: 100,
			want: store.Outcome{Verdict: event.VerdictFailed, ErrorClass: event.ErrorCanceled, Error: "why", Latency: second},
		},
		{
			name: "last failure", attempts: 5, outcome: failed(event.ErrorConnectionRefused),
			want: store.Outcome{Verdict: event.VerdictDead, Reason: event.ReasonAttemptsExhausted, ErrorClass: event.ErrorConnectionRefused, Error: "why", Latency: second},
		},
		{
			name: "last one cut off", attempts: 5, outcome: failed(event.ErrorCanceled),
			want: store.Outcome{Verdict: event.VerdictDead, Reason: event.ReasonAttemptsExhausted, ErrorClass: event.ErrorCanceled, Error: "why", Latency: second},
		},
		{
			name: "more attempts than are allowed now", attempts: 9, outcome: failed(event.ErrorTimeout),
			want: store.Outcome{Verdict: event.VerdictDead, Reason: event.ReasonAttemptsExhausted, ErrorClass: event.ErrorTimeout, Error: "why", Latency: second},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &held{claim: &store.Claim{Attempts: tc.attempts}, lane: &lane{
				destination: &pipeline.Destination{Retry: pipeline.Retry{MaxAttempts: 5, MinBackoffSeconds: 10, MaxBackoffSeconds: 100}},
				endpoint:    &pipeline.Endpoint{Retention: pipeline.Retention{EventsSeconds: 2 * 86400, DeadLettersSeconds: 86400}},
			}}
			got := judge(h, tc.outcome, func(n uint64) uint64 { return (n - 1) / 100 * tc.random })
			if got.Claim != h.claim {
				t.Error("another claim")
			}
			got.Claim = nil
			tc.want.KeepLedger, tc.want.KeepEnded = 2*day, 2*day
			if tc.want.Verdict == event.VerdictDead {
				tc.want.KeepEnded = day
			}
			got.Delay = got.Delay.Round(time.Millisecond) // a percent of what may be drawn is rounded down
			same(t, "outcome", tc.want, got)
		})
	}
}
