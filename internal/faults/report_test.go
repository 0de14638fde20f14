package faults

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ackrail/ackrail/internal/invariant"
)

// result is what one run of a row has for the report.
type result struct {
	Row, Did string
	Failed   bool
	// Requests were sent, Acknowledged of them answered with 2xx.
	Requests, Acknowledged int
	// Faults were injected: kills, cuts and the like.
	Faults int
	// InFlight were claimed when their worker was killed. Duplicates came to
	// the destination again after it had answered with 2xx; for those that
	// are Unexplained the ledger knows how the attempt before ended.
	InFlight, Duplicates, Unexplained int
	// Lost were acknowledged and are not there. Broken counts violations of
	// any invariant.
	Lost, Broken int
	// LateWrites were forced with an attempt that was no longer current, of
	// which LateAccepted had effect.
	LateWrites, LateAccepted int
	// Redelivery is the slowest one's time after the end of a killed or
	// stopped worker's lease.
	Redelivery time.Duration
	// Return is the longest from the database's return to the first 202.
	Return time.Duration
	// SlowestRefusal is how long a sender waited for a 503.
	SlowestRefusal time.Duration
	PostgreSQL     string
}

var (
	// names are those of the rows, in the order of the report.
	names []string
	// results are those of this run.
	results []*result
)

// measure fills in what can be counted at the end of a row.
func (w *world) measure() {
	r := w.result
	r.Requests, r.Acknowledged = w.history.Sends(), w.history.Acknowledged()
	if err := w.Pool.QueryRow(w.ctx, "SHOW server_version").Scan(&r.PostgreSQL); err != nil {
		w.t.Fatal(err)
	}
}

// take counts what the checker found.
func (r *result) take(v *invariant.Verdict) {
	r.Broken = len(v.Violations)
	r.Duplicates, r.Unexplained = v.Duplicates, v.Unexplained
	for i := range v.Violations {
		if v.Violations[i].Invariant == invariant.I1 {
			r.Lost++
		}
	}
}

// save appends results to a file, one a line.
func save(file string, results []*result) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(f)
	for _, r := range results {
		if err := encoder.Encode(r); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// read returns the results that a file has.
func read(file string) ([]*result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*result
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		r := &result{}
		switch err := decoder.Decode(r); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, r)
	}
}

// total is all runs of one row, or of all rows.
type total struct {
	result
	runs, failed              int
	redelivery, back, refusal slowest
}

// slowest is the longest time that something took, and in which row.
type slowest struct {
	took time.Duration
	row  string
}

func (s *slowest) add(row string, took time.Duration) {
	if took > s.took {
		s.took, s.row = took, row
	}
}

func (s slowest) String() string {
	if s.row == "" {
		return "–"
	}
	return fmt.Sprintf("%.2f s (%s)", s.took.Seconds(), s.row)
}

func (t *total) add(r *result) {
	t.runs++
	if r.Failed {
		t.failed++
	}
	t.Row, t.Did, t.PostgreSQL = r.Row, r.Did, cmp.Or(r.PostgreSQL, t.PostgreSQL)
	t.Requests += r.Requests
	t.Acknowledged += r.Acknowledged
	t.Faults += r.Faults
	t.InFlight += r.InFlight
	t.Duplicates += r.Duplicates
	t.Unexplained += r.Unexplained
	t.Lost += r.Lost
	t.Broken += r.Broken
	t.LateWrites += r.LateWrites
	t.LateAccepted += r.LateAccepted
	t.redelivery.add(r.Row, r.Redelivery)
	t.back.add(r.Row, r.Return)
	t.refusal.add(r.Row, r.SlowestRefusal)
}

func (t *total) verdict() string {
	switch {
	case t.failed > 0:
		return fmt.Sprintf("**failed %d of %d**", t.failed, t.runs)
	case t.runs > 1:
		return fmt.Sprintf("held %d times", t.runs)
	}
	return "held"
}

const documentHead = `<!-- make faults writes this page. -->
# What was broken, and what held

Every row has a PostgreSQL server of its own that syncs to disk, real ingress and worker processes, and senders that
repeat each webhook until it is acknowledged, with duplicates and forged ones among them. At its end the faults are
healed, everything is delivered, and one checker compares what the senders were answered, the database, its ledger and
what the destination received with the invariants of [the architecture](architecture.md). The last rows are specs of the
end-to-end tests, on a cluster with the chart installed, and are judged in the same way. ` + "`make faults`" + ` runs all and
writes this page; the short set is part of ` + "`make test`" + `, and the rows on the cluster of ` + "`make e2e`" + `.

| row | what was done | requests | acknowledged | kills and other faults | verdict |
| --- | --- | ---: | ---: | ---: | --- |
`

// writeDocument writes the report on results: one line a row, those of other
// suites last, and the figures of all together.
func writeDocument(file string, all []*result) error {
	rows, sum, order := map[string]*total{}, &total{}, slices.Clone(names)
	for _, r := range all {
		if rows[r.Row] == nil {
			rows[r.Row] = &total{}
		}
		if !slices.Contains(order, r.Row) {
			order = append(order, r.Row)
		}
		rows[r.Row].add(r)
		sum.add(r)
	}
	var text strings.Builder
	text.WriteString(documentHead)
	for _, name := range order {
		t := rows[name]
		if t == nil {
			continue
		}
		fmt.Fprintf(&text, "| %s | %s | %d | %d | %d | %s |\n", t.Row, t.Did, t.Requests, t.Acknowledged, t.Faults, t.verdict())
	}
	text.WriteString("\n| in all | |\n| --- | ---: |\n")
	for _, f := range sum.figures() {
		fmt.Fprintf(&text, "| %s | %s |\n", f[0], f[1])
	}
	fmt.Fprintf(&text, "\nMeasured on %s, with PostgreSQL %s and %s.\n", machine(), sum.PostgreSQL, runtime.Version())
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

func (t *total) figures() [][2]string {
	ratio := "–"
	if t.InFlight > 0 {
		ratio = fmt.Sprintf("%d ÷ %d = %.2f", t.Duplicates, t.InFlight, float64(t.Duplicates)/float64(t.InFlight))
	}
	return [][2]string{
		{"runs of rows, failed", fmt.Sprintf("%d, %d", t.runs, t.failed)},
		{"requests sent, acknowledged", fmt.Sprintf("%d, %d", t.Requests, t.Acknowledged)},
		{"faults injected", fmt.Sprint(t.Faults)},
		{"acknowledged events lost", fmt.Sprint(t.Lost)},
		{"invariants broken", fmt.Sprint(t.Broken)},
		{"forced late writes, accepted of them", fmt.Sprintf("%d, %d", t.LateWrites, t.LateAccepted)},
		{"duplicates ÷ in flight at a kill", ratio},
		{"duplicates without an unknown outcome in the ledger", fmt.Sprint(t.Unexplained)},
		{fmt.Sprintf("slowest redelivery after the end of a lease (%s)", lease), t.redelivery.String()},
		{"slowest first 202 after the database's return", t.back.String()},
		{"slowest 503", t.refusal.String()},
	}
}

// machine describes what the rows ran on.
func machine() string {
	system := runtime.GOOS
	if out, err := exec.Command("uname", "-sr").Output(); err == nil {
		system = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), system, runtime.GOARCH)
}
