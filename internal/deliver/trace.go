package deliver

import (
	"encoding/hex"
	"strings"

	"github.com/ackrail/ackrail/internal/event"
)

// traceParent returns the value of the traceparent header (W3C Trace Context): the sender's where it is valid, so
// that its trace goes on; else one made from the event's id alone, so that all attempts belong to one trace that is found by that
// id. The latter says "sampled", because receivers that follow the header's flag would record nothing otherwise.
func traceParent(e *event.Event) string {
	if tp, ok := parseTraceParent(e.TraceParent); ok {
		return tp
	}
	// The last eight bytes of a UUID are never all zero: they begin with its variant.
	return "00-" + hex.EncodeToString(e.ID[:]) + "-" + hex.EncodeToString(e.ID[8:]) + "-01"
}

// parseTraceParent checks version 00 strictly. Of a later version it takes the fields that 00 has, as version 00, which is how the
// specification lets old programs pass new headers on.
func parseTraceParent(value string) (string, bool) {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	if len(value) < length || value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return "", false
	}
	version, trace, parent, flags := value[:2], value[3:35], value[36:52], value[53:55]
	for _, field := range []string{version, trace, parent, flags} {
		if strings.Trim(field, "0123456789abcdef") != "" {
			return "", false
		}
	}
	if version == "ff" || strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "" {
		return "", false
	}
	if len(value) > length && (version == "00" || value[length] != '-') {
		return "", false
	}
	return "00" + value[2:length], true
}
