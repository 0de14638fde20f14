package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
)

// letterReader reads what ackrail events export has written.
type letterReader struct {
	// place is applied to the endpoint of each letter.
	place func(*event.EndpointRef)
	// events are those of the lines before.
	events map[event.ID]seenEvent
}

func newLetterReader(place func(*event.EndpointRef)) *letterReader {
	return &letterReader{place: place, events: map[event.ID]seenEvent{}}
}

// seenEvent is the event of an earlier line.
type seenEvent struct {
	line     int
	digest   [sha256.Size]byte
	endpoint event.EndpointRef
}

// letterLine is a dead letter that was read, without an event if its body was
// not exported.
type letterLine struct{ letter store.DeadLetter }

// importedView is letterView as it is read: what can be malformed is text at
// first, so that the fault can name its field.
type importedView struct {
	EventID        string              `json:"eventId"`
	Namespace      string              `json:"namespace"`
	Endpoint       string              `json:"endpoint"`
	Destination    string              `json:"destination"`
	Run            int32               `json:"run"`
	Type           string              `json:"type"`
	IdempotencyKey string              `json:"idempotencyKey"`
	ContentType    string              `json:"contentType"`
	TraceParent    string              `json:"traceparent"`
	ReceivedAt     string              `json:"receivedAt"`
	DiedAt         string              `json:"diedAt"`
	Reason         string              `json:"reason"`
	Attempts       int32               `json:"attempts"`
	LastStatus     int32               `json:"lastStatus"`
	ErrorClass     string              `json:"errorClass"`
	LastError      string              `json:"lastError"`
	Replay         string              `json:"replay"`
	SizeBytes      *int                `json:"sizeBytes"`
	Headers        map[string][]string `json:"headers"`
	Body           *string             `json:"bodyBase64"`
	Text           *string             `json:"text"`
}

// fieldError names the field that is at fault.
func fieldError(field, format string, args ...any) error {
	return fmt.Errorf(field+": "+format, args...)
}

// read reads the line of a number.
func (r *letterReader) read(number int, line []byte) (*letterLine, error) {
	v, err := decodeLine(line)
	if err != nil {
		return nil, err
	}
	l, err := v.letter()
	if err != nil {
		return nil, err
	}
	to := &l.letter.Key.Destination.Endpoint
	r.place(to)
	e := l.letter.Event
	if e == nil {
		return l, nil
	}
	e.Endpoint = *to
	now := seenEvent{number, sha256.Sum256(e.Body), *to}
	before, seen := r.events[e.ID]
	switch {
	case !seen:
		r.events[e.ID] = now
	case before.endpoint != now.endpoint:
		return nil, fieldError("endpoint", "is another one than in line %d, which has the same event", before.line)
	case before.digest != now.digest:
		return nil, fieldError("bodyBase64", "is another one than in line %d, which has the same event", before.line)
	}
	return l, nil
}

func decodeLine(line []byte) (*importedView, error) {
	if !utf8.Valid(line) {
		return nil, errors.New("is not UTF-8")
	}
	v := &importedView{}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return nil, fieldError(wrong.Field, "cannot be a JSON %s", wrong.Value)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("ends in the middle of a JSON object")
	case err != nil:
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has more than one JSON object")
	}
	return v, nil
}

var nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// validName reports whether a name can be one of a namespace, an endpoint or a
// destination.
func validName(name string) bool { return len(name) <= 253 && nameForm.MatchString(name) }

// letter checks every field.
func (v *importedView) letter() (*letterLine, error) {
	id, err := uuid.Parse(v.EventID)
	if err != nil || len(v.EventID) != 36 {
		return nil, fieldError("eventId", "%q is not a UUID", v.EventID)
	}
	for _, f := range []struct{ field, name string }{{"namespace", v.Namespace}, {"endpoint", v.Endpoint}, {"destination", v.Destination}} {
		if !validName(f.name) {
			return nil, fieldError(f.field, "%q is not a valid name", f.name)
		}
	}
	switch {
	case v.Run < 1:
		return nil, fieldError("run", "must be at least 1, is %d", v.Run)
	case v.Attempts < 0:
		return nil, fieldError("attempts", "must not be negative, is %d", v.Attempts)
	case v.LastStatus != 0 && (v.LastStatus < 100 || v.LastStatus > 999):
		return nil, fieldError("lastStatus", "%d is not an HTTP status", v.LastStatus)
	case !slices.Contains(reasonNames, v.Reason):
		return nil, fieldError("reason", "%q is none of %s", v.Reason, strings.Join(reasonNames, ", "))
	}
	if err := v.checkText(); err != nil {
		return nil, err
	}
	died, err := parseTime("diedAt", v.DiedAt)
	if err != nil {
		return nil, err
	}
	l := &letterLine{store.DeadLetter{DeliveryRecord: store.DeliveryRecord{
		Key: event.DeliveryKey{
			Event: id, Run: int(v.Run),
			Destination: event.DestinationRef{Endpoint: event.EndpointRef{Namespace: v.Namespace, Name: v.Endpoint}, Name: v.Destination},
		},
		State: event.StateDead, Attempts: int(v.Attempts), EndedAt: &died, Reason: event.Reason(v.Reason), LastStatus: int(v.LastStatus),
		ErrorClass: event.ErrorClass(v.ErrorClass), LastError: v.LastError,
	}}}
	if v.Body == nil {
		return l, nil
	}
	if v.IdempotencyKey == "" {
		return nil, fieldError("idempotencyKey", "is required where there is a body")
	}
	body, err := v.body()
	if err != nil {
		return nil, err
	}
	received, err := parseTime("receivedAt", v.ReceivedAt)
	if err != nil {
		return nil, err
	}
	l.letter.Event = &event.Event{
		ID: id, Key: v.IdempotencyKey, Type: v.Type, ContentType: v.ContentType, TraceParent: v.TraceParent,
		ReceivedAt: received, Headers: v.Headers, Body: body,
	}
	return l, nil
}

// body returns the body's bytes. What stands beside it must agree: somebody who
// has changed the text alone would wonder what was delivered.
func (v *importedView) body() ([]byte, error) {
	body, err := base64.StdEncoding.Strict().DecodeString(*v.Body)
	switch {
	case err != nil:
		return nil, fieldError("bodyBase64", "is not base64: %v", err)
	case v.SizeBytes != nil && *v.SizeBytes != len(body):
		return nil, fieldError("sizeBytes", "is %d, but bodyBase64 has %d bytes", *v.SizeBytes, len(body))
	case v.Text != nil && *v.Text != string(body):
		return nil, fieldError("text", "differs from bodyBase64, which is what is delivered: change both, or remove the text")
	}
	return body, nil
}

// checkText refuses what a database cannot hold.
func (v *importedView) checkText() error {
	texts := map[string][]string{
		"type": {v.Type}, "idempotencyKey": {v.IdempotencyKey}, "contentType": {v.ContentType}, "traceparent": {v.TraceParent},
		"errorClass": {v.ErrorClass}, "lastError": {v.LastError},
	}
	for name, values := range v.Headers {
		texts["headers"] = append(append(texts["headers"], name), values...)
	}
	for field, all := range texts {
		for _, text := range all {
			if strings.ContainsRune(text, 0) {
				return fieldError(field, "must not have the character U+0000")
			}
		}
	}
	return nil
}

func parseTime(field, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fieldError(field, "%q is not a time as in RFC 3339", text)
	}
	if year := t.Year(); year < 2000 || year > 9000 {
		return t, fieldError(field, "the year %d cannot be right", year)
	}
	return t, nil
}
