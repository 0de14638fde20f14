package deliver

import (
	"testing"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
)

func TestTraceParent(t *testing.T) {
	id := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	const (
		sent    = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
		derived = "00-01890a5dac96774bbcceb302099a8057-bcceb302099a8057-01"
	)
	tests := map[string]struct{ value, want string }{
		"none":                       {"", derived},
		"valid":                      {sent, sent},
		"other flags":                {sent[:53] + "ff", sent[:53] + "ff"},
		"later version":              {"cc" + sent[2:], sent},
		"later version with more":    {"cc" + sent[2:] + "-what-the-future-brings", sent},
		"later version, bad end":     {"cc" + sent[2:] + ".what", derived},
		"forbidden version":          {"ff" + sent[2:], derived},
		"version 00 with more":       {sent + "-more", derived},
		"no version":                 {"xx" + sent[2:], derived},
		"upper case":                 {"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-00", derived},
		"trace all zero":             {"00-00000000000000000000000000000000-00f067aa0ba902b7-00", derived},
		"parent all zero":            {"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-00", derived},
		"flags not hex":              {sent[:53] + "0g", derived},
		"other separators":           {"00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_00", derived},
		"one too short":              {sent[:len(sent)-1], derived},
		"a line break":               {sent[:len(sent)-1] + "\n", derived},
		"not a trace at all":         {"hello", derived},
		"multi-byte where a dash is": {"00\u00e94bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", derived},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := traceParent(&event.Event{ID: id, TraceParent: tc.value}); got != tc.want {
				t.Errorf("traceParent(%q) = %q, want %q", tc.value, got, tc.want)
			}
		})
	}
}
