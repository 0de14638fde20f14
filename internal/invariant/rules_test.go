package invariant

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	start   = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	first   = uuid.MustParse("01900000-0000-7000-8000-000000000001")
	other   = uuid.MustParse("01900000-0000-7000-8000-000000000002")
	mended  = uuid.MustParse("01900000-0000-4000-8000-00000000000a")
	github  = event.EndpointRef{Namespace: "payments", Name: "github"}
	handler = event.DestinationRef{Endpoint: github, Name: "handler"}
	body    = sha256.Sum256([]byte("body"))
	another = sha256.Sum256([]byte("another"))
)

// at is a moment of the story.
func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// scene is what a case changes: by itself, an event that was sent once and whose second attempt succeeded.
type scene struct {
	*data
	expect Expect
}

func newScene() *scene {
	attempt := func(run, n int) row { return row{Event: first, Destination: 1, Run: run, Attempt: n} }
	d := &data{
		now:          at(60_000),
		destinations: map[int32]event.DestinationRef{1: handler},
		events:       []stored{{id: first, endpoint: github, key: "k", received: at(10), expires: at(86_400_000), body: body, size: 4}},
		attempts:     []attemptRow{{attempt(1, 1), at(20), "worker-1"}, {attempt(1, 2), at(1000), "worker-2"}},
		outcomes:     []outcomeRow{{attempt(1, 1), event.VerdictFailed, http.StatusServiceUnavailable, "HTTPStatus", at(30)}},
		ended:        []endedRow{{row: attempt(1, 2), state: event.StateDone, attempts: 2, status: http.StatusNoContent, at: at(1020)}},
		sends: []Send{{
			Namespace: github.Namespace, Endpoint: github.Name, Key: "k", Body: body, At: at(0), Answered: at(15),
			Status: http.StatusAccepted, EventID: first.String(),
		}},
		receipts: []Receipt{receipt(1, 1, 25, http.StatusServiceUnavailable), receipt(1, 2, 1010, http.StatusNoContent)},
		notes:    []note{{at(500), "the handler was mended"}, {at(90_000), "the test ended"}},
		replays:  map[uuid.UUID]replayRow{},
	}
	return &scene{d, Expect{Drained: true, Since: start, Config: &pipeline.Config{Endpoints: []pipeline.Endpoint{{
		Namespace: github.Namespace, Name: github.Name, LeaseSeconds: 10,
		Retention: pipeline.Retention{EventsSeconds: 86400, DeadLettersSeconds: 86400, DedupSeconds: 86400},
		Destinations: []pipeline.Destination{{
			Name: handler.Name, HTTP: pipeline.HTTP{TimeoutSeconds: 5}, Retry: pipeline.Retry{MaxAttempts: 2, MaxBackoffSeconds: 60},
		}},
	}}}}}
}

func receipt(run, attempt, ms, status int) Receipt {
	return Receipt{
		At: at(ms), Namespace: github.Namespace, Endpoint: github.Name, Destination: handler.Name, EventID: first.String(),
		Run: run, Attempt: attempt, Body: body, Status: status,
	}
}

// replayed has the run that failed for good replayed.
func (s *scene) replayed() {
	s.ended[0].state, s.ended[0].status, s.ended[0].reason, s.ended[0].replayedBy = event.StateDead, 503, event.ReasonAttemptsExhausted, &mended
	s.outcomes = append(s.outcomes, outcomeRow{s.ended[0].row, event.VerdictDead, 503, "HTTPStatus", at(1020)})
	s.receipts[1].Status = 503
	s.replays[mended] = replayRow{name: "payments/mended", planned: at(2000)}
	s.items = []itemRow{{mended, first, 1, 1, "queued"}}
	again := row{Event: first, Destination: 1, Run: 2, Attempt: 1}
	s.attempts = append(s.attempts, attemptRow{again, at(3000), "worker-1"})
	s.ended = append(s.ended, endedRow{row: again, state: event.StateDone, attempts: 1, status: 204, at: at(3020), replay: &mended})
	s.receipts = append(s.receipts, receipt(2, 1, 3010, 204))
}

// vanished has nobody know how the first attempt ended.
func (s *scene) vanished() { s.outcomes = nil }

func (s *scene) send(change func(*Send)) {
	again := s.sends[0]
	again.At, again.Answered, again.Status = at(40), at(45), http.StatusOK
	change(&again)
	s.sends = append(s.sends, again)
}

func TestRules(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*scene)
		// want is the invariant that is broken and a part of what was found, separated by a colon; nothing for none.
		want string
	}{
		{"all is well", func(*scene) {}, ""},
		{"a duplicate", func(s *scene) { s.send(func(*Send) {}) }, ""},
		{"a conflict", func(s *scene) { s.send(func(a *Send) { a.Body = another }) }, ""},
		{"an outcome that the sender does not know", func(s *scene) { s.sends[0].Status, s.sends[0].EventID = 0, "" }, ""},
		{"a forgery that is refused", func(s *scene) { s.send(func(a *Send) { a.Forged, a.Status, a.EventID = true, 401, "" }) }, ""},
		{"an attempt that vanished", (*scene).vanished, ""},
		{"a replay", (*scene).replayed, ""},
		{"a request that was handed back", func(s *scene) {
			s.outcomes[0].verdict, s.outcomes[0].status = event.VerdictReleased, 0
			s.ended[0].attempts, s.receipts = 1, []Receipt{receipt(1, 1, 1010, 204)}
		}, ""},
		{"a claim that found no attempt left", func(s *scene) {
			s.vanished()
			s.ended[0] = endedRow{row: row{first, 1, 1, 4}, state: event.StateDead, attempts: 2, reason: event.ReasonOutcomeUnknown, at: at(2000)}
		}, ""},
		{"a success that did not reach the worker", func(s *scene) { s.outcomes[0].status, s.receipts[0].Status = 0, 204 }, ""},
		{"a late request of a frozen worker", func(s *scene) { s.vanished(); s.receipts[0].At, s.receipts[0].Status = at(2000), 204 }, ""},
		{"a request after the snapshot", func(s *scene) { s.receipts = append(s.receipts, receipt(1, 3, 60_100, 204)) }, ""},
		{"an endpoint that is gone with what it holds", func(s *scene) {
			s.expect.Gone = []event.EndpointRef{github}
			s.attempts, s.outcomes, s.ended, s.receipts = nil, nil, nil, nil
			due := at(10)
			s.open = []openRow{{row: row{first, 1, 1, 0}, state: "pending", next: &due}}
		}, ""},
		{"a key that is used again after its window", func(s *scene) {
			s.expect.Config.Endpoints[0].Retention.DedupSeconds = 1
			s.send(func(a *Send) { a.At, a.Answered, a.Status = at(2000), at(2010), http.StatusAccepted })
		}, ""},
		{"a loss that was announced", func(s *scene) {
			s.expect.LossAnnounced = true
			s.events, s.attempts, s.outcomes, s.ended = nil, nil, nil, nil
		}, ""},

		{"an answer that nobody expects", func(s *scene) { s.send(func(a *Send) { a.Status = 500 }) }, "I1:status 500"},
		{"503 without Retry-After", func(s *scene) { s.send(func(a *Send) { a.Status = 503 }) }, "I1:none"},
		{"a 2xx without an id", func(s *scene) { s.sends[0].EventID = "" }, `I1:""`},
		{"the id of another event", func(s *scene) { s.sends[0].Key = "other"; s.expect.SendersUnknown = true }, `I1:an event of endpoint payments/github, key "k"`},
		{"an event that is gone", func(s *scene) { s.events, s.attempts, s.outcomes, s.ended, s.receipts = nil, nil, nil, nil, nil }, "I1:no such event"},
		{"two ids for a key", func(s *scene) { s.send(func(a *Send) { a.EventID = other.String() }) }, "I2:id " + first.String()},
		{"accepted twice", func(s *scene) { s.send(func(a *Send) { a.Status = http.StatusAccepted }) }, "I2:202 twice"},
		{"two events for a key", func(s *scene) {
			s.events = append(s.events, s.events[0])
			s.events[1].id, s.events[1].received, s.expect.Later = other, at(50), []event.DestinationRef{handler}
		}, "I2:also event " + first.String()},
		{"left open", func(s *scene) {
			due := at(2000)
			s.open, s.ended = []openRow{{row: s.ended[0].row, state: "failed", next: &due}}, nil
		}, "I3:failed with attempt 2"},
		{"nobody knows", func(s *scene) { s.ended = nil; s.sends[0].Status, s.sends[0].EventID = 0, "" }, "I3:in the ledger only"},
		{"open and done", func(s *scene) {
			due := at(2000)
			s.open = []openRow{{row: s.ended[0].row, state: "failed", next: &due}}
		}, "I3:failed with attempt 2, done with attempt 2"},
		{"taken over too late", func(s *scene) {
			s.vanished()
			s.attempts[1].started, s.ended[0].at, s.receipts[1].At = at(31_000), at(31_020), at(31_010)
		}, "I3:30.98s"},
		{"a request without an id", func(s *scene) { s.receipts[0].EventID = "?" }, `I4:"?" at handler`},
		{"a request that was not claimed", func(s *scene) { s.receipts = append(s.receipts, receipt(1, 3, 2000, 503)) }, "I4:2 attempts"},
		{"a request sent twice", func(s *scene) { s.receipts = append(s.receipts, receipt(1, 1, 26, 503)) }, "I4:one more"},
		{"a request before its claim", func(s *scene) { s.receipts[0].At = at(12) }, "I4:8ms after"},
		{"a request that was handed back but sent", func(s *scene) {
			s.outcomes[0].verdict, s.outcomes[0].status, s.ended[0].attempts = event.VerdictReleased, 0, 1
			s.attempts, s.ended, s.receipts = s.attempts[:1], nil, s.receipts[:1]
			due := at(1000)
			s.open = []openRow{{row: s.attempts[0].row, state: "pending", released: 1, next: &due}}
			s.expect.Drained = false
		}, "I4:it was received"},
		{"an outcome without an intent", func(s *scene) {
			s.attempts, s.ended[0].attempts = s.attempts[1:], 1
			s.receipts = s.receipts[1:]
			s.receipts[0].Attempt = 1
		}, "I4:failed of attempt 1"},
		{"a success that was not received", func(s *scene) { s.receipts = s.receipts[:1] }, "I4:attempt 1 answered with 503"},
		{"a success that was known, and sent again", func(s *scene) { s.outcomes[0].status, s.receipts[0].Status = 204, 204 }, "I4:with every outcome known"},
		{"an outcome after another claim", func(s *scene) { s.outcomes[0].ended = at(1010) }, "I5:failed recorded 10ms later"},
		{"two outcomes", func(s *scene) { s.outcomes = append(s.outcomes, s.outcomes[0]) }, "I5:2"},
		{"an end with an earlier attempt", func(s *scene) {
			s.vanished()
			s.ended[0].Attempt, s.ended[0].attempts = 1, 1
			s.receipts[0].Status = 204
		}, "I5:done with attempt 1"},
		{"too many attempts", func(s *scene) { s.expect.Config.Endpoints[0].Destinations[0].Retry.MaxAttempts = 1 }, "I7:2"},
		{"never again", func(s *scene) {
			s.open, s.ended, s.expect.Drained = []openRow{{row: s.ended[0].row, state: "claimed"}}, nil, false
		}, "I7:none"},
		{"in a year", func(s *scene) {
			due := at(365 * 86_400_000)
			s.open, s.ended, s.expect.Drained = []openRow{{row: s.ended[0].row, state: "claimed", next: &due}}, nil, false
		}, "I7:in 8759h59m0s"},
		{"a run that is missing", func(s *scene) {
			s.replayed()
			s.attempts, s.outcomes, s.ended, s.receipts = s.attempts[2:], nil, s.ended[1:], s.receipts[2:]
		}, "I8:run 0"},
		{"a run that nobody started", func(s *scene) { s.replayed(); s.ended[1].replay = nil; s.items = nil }, "I8:none"},
		{"a run that was not taken", func(s *scene) { s.replayed(); s.items = nil }, "I8:it took no such run"},
		{"a dead letter that stays open", func(s *scene) { s.replayed(); s.ended[0].replayedBy = nil }, "I8:taken by none"},
		{"a run that was taken but not started", func(s *scene) {
			s.replayed()
			s.attempts, s.ended, s.receipts = s.attempts[:2], s.ended[:1], s.receipts[:2]
		}, "I8:no such run"},
		{"an attempt before the event", func(s *scene) { s.attempts[0].started = at(5) }, "I9:5ms before"},
		{"older than the test", func(s *scene) { s.expect.Since = at(15) }, "I9:5ms before"},
		{"from the future", func(s *scene) { s.ended[0].at = at(61_000) }, "I9:in 1s"},
		{"an event that is gone with its endpoint", func(s *scene) {
			s.expect.Gone = []event.EndpointRef{github}
			s.events, s.attempts, s.outcomes, s.ended, s.receipts = nil, nil, nil, nil, nil
		}, "I10:no such event"},
		{"stored otherwise", func(s *scene) {
			s.events[0].body = another
			for i := range s.receipts {
				s.receipts[i].Body = another
			}
		}, "I11:, 4 bytes"},
		{"received otherwise", func(s *scene) { s.receipts[0].Body = another }, "I11:in attempt 1"},
		{"a forgery that is answered", func(s *scene) { s.send(func(a *Send) { a.Forged = true }) }, "I12:status 200"},
		{"a forgery that is stored", func(s *scene) { s.sends[0].Forged, s.sends[0].Status, s.sends[0].EventID = true, 401, "" }, "I12:an event of one"},
		{"an event from nowhere", func(s *scene) { s.sends = nil }, "I12:an event that nobody sent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene()
			tc.change(s)
			v := judge(s.data, s.expect)
			invariant, found, _ := strings.Cut(tc.want, ":")
			matches := func(v Violation) bool { return v.Invariant == invariant && strings.Contains(v.Found, found) }
			if tc.want == "" && v.Err() != nil || tc.want != "" && !slices.ContainsFunc(v.Violations, matches) {
				t.Errorf("want %q, got\n%s", tc.want, v)
			}
		})
	}
}

func TestReport(t *testing.T) {
	for name, change := range map[string]func(*scene){
		"clean": func(s *scene) { s.replayed(); s.send(func(*Send) {}) },
		"broken": func(s *scene) {
			s.replayed()
			s.send(func(a *Send) { a.Body = another })
			s.send(func(a *Send) { a.Status, a.EventID, a.RetryAfter = 503, "", "1" })
			s.send(func(a *Send) { a.Status, a.EventID, a.Err = 0, "", "connection reset" })
			for i := range 7 {
				s.send(func(a *Send) {
					a.Key, a.At, a.Answered, a.EventID = fmt.Sprintf("lost-%d", i), at(100+i), at(110+i), uuid.NewSHA1(first, []byte{byte(i)}).String()
				})
			}
			s.outcomes[0].ended, s.receipts[0].Status = at(1010), 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			change(s)
			got := judge(s.data, s.expect).String()
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the report (-want +got); go test -update writes the file anew:\n%s", diff)
			}
		})
	}
}
