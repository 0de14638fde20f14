//go:build e2e

package e2e

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/invariant"
	"github.com/ackrail/ackrail/internal/resources"
)

// row is a line of docs/faults.md, as internal/faults writes them.
type row struct {
	Row, Did                       string
	Failed                         bool
	Requests, Acknowledged, Faults int
	Duplicates, Unexplained        int
	Lost, Broken                   int
	PostgreSQL                     string
}

// The row of the spec that runs, and what was counted before it in its
// namespace.
var (
	current row
	judged  = map[string]*invariant.Verdict{}
)

// breaks says how often what is broken, for the report.
func breaks(times int, did string) {
	current.Faults, current.Did = times, did
	By(did)
}

// judge compares what the senders of some pipelines were answered, which share
// a handler and have all endpoints of their namespace that took anything, with
// the database and with what the handler got, once everything is delivered.
func judge(ctx context.Context, pipelines ...*pipeline) {
	GinkgoHelper()
	ns := pipelines[0].ns
	var endpoints []v1alpha1.WebhookEndpoint
	for _, p := range pipelines {
		endpoints = append(endpoints, *p.get(ctx))
	}
	expect := invariant.Expect{Config: resources.Pipeline(endpoints), Drained: true, Slack: env.outage + 2*time.Minute, Skew: 50 * time.Millisecond}
	var verdict *invariant.Verdict
	Eventually(ctx, func(g Gomega) {
		history := &invariant.History{}
		for _, p := range pipelines {
			p.sender.sends.tell(history, p)
		}
		g.Expect(pipelines[0].handler.tell(ctx, history, pipelines)).To(Succeed())
		var err error
		verdict, err = invariant.Check(ctx, databaseURL(ns), history, expect)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(verdict.Err()).NotTo(HaveOccurred())
	}).WithTimeout(90 * time.Second).WithPolling(2 * time.Second).Should(Succeed())
	AddReportEntry("Verdict", verdict.String())
	last := judged[ns]
	if last == nil {
		last = &invariant.Verdict{}
	}
	judged[ns] = verdict
	current.Requests, current.Acknowledged = verdict.Sends-last.Sends, verdict.Acknowledged-last.Acknowledged
	current.Duplicates, current.Unexplained = verdict.Duplicates-last.Duplicates, verdict.Unexplained-last.Unexplained
	current.Lost, current.Broken = verdict.Lost, len(verdict.Violations)
}

// tell adds what was sent to an endpoint to a history.
func (s *sends) tell(h *invariant.History, p *pipeline) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		one.Namespace, one.Endpoint = p.ns, p.name
		h.Sent(one)
	}
}

// tell adds what the handler got from some endpoints to a history.
func (h *handler) tell(ctx context.Context, history *invariant.History, pipelines []*pipeline) error {
	records, err := h.records(ctx)
	if err != nil {
		return err
	}
	for _, d := range records {
		i := slices.IndexFunc(pipelines, func(p *pipeline) bool { return p.path() == d.Path })
		if i < 0 {
			continue
		}
		r := invariant.Receipt{
			At: d.Time, Namespace: pipelines[i].ns, Endpoint: pipelines[i].name, Destination: "handler",
			EventID: d.ID, Attempt: d.Attempt, Run: d.Run, Replay: d.Replay, Status: d.Status,
		}
		if d.Hang {
			r.Status = 0
		}
		if _, err := hex.Decode(r.Body[:], []byte(d.SHA256)); err != nil {
			return err
		}
		history.Received(r)
	}
	return nil
}

var _ = BeforeEach(func() { current = row{} })

// The rows of the report go to a file, if there is to be one.
var _ = ReportAfterEach(func(report SpecReport) {
	file := os.Getenv("E2E_FAULTS")
	if file == "" || !slices.Contains(report.Labels(), "fault") || report.State.Is(types.SpecStateSkipped|types.SpecStatePending) {
		return
	}
	current.Row, current.Failed = report.LeafNodeText, report.Failed()
	fmt.Printf("\nrow %-8s %5.1f s  %s\n", report.State, report.RunTime.Seconds(), current.Row)
	text, err := json.Marshal(current)
	Expect(err).NotTo(HaveOccurred())
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(f.Close()).To(Succeed()) }()
	Expect(f.Write(append(text, '\n'))).Error().NotTo(HaveOccurred())
})
