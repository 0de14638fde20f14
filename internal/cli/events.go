package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
)

// queryTimeout bounds a command that only asks the database something.
const queryTimeout = 30 * time.Second

func newEvents() *cobra.Command {
	return group(&cobra.Command{
		Use:     "events",
		Aliases: []string{"event"},
		Short:   "Look at events and what became of them",
	}, newEventsList(), newEventsShow(), newEventsExplain(), newEventsExport(), newEventsImport())
}

// selectionFlags select events, or what became of them.
type selectionFlags struct {
	namespace     string
	allNamespaces bool
	endpoint      string
	destination   string
	types         []string
}

func (f *selectionFlags) register(flags *pflag.FlagSet) {
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "namespace to look in")
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "look in all namespaces")
	flags.StringVar(&f.endpoint, "endpoint", "", "only this endpoint: NAME or NAMESPACE/NAME")
	flags.StringVar(&f.destination, "destination", "", "only this destination")
	flags.StringSliceVar(&f.types, "type", nil, "only these event types")
}

// place returns the namespace and the endpoint to look in, "" for any.
func (f *selectionFlags) place() (namespace, endpoint string, err error) {
	if f.endpoint != "" {
		ref, err := event.ParseEndpointRef(f.endpoint, f.namespace)
		if err != nil {
			return "", "", fmt.Errorf("--endpoint: %w", err)
		}
		return ref.Namespace, ref.Name, nil
	}
	if f.allNamespaces {
		return "", "", nil
	}
	return f.namespace, "", nil
}

// listFlags are the flags of ackrail events list.
type listFlags struct {
	database  databaseFlag
	output    outputFlag
	selection selectionFlags
	states    []string
	limit     int
}

func newEventsList() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List deliveries, the newest first",
		Long: `List deliveries, the newest first: one for each event, destination and run.
ackrail events show has the attempts.`,
		Example: `  ackrail events list
  ackrail events list --endpoint github --state dead
  ackrail events list -A -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.database.register(cmd)
	f.output.register(cmd, "table", "wide", "json", "yaml")
	flags := cmd.Flags()
	f.selection.register(flags)
	flags.StringSliceVar(&f.states, "state", nil, "only these states: "+strings.Join(stateNames, ", "))
	flags.IntVar(&f.limit, "limit", 50, "list at most so many")
	return cmd
}

var stateNames = []string{
	string(event.StatePending), string(event.StateClaimed), string(event.StateFailed), string(event.StateDone), string(event.StateDead),
}

func (f *listFlags) filter() (store.Filter, error) {
	x := &f.selection
	filter := store.Filter{Destination: x.destination, Types: x.types, Limit: f.limit}
	var err error
	if filter.Namespace, filter.Endpoint, err = x.place(); err != nil {
		return filter, err
	}
	for _, s := range f.states {
		state := event.State(strings.ToLower(s))
		if !slices.Contains(stateNames, string(state)) {
			return filter, fmt.Errorf("--state: unknown state %q: use one of %s", s, strings.Join(stateNames, ", "))
		}
		filter.States = append(filter.States, state)
	}
	if f.limit < 1 {
		return filter, fmt.Errorf("--limit: must be at least 1, is %d", f.limit)
	}
	return filter, f.output.check()
}

func (f *listFlags) run(cmd *cobra.Command) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	return f.database.query(cmd.Context(), func(ctx context.Context, s *store.Store) error {
		deliveries, err := s.ListDeliveries(ctx, filter)
		if err != nil {
			return err
		}
		return f.print(cmd, deliveries)
	})
}

// query opens the database for a command that asks it one thing.
func (f *databaseFlag) query(ctx context.Context, do func(context.Context, *store.Store) error) error {
	return f.open(ctx, func(s *store.Store) error {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		return do(ctx, s)
	})
}

// open opens the database for a command that reads from it.
func (f *databaseFlag) open(ctx context.Context, do func(*store.Store) error) error {
	url, err := f.required()
	if err != nil {
		return err
	}
	s, err := store.Open(url, store.Options{MaxConns: 2, Name: "ackrail"})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := ping(ctx, s); err != nil {
		return err
	}
	return do(s)
}

// ping tells early whether a database can be used.
func ping(ctx context.Context, s *store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.Ping(ctx)
}

func (f *listFlags) print(cmd *cobra.Command, deliveries []store.DeliveryRecord) error {
	if f.output.format == "json" || f.output.format == "yaml" {
		items := make([]deliveryView, len(deliveries))
		for i := range deliveries {
			items[i] = viewDelivery(&deliveries[i])
		}
		return printObject(cmd.OutOrStdout(), f.output.format, map[string]any{"items": items})
	}
	if len(deliveries) == 0 {
		cmd.PrintErrln("No deliveries found.")
		return nil
	}
	wide := f.output.format == "wide"
	header := []string{"EVENT", "ENDPOINT", "TYPE", "DESTINATION", "RUN", "STATE", "ATTEMPTS", "REASON", "AGE"}
	if wide {
		header = append(header, "STATUS", "NEXT", "ERROR")
	}
	t := newTable(cmd.OutOrStdout(), header...)
	for i := range deliveries {
		d := &deliveries[i]
		row := []string{
			d.Key.Event.String(), d.Key.Destination.Endpoint.String(), d.Type, d.Key.Destination.Name,
			strconv.Itoa(d.Key.Run), stateText(d), strconv.Itoa(d.Attempts), string(d.Reason), age(d.ReceivedAt),
		}
		if wide {
			row = append(row, statusText(d.LastStatus), until(d.NextAt), d.LastError)
		}
		t.row(row...)
	}
	t.flush()
	return nil
}

// stateText is a delivery's state, with what has become of a dead letter.
func stateText(d *store.DeliveryRecord) string {
	if d.ReplayedBy != nil {
		return string(d.State) + " (replayed)"
	}
	return string(d.State)
}

func statusText(status int) string {
	if status == 0 {
		return ""
	}
	return strconv.Itoa(status)
}

// until tells when a delivery is due.
func until(t *time.Time) string {
	switch {
	case t == nil:
		return ""
	case !t.After(time.Now()):
		return "now"
	}
	return "in " + time.Until(*t).Round(time.Second).String()
}

// deliveryView is a delivery in JSON.
type deliveryView struct {
	EventID     string     `json:"eventId"`
	Namespace   string     `json:"namespace"`
	Endpoint    string     `json:"endpoint"`
	Destination string     `json:"destination"`
	Run         int        `json:"run"`
	State       string     `json:"state"`
	Attempts    int        `json:"attempts"`
	Type        string     `json:"type,omitempty"`
	SizeBytes   int        `json:"sizeBytes"`
	ReceivedAt  *time.Time `json:"receivedAt,omitempty"`
	NextAt      *time.Time `json:"nextAt,omitempty"`
	EndedAt     *time.Time `json:"endedAt,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	LastStatus  int        `json:"lastStatus,omitempty"`
	ErrorClass  string     `json:"errorClass,omitempty"`
	LastError   string     `json:"lastError,omitempty"`
	Replay      *uuid.UUID `json:"replay,omitempty"`
	ReplayedBy  *uuid.UUID `json:"replayedBy,omitempty"`
}

func viewDelivery(d *store.DeliveryRecord) deliveryView {
	return deliveryView{
		EventID: d.Key.Event.String(), Namespace: d.Key.Destination.Endpoint.Namespace, Endpoint: d.Key.Destination.Endpoint.Name,
		Destination: d.Key.Destination.Name, Run: d.Key.Run, State: string(d.State), Attempts: d.Attempts, Type: d.Type, SizeBytes: d.Size,
		ReceivedAt: d.ReceivedAt, NextAt: d.NextAt, EndedAt: d.EndedAt, Reason: string(d.Reason), LastStatus: d.LastStatus,
		ErrorClass: string(d.ErrorClass), LastError: d.LastError, Replay: d.Replay, ReplayedBy: d.ReplayedBy,
	}
}

// attemptView is an attempt in JSON.
type attemptView struct {
	Destination string     `json:"destination"`
	Run         int        `json:"run"`
	Attempt     int        `json:"attempt"`
	Result      string     `json:"result"`
	Worker      string     `json:"worker"`
	StartedAt   time.Time  `json:"startedAt"`
	EndedAt     *time.Time `json:"endedAt,omitempty"`
	Status      int        `json:"status,omitempty"`
	LatencyMS   int64      `json:"latencyMs,omitempty"`
	ErrorClass  string     `json:"errorClass,omitempty"`
	Error       string     `json:"error,omitempty"`
	Excerpt     string     `json:"responseExcerpt,omitempty"`
}

func viewAttempt(a *store.AttemptRecord) attemptView {
	return attemptView{
		Destination: a.Destination, Run: a.Run, Attempt: a.Attempt, Result: string(a.Result), Worker: a.Worker, StartedAt: a.StartedAt,
		EndedAt: a.EndedAt, Status: a.Status, LatencyMS: a.Latency.Milliseconds(), ErrorClass: string(a.ErrorClass), Error: a.Error, Excerpt: a.Excerpt,
	}
}

// eventView is an event in JSON.
type eventView struct {
	ID             string              `json:"id"`
	Namespace      string              `json:"namespace,omitempty"`
	Endpoint       string              `json:"endpoint,omitempty"`
	IdempotencyKey string              `json:"idempotencyKey,omitempty"`
	Type           string              `json:"type,omitempty"`
	ContentType    string              `json:"contentType,omitempty"`
	TraceParent    string              `json:"traceparent,omitempty"`
	ReceivedAt     *time.Time          `json:"receivedAt,omitempty"`
	Headers        map[string][]string `json:"headers,omitempty"`
	SizeBytes      int                 `json:"sizeBytes"`
	Body           string              `json:"bodyBase64,omitempty"`
	Deliveries     []deliveryView      `json:"deliveries"`
	Attempts       []attemptView       `json:"attempts"`
}

func viewEvent(id event.ID, r *store.EventRecord) eventView {
	v := eventView{ID: id.String(), Deliveries: []deliveryView{}, Attempts: []attemptView{}}
	if e := r.Event; e != nil {
		v.Namespace, v.Endpoint = e.Endpoint.Namespace, e.Endpoint.Name
		v.IdempotencyKey, v.Type, v.ContentType, v.TraceParent = e.Key, e.Type, e.ContentType, e.TraceParent
		v.ReceivedAt, v.Headers, v.SizeBytes = &e.ReceivedAt, e.Headers, len(e.Body)
		v.Body = base64.StdEncoding.EncodeToString(e.Body)
	}
	for i := range r.Deliveries {
		d := viewDelivery(&r.Deliveries[i])
		d.Type, d.ReceivedAt = v.Type, v.ReceivedAt
		v.Deliveries = append(v.Deliveries, d)
	}
	for i := range r.Attempts {
		v.Attempts = append(v.Attempts, viewAttempt(&r.Attempts[i]))
	}
	return v
}

func newEventsShow() *cobra.Command {
	var database databaseFlag
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "show EVENT-ID",
		Short: "Show an event, its deliveries and every attempt",
		Long: `Show an event, its deliveries and every attempt. The output formats json and
yaml have the body in base64; body is the body alone, byte for byte.`,
		Example: `  ackrail events show 0199c3b2-6f40-7c1a-9d3e-5b8a1f2c4d6e
  ackrail events show 0199c3b2-6f40-7c1a-9d3e-5b8a1f2c4d6e -o body > a`,
		Args: oneEvent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return database.event(cmd.Context(), args[0], &output, func(id event.ID, record *store.EventRecord) error {
				return printEvent(cmd.OutOrStdout(), output.format, id, record)
			})
		},
	}
	database.register(cmd)
	output.register(cmd, "text", "json", "yaml", "body")
	return cmd
}

func oneEvent(_ *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("want one EVENT-ID, as ackrail events list prints it, have %d", len(args))
}

// event reads an event for a command that shows it.
func (f *databaseFlag) event(ctx context.Context, arg string, output *outputFlag, show func(event.ID, *store.EventRecord) error) error {
	id, err := uuid.Parse(arg)
	if err != nil {
		return fmt.Errorf("event id %q: want a UUID, as ackrail events list prints it", arg)
	}
	if err := output.check(); err != nil {
		return err
	}
	return f.query(ctx, func(ctx context.Context, s *store.Store) error {
		record, err := s.ShowEvent(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("event %s not found", id)
		}
		if err != nil {
			return err
		}
		return show(id, record)
	})
}

func printEvent(out io.Writer, format string, id event.ID, r *store.EventRecord) error {
	switch {
	case format == "body" && r.Event == nil:
		return fmt.Errorf("event %s: its body is no longer kept", id)
	case format == "body":
		_, err := out.Write(r.Event.Body)
		return err
	case format != "text":
		return printObject(out, format, viewEvent(id, r))
	}
	describeEvent(out, id, r)
	return nil
}

// describeEvent prints what kubectl describe would.
func describeEvent(out io.Writer, id event.ID, r *store.EventRecord) {
	say(out, "Event:            %s", id)
	if e := r.Event; e != nil {
		say(out, "Endpoint:         %s", e.Endpoint)
		say(out, "Type:             %s", orNone(e.Type))
		say(out, "Idempotency key:  %s", e.Key)
		say(out, "Received:         %s (%s ago)", e.ReceivedAt.UTC().Format(time.RFC3339), age(&e.ReceivedAt))
		say(out, "Body:             %d bytes, %s", len(e.Body), orNone(e.ContentType))
	} else {
		say(out, "Body:             no longer kept")
	}
	say(out, "\nDeliveries:")
	t := newTable(out, "  DESTINATION", "RUN", "STATE", "ATTEMPTS", "REASON", "STATUS", "NEXT", "LAST ERROR")
	for i := range r.Deliveries {
		d := &r.Deliveries[i]
		t.row("  "+d.Key.Destination.Name, strconv.Itoa(d.Key.Run), stateText(d), strconv.Itoa(d.Attempts), string(d.Reason),
			statusText(d.LastStatus), until(d.NextAt), d.LastError)
	}
	t.flush()
	say(out, "\nAttempts:")
	t = newTable(out, "  DESTINATION", "RUN", "ATTEMPT", "RESULT", "STARTED", "TOOK", "STATUS", "CLASS", "ERROR", "WORKER")
	for i := range r.Attempts {
		a := &r.Attempts[i]
		took := ""
		if a.EndedAt != nil {
			took = a.Latency.String()
		}
		t.row("  "+a.Destination, strconv.Itoa(a.Run), strconv.Itoa(a.Attempt), string(a.Result), a.StartedAt.UTC().Format(time.RFC3339),
			took, statusText(a.Status), string(a.ErrorClass), a.Error, a.Worker)
	}
	t.flush()
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
