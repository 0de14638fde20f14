package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
)

const (
	// exportPage is how many dead letters are read at once, and exportBytes
	// with how many bytes of bodies such a page has enough.
	exportPage  = 200
	exportBytes = 4 << 20
)

// exportFlags are the flags of ackrail events export.
type exportFlags struct {
	database  databaseFlag
	selection selectionFlags
	reasons   []string
	limit     int
}

func newEventsExport() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write dead letters out, one JSON object a line",
		Long: `Write the dead letters that no replay has taken up to standard output, those of
the oldest events first: one JSON object a line, with the body in base64 and,
where it is valid UTF-8, as text. Nothing is changed. What dies while it runs
may be missing, or not.`,
		Example: `  ackrail events export --endpoint github > dead.ndjson
  ackrail events export -n payments --reason PermanentStatus --limit 10`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.database.register(cmd)
	flags := cmd.Flags()
	f.selection.register(flags)
	flags.StringSliceVar(&f.reasons, "reason", nil, "only these reasons: "+strings.Join(reasonNames, ", "))
	flags.IntVar(&f.limit, "limit", 0, "write at most so many (default: all)")
	return cmd
}

var reasonNames = []string{
	string(event.ReasonPermanentStatus), string(event.ReasonAttemptsExhausted), string(event.ReasonOutcomeUnknown), string(event.ReasonPayloadMissing),
}

func (f *exportFlags) filter(cmd *cobra.Command) (store.DeadLetterFilter, error) {
	x := &f.selection
	filter := store.DeadLetterFilter{Destination: x.destination, Types: x.types, Bytes: exportBytes}
	var err error
	if filter.Namespace, filter.Endpoint, err = x.place(); err != nil {
		return filter, err
	}
	for _, name := range f.reasons {
		i := slices.IndexFunc(reasonNames, func(known string) bool { return strings.EqualFold(known, name) })
		if i < 0 {
			return filter, fmt.Errorf("--reason: unknown reason %q: use one of %s", name, strings.Join(reasonNames, ", "))
		}
		filter.Reasons = append(filter.Reasons, event.Reason(reasonNames[i]))
	}
	if cmd.Flags().Changed("limit") && f.limit < 1 {
		return filter, fmt.Errorf("--limit: must be at least 1, is %d", f.limit)
	}
	return filter, nil
}

func (f *exportFlags) run(cmd *cobra.Command) error {
	filter, err := f.filter(cmd)
	if err != nil {
		return err
	}
	return f.database.open(cmd.Context(), func(s *store.Store) error {
		n, err := f.export(cmd.Context(), s, filter, cmd.OutOrStdout())
		if err != nil {
			return err
		}
		cmd.PrintErrf("Exported %s.\n", count(n, "dead letter"))
		return nil
	})
}

// export writes what matches page by page, so that neither memory nor a
// transaction depends on how much that is, or on who reads it how fast.
func (f *exportFlags) export(ctx context.Context, s *store.Store, filter store.DeadLetterFilter, out io.Writer) (n int, err error) {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		filter.Limit = exportPage
		if f.limit > 0 {
			filter.Limit = min(exportPage, f.limit-n)
		}
		if filter.Limit == 0 {
			return n, nil
		}
		page, err := readPage(ctx, s, filter)
		if err != nil || len(page) == 0 {
			return n, err
		}
		for i := range page {
			if err := encoder.Encode(viewLetter(&page[i])); err != nil {
				return n, fmt.Errorf("writing: %w", err)
			}
			n++
		}
		last := page[len(page)-1]
		last.Event = nil // only its place is needed
		filter.After = &last
	}
}

func readPage(ctx context.Context, s *store.Store, filter store.DeadLetterFilter) ([]store.DeadLetter, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.DeadLetters(ctx, filter)
}

// letterView is a dead letter in JSON.
type letterView struct {
	EventID        string              `json:"eventId"`
	Namespace      string              `json:"namespace"`
	Endpoint       string              `json:"endpoint"`
	Destination    string              `json:"destination"`
	Run            int                 `json:"run"`
	Type           string              `json:"type,omitempty"`
	IdempotencyKey string              `json:"idempotencyKey,omitempty"`
	ContentType    string              `json:"contentType,omitempty"`
	TraceParent    string              `json:"traceparent,omitempty"`
	ReceivedAt     *time.Time          `json:"receivedAt,omitempty"`
	DiedAt         *time.Time          `json:"diedAt"`
	Reason         string              `json:"reason"`
	Attempts       int                 `json:"attempts"`
	LastStatus     int                 `json:"lastStatus,omitempty"`
	ErrorClass     string              `json:"errorClass,omitempty"`
	LastError      string              `json:"lastError,omitempty"`
	Replay         *uuid.UUID          `json:"replay,omitempty"`
	SizeBytes      int                 `json:"sizeBytes"`
	Headers        map[string][]string `json:"headers,omitempty"`
	// Body is nil, which is null, when it is no longer kept.
	Body []byte `json:"bodyBase64"`
	// Text is the body as it is, if it is valid UTF-8.
	Text *string `json:"text,omitempty"`
}

func viewLetter(l *store.DeadLetter) letterView {
	to := l.Key.Destination
	v := letterView{
		EventID: l.Key.Event.String(), Namespace: to.Endpoint.Namespace, Endpoint: to.Endpoint.Name, Destination: to.Name, Run: l.Key.Run,
		ReceivedAt: l.ReceivedAt, DiedAt: l.EndedAt, Reason: string(l.Reason), Attempts: l.Attempts, LastStatus: l.LastStatus,
		ErrorClass: string(l.ErrorClass), LastError: l.LastError, Replay: l.Replay, SizeBytes: l.Size,
	}
	if e := l.Event; e != nil {
		v.Type, v.IdempotencyKey, v.ContentType, v.TraceParent, v.Headers, v.Body = e.Type, e.Key, e.ContentType, e.TraceParent, e.Headers, e.Body
		if v.Body == nil {
			v.Body = []byte{}
		}
		if utf8.Valid(e.Body) {
			text := string(e.Body)
			v.Text = &text
		}
	}
	return v
}
