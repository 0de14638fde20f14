package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
)

func newEventsExplain() *cobra.Command {
	var database databaseFlag
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "explain EVENT-ID",
		Short: "Explain where an event is, why, and what can be done",
		Long: `Explain in plain words, for each destination, where an event is and why, what
happens next, and what a person can do. It goes by what the database knows:
whether the endpoint is suspended or its pods run, it cannot say. The commands
that it proposes are for a cluster; elsewhere, use ackrail replay -f for
ackrail replay create.`,
		Example: `  ackrail events explain 0199c3b2-6f40-7c1a-9d3e-5b8a1f2c4d6e`,
		Args:    oneEvent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return database.event(cmd.Context(), args[0], &output, func(id event.ID, record *store.EventRecord) error {
				e := explainer{id: id, record: record, now: time.Now(), program: cmd.Root().DisplayName()}
				if output.format != "text" {
					return printObject(cmd.OutOrStdout(), output.format, map[string]any{"id": id.String(), "destinations": e.explain()})
				}
				e.print(cmd.OutOrStdout())
				return nil
			})
		},
	}
	database.register(cmd)
	output.register(cmd, "text", "json", "yaml")
	return cmd
}

// explanation says where an event stands at one destination.
type explanation struct {
	Destination string `json:"destination"`
	Run         int    `json:"run"`
	State       string `json:"state"`
	Where       string `json:"where"`
	Why         string `json:"why"`
	Next        string `json:"next"`
	// Do are sentences, Commands what to type for them.
	Do       string   `json:"do"`
	Commands []string `json:"commands,omitempty"`
	// Earlier are the runs before, oldest first.
	Earlier []string `json:"earlier,omitempty"`
}

// explainer explains one event.
type explainer struct {
	id      event.ID
	record  *store.EventRecord
	now     time.Time
	program string // as the user types it
}

// explain returns one explanation for each destination, by the latest run.
func (e *explainer) explain() []explanation {
	all := []explanation{}
	deliveries := e.record.Deliveries // by destination and run
	for i := range deliveries {
		d := &deliveries[i]
		if i > 0 && deliveries[i-1].Key.Destination == d.Key.Destination {
			last := &all[len(all)-1]
			earlier := append(last.Earlier, e.history(&deliveries[i-1]))
			*last = e.delivery(d)
			last.Earlier = earlier
			continue
		}
		all = append(all, e.delivery(d))
	}
	return all
}

func (e *explainer) delivery(d *store.DeliveryRecord) explanation {
	x := explanation{Destination: d.Key.Destination.Name, Run: d.Key.Run, State: string(d.State)}
	switch d.State {
	case event.StatePending:
		e.pending(&x, d)
	case event.StateClaimed:
		e.claimed(&x, d)
	case event.StateFailed:
		e.failed(&x, d)
	case event.StateDone:
		e.done(&x, d)
	case event.StateDead:
		e.dead(&x, d)
	}
	if d.Replay != nil {
		x.Where += fmt.Sprintf("; run %d was started by the replay %s", d.Key.Run, d.Replay)
	}
	return x
}

func (e *explainer) pending(x *explanation, d *store.DeliveryRecord) {
	x.Where = "waits in the queue, due " + e.when(d.NextAt)
	x.Why = "no worker has taken it yet"
	if a := e.last(d); a != nil && a.Result == store.AttemptResult(event.VerdictReleased) {
		x.Why = fmt.Sprintf("worker %s handed it back unsent %s, as it does when it is told to stop", a.Worker, e.when(a.EndedAt))
	}
	x.Next = "the next worker that is free takes it; what is due longer comes first"
	x.Do = "nothing, unless it stays so: then see whether the endpoint is suspended, its workers run, and the destination is still in its spec"
	x.Commands = []string{e.describeEndpoint(d)}
}

func (e *explainer) claimed(x *explanation, d *store.DeliveryRecord) {
	worker, attempt, since := "a worker", "an attempt", ""
	if a := e.last(d); a != nil && a.Result == store.AttemptRunning {
		worker, attempt, since = "worker "+a.Worker, fmt.Sprintf("attempt %d", a.Attempt), ", begun "+e.when(&a.StartedAt)
	}
	x.Where = fmt.Sprintf("is held by %s with %s%s; the lease ends %s", worker, attempt, since, e.when(d.NextAt))
	if d.NextAt != nil && !d.NextAt.After(e.now) {
		x.Why = "the worker has not said how the attempt ended, and its lease is over: it has vanished, or is cut off from the database"
		x.Next = "the next worker that is free takes it over with another attempt, unless that was the last one allowed"
		x.Do = "nothing, unless it stays so: then see whether the endpoint's workers run"
		x.Commands = []string{e.describeEndpoint(d)}
		return
	}
	x.Why = "the request is being sent, or is about to be"
	x.Next = "the worker writes down how it ended; if it does not, another one takes over when the lease is over"
	x.Do = "nothing"
}

func (e *explainer) failed(x *explanation, d *store.DeliveryRecord) {
	x.Where = fmt.Sprintf("waits for its next attempt, after %s", count(d.Attempts, "attempt"))
	x.Why = "the last attempt failed"
	hint := ""
	if a := e.lastOutcome(d); a != nil {
		x.Why = fmt.Sprintf("attempt %d failed %s: %s", a.Attempt, e.when(a.EndedAt), trouble(a.Status, a.ErrorClass, a.Error, a.Excerpt))
		hint = remedy(a.ErrorClass)
	}
	if d.NextAt != nil && !d.NextAt.After(e.now) {
		x.Next = "the next attempt is due " + e.when(d.NextAt) + ": the next worker that is free makes it"
	} else {
		x.Next = "the next attempt is made " + e.when(d.NextAt) + "; when the last one allowed by the destination's retry.maxAttempts has failed, it goes to the dead letters"
	}
	x.Do = strings.TrimPrefix(hint+"; otherwise nothing", "; otherwise ")
	x.Commands = []string{e.describeEndpoint(d)}
}

func (e *explainer) done(x *explanation, d *store.DeliveryRecord) {
	x.Where = "was delivered " + e.when(d.EndedAt)
	x.Why = fmt.Sprintf("the destination took it with status %d, after %s", d.LastStatus, count(d.Attempts, "attempt"))
	x.Next = "nothing"
	x.Do = "if its effect was lost at the destination, deliver it again"
	if e.record.Event == nil {
		x.Do = "nothing: the event's body is no longer kept, so it cannot be delivered again"
		return
	}
	x.Commands = []string{e.replay(d, " --state done")}
}

func (e *explainer) dead(x *explanation, d *store.DeliveryRecord) {
	x.Where = "is a dead letter since " + e.at(d.EndedAt)
	x.Why = e.death(d)
	if d.ReplayedBy != nil {
		x.Next = fmt.Sprintf("the replay %s took it up; how its run ended is no longer kept", d.ReplayedBy)
		x.Do = "see what became of the replay"
		x.Commands = []string{fmt.Sprintf("kubectl get replay -n %s -o custom-columns=NAME:.metadata.name,UID:.metadata.uid", d.Key.Destination.Endpoint.Namespace)}
		return
	}
	x.Next = "nothing by itself: it stays until somebody replays it, or its retention is over"
	if e.record.Event == nil || d.Reason == event.ReasonPayloadMissing {
		x.Do = "it cannot be replayed, since the event's body is no longer kept: have the sender send it again"
		return
	}
	x.Do = "replay it"
	if hint := e.remedyOf(d); hint != "" {
		x.Do = hint + ", then replay it"
	}
	x.Commands = []string{e.replay(d, "")}
}

// remedyOf is what should be done before a dead letter is replayed.
func (e *explainer) remedyOf(d *store.DeliveryRecord) string {
	if d.Reason == event.ReasonOutcomeUnknown {
		return "see at the destination whether the event has arrived, which it knows by its webhook-id " + e.id.String()
	}
	return remedy(d.ErrorClass)
}

// death says why a delivery is dead.
func (e *explainer) death(d *store.DeliveryRecord) string {
	excerpt := ""
	if a := e.lastOutcome(d); a != nil {
		excerpt = a.Excerpt
	}
	met := trouble(d.LastStatus, d.ErrorClass, d.LastError, excerpt)
	switch d.Reason {
	case event.ReasonPermanentStatus:
		return met + ", which says that trying again is of no use (PermanentStatus)"
	case event.ReasonAttemptsExhausted:
		return fmt.Sprintf("all %s that are allowed have failed (AttemptsExhausted); of the last: %s", count(d.Attempts, "attempt"), met)
	case event.ReasonOutcomeUnknown:
		return "the worker of the last allowed attempt vanished before it could say how that ended: the destination may have taken the event (OutcomeUnknown)"
	case event.ReasonPayloadMissing:
		return "the event's body was no longer in the database when it was to be sent (PayloadMissing)"
	}
	return fmt.Sprintf("%s (%s)", met, d.Reason)
}

// history says in one line how an earlier run ended.
func (e *explainer) history(d *store.DeliveryRecord) string {
	line := fmt.Sprintf("run %d: ", d.Key.Run)
	switch d.State {
	case event.StateDone:
		line += fmt.Sprintf("delivered %s with status %d", e.when(d.EndedAt), d.LastStatus)
	case event.StateDead:
		line += fmt.Sprintf("dead since %s: %s", e.at(d.EndedAt), e.death(d))
	default:
		line += string(d.State)
	}
	if d.ReplayedBy != nil {
		line += fmt.Sprintf("; the replay %s took it up", d.ReplayedBy)
	}
	return line
}

// last returns the last attempt of a run, nil if there was none.
func (e *explainer) last(d *store.DeliveryRecord) *store.AttemptRecord {
	return e.lastOf(d, func(*store.AttemptRecord) bool { return true })
}

// lastOutcome returns the last attempt of a run that was made and whose
// outcome is known.
func (e *explainer) lastOutcome(d *store.DeliveryRecord) *store.AttemptRecord {
	return e.lastOf(d, func(a *store.AttemptRecord) bool {
		return a.Result == store.AttemptResult(event.VerdictFailed) || a.Result == store.AttemptResult(event.VerdictDead)
	})
}

func (e *explainer) lastOf(d *store.DeliveryRecord, is func(*store.AttemptRecord) bool) *store.AttemptRecord {
	var last *store.AttemptRecord
	for i := range e.record.Attempts {
		a := &e.record.Attempts[i]
		if a.Destination == d.Key.Destination.Name && a.Run == d.Key.Run && is(a) && (last == nil || a.Attempt > last.Attempt) {
			last = a
		}
	}
	return last
}

func (e *explainer) replay(d *store.DeliveryRecord, more string) string {
	to := d.Key.Destination
	return fmt.Sprintf("%s replay create NAME -n %s --endpoint %s --destination %s --event-id %s%s --wait",
		e.program, to.Endpoint.Namespace, to.Endpoint.Name, to.Name, e.id, more)
}

func (e *explainer) describeEndpoint(d *store.DeliveryRecord) string {
	to := d.Key.Destination.Endpoint
	return fmt.Sprintf("kubectl describe webhookendpoint %s -n %s", to.Name, to.Namespace)
}

// when says "at" which time something was or will be, and how far off it is.
func (e *explainer) when(t *time.Time) string { return "at " + e.at(t) }

func (e *explainer) at(t *time.Time) string {
	if t == nil {
		return "an unknown time"
	}
	off := "in " + duration.HumanDuration(t.Sub(e.now))
	if !t.After(e.now) {
		off = duration.HumanDuration(e.now.Sub(*t)) + " ago"
	}
	return fmt.Sprintf("%s (%s)", t.UTC().Format(time.RFC3339), off)
}

// maxExcerpt bounds, in bytes, what a sentence quotes of a response.
const maxExcerpt = 200

// trouble says what an attempt met.
func trouble(status int, class event.ErrorClass, text, excerpt string) string {
	what, known := map[event.ErrorClass]string{
		event.ErrorTimeout:           "the destination did not answer in time",
		event.ErrorDNS:               "the destination's name could not be resolved",
		event.ErrorConnectionRefused: "the destination refused the connection",
		event.ErrorConnectionReset:   "the connection broke before the answer was there",
		event.ErrorTLS:               "no secure connection could be made",
		event.ErrorProtocol:          "what came back was no HTTP answer",
		event.ErrorNetwork:           "the destination could not be reached",
		event.ErrorSigningSecret:     "the request could not be signed, and was not sent",
		event.ErrorCanceled:          "the worker was told to stop before the answer came",
	}[class]
	switch {
	case status != 0:
		what = fmt.Sprintf("the destination answered with status %d", status)
		if excerpt = strings.TrimSpace(excerpt); excerpt != "" {
			if len(excerpt) > maxExcerpt {
				excerpt = strings.ToValidUTF8(excerpt[:maxExcerpt], "") + " …"
			}
			what += " and " + strconv.Quote(excerpt)
		}
		return what
	case !known:
		what = "the attempt failed"
	}
	if text != "" {
		what += " (" + breaks.Replace(text) + ")"
	}
	return what
}

// remedy says what to look after, by what an attempt met.
func remedy(class event.ErrorClass) string {
	switch class {
	case event.ErrorHTTPStatus, event.ErrorProtocol:
		return "correct the handler, by its own logs"
	case event.ErrorTimeout:
		return "make the handler answer sooner, or raise the destination's http.timeoutSeconds"
	case event.ErrorDNS, event.ErrorConnectionRefused, event.ErrorConnectionReset, event.ErrorNetwork:
		return "see that the destination's address is right, and that something answers there"
	case event.ErrorTLS:
		return "see that the destination's certificate is valid for its name"
	case event.ErrorSigningSecret:
		return "correct the Secret that the destination's http.signingSecretRef names"
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// print prints the explanations for people.
func (e *explainer) print(out io.Writer) {
	head := fmt.Sprintf("Event %s", e.id)
	if ev := e.record.Event; ev != nil {
		head += fmt.Sprintf(" of endpoint %s, type %s, received %s", ev.Endpoint, orNone(ev.Type), e.when(&ev.ReceivedAt))
	} else {
		head += ", whose body is no longer kept"
	}
	say(out, "%s", head)
	all := e.explain()
	if len(all) == 0 {
		say(out, "\nIt was accepted for no destination, or its deliveries are no longer kept.")
	}
	for _, x := range all {
		say(out, "\n%s: %s", x.Destination, x.State)
		say(out, "  Where:    it %s", x.Where)
		say(out, "  Why:      %s", x.Why)
		say(out, "  Next:     %s", x.Next)
		say(out, "  You can:  %s", x.Do)
		for _, command := range x.Commands {
			say(out, "              %s", command)
		}
		for _, line := range x.Earlier {
			say(out, "  Before:   %s", line)
		}
	}
}
