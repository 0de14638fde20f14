package signature

// Reason says in one word why a request was not accepted. The set is fixed, so that it can be a metric label.
type Reason string

// Every reason there is.
const (
	// ReasonMissing: a header that the scheme needs is not there.
	ReasonMissing Reason = "missing"
	// ReasonMalformed: a header is there, but is not of the scheme's form, or is there more than once.
	ReasonMalformed Reason = "malformed"
	// ReasonMismatch: no signature fits any of the keys: another secret, or another body.
	ReasonMismatch Reason = "mismatch"
	// ReasonStale: the timestamp is further from now than the scheme tolerates. Checked before the MAC, so that replays are cheap to refuse.
	ReasonStale Reason = "stale"
	// ReasonNoSecret: there is no key to verify with, or an empty one among the keys. The receiver's fault, not the sender's.
	ReasonNoSecret Reason = "noSecret"
)

// Reasons returns every reason, for whoever prepares one counter for each.
func Reasons() []Reason {
	return []Reason{ReasonMissing, ReasonMalformed, ReasonMismatch, ReasonStale, ReasonNoSecret}
}

// Error is every error of [Verifier.Verify]. Its text names the header concerned and never what the sender put there.
type Error struct {
	Reason Reason
	// Header is the one to look at; empty for [ReasonNoSecret].
	Header string
}

func (e *Error) Error() string {
	switch e.Reason {
	case ReasonMissing:
		return "header " + e.Header + " is missing"
	case ReasonMalformed:
		return "header " + e.Header + " is malformed or there more than once"
	case ReasonMismatch:
		return "no signature in header " + e.Header + " matches"
	case ReasonStale:
		return "the time in header " + e.Header + " is too far from now"
	default:
		return "no secret to verify with"
	}
}
