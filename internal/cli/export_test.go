package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/store"
)

func exported(t *testing.T, f rig.Finished) []letterView {
	t.Helper()
	if f.Code != 0 {
		t.Fatalf("it ended with code %d and said %s", f.Code, f.Stderr)
	}
	var all []letterView
	for line := range strings.Lines(f.Stdout) {
		var v letterView
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, v)
	}
	return all
}

// Every dead letter is written once, on more pages than one, with its body as
// it was.
func TestEventsExport(t *testing.T) {
	t.Parallel()
	const dead = exportPage + 5
	url, _ := newDeadLetters(t, dead)
	run := func(args ...string) rig.Finished {
		t.Helper()
		return rig.Run(t, "", append([]string{"events", "export", "--database-url", url}, args...)...)
	}
	f := run("-n", "payments")
	all := exported(t, f)
	if len(all) != dead || f.Stderr != fmt.Sprintf("Exported %d dead letters.\n", dead) {
		t.Errorf("%d lines, %q", len(all), f.Stderr)
	}
	if !slices.IsSortedFunc(all, func(a, b letterView) int { return strings.Compare(a.EventID, b.EventID) }) {
		t.Error("they are not in the order of their events")
	}
	seen := map[string]bool{}
	for _, v := range all {
		if seen[v.EventID] || v.Namespace != "payments" || v.Endpoint != "github" || v.Destination != "handler" || v.Run != 1 || v.Attempts != 1 ||
			v.IdempotencyKey != v.EventID || string(v.Body) != "{}" || v.Text == nil || *v.Text != "{}" || v.SizeBytes != 2 ||
			v.Reason != "PermanentStatus" || v.ReceivedAt == nil || v.DiedAt == nil || v.DiedAt.Before(*v.ReceivedAt) {
			t.Fatalf("a line is %+v", v)
		}
		seen[v.EventID] = true
	}
	for args, want := range map[string]int{
		"-A --limit 1": 1, "-A --limit 203": exportPage + 3, "--endpoint payments/github --limit 7 --reason permanentstatus": 7,
		"-A --reason OutcomeUnknown": 0, "-A --type push": 0, "-A --destination other": 0, "": 0,
	} {
		if got := exported(t, run(strings.Fields(args)...)); len(got) != want {
			t.Errorf("%s: %d lines, want %d", args, len(got), want)
		}
	}
	// What a replay has taken up is somebody's already.
	if f := rig.Run(t, goodReplay, "replay", "-f", "-", "--database-url", url); f.Code != 0 {
		t.Fatalf("%+v", f)
	}
	if got := exported(t, run("-A")); len(got) != 0 {
		t.Errorf("%d lines after a replay", len(got))
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestExportStopsWhereItCannotWrite(t *testing.T) {
	t.Parallel()
	_, s := newDeadLetters(t, 2)
	full := errors.New("the disk is full")
	n, err := (&exportFlags{}).export(t.Context(), s, store.DeadLetterFilter{Bytes: 1}, failingWriter{full})
	if n != 0 || !errors.Is(err, full) {
		t.Errorf("%d written, %v", n, err)
	}
}

func TestViewLetter(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tc := range []struct {
		name, want string
		event      *event.Event
	}{
		{"text", `"bodyBase64":"PGI+w6Q=","text":"<b>ä"}`, &event.Event{Body: []byte("<b>ä")}},
		{"no text", `"bodyBase64":"/wA="}`, &event.Event{Body: []byte{0xff, 0}}},
		{"empty", `"bodyBase64":"","text":""}`, &event.Event{}},
		{"gone", `"bodyBase64":null}`, nil},
	} {
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(viewLetter(&store.DeadLetter{Event: tc.event, DeliveryRecord: store.DeliveryRecord{EndedAt: &now}})); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(out.String(), tc.want+"\n") || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: %s, want %s", tc.name, out.String(), tc.want)
		}
	}
}
