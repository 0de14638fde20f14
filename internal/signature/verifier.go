package signature

import (
	"crypto/hmac"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxSignatures is how many signatures one header may carry. Senders put two there while they rotate a secret.
const MaxSignatures = 16

// Verifier is a compiled scheme. It holds no secrets, is immutable and safe for concurrent use.
type Verifier struct {
	scheme          Scheme
	parts           []part
	signatureHeader string // canonical, so that header maps are indexed without allocating
	idHeader        string
	timestampHeader string
	macSize         int
	hasID           bool
	hasTimestamp    bool
}

// Verify reports whether some signature in header was made over body with one of keys, and is not stale at now.
// The error is always an [*Error]. header must have canonical names, as net/http's server makes them.
//
// Every key is tried until one fits. No keys at all, or a zero one among them, is an error: an endpoint whose secret
// got lost must refuse everything rather than accept anything.
func (v *Verifier) Verify(header http.Header, body []byte, keys []Key, now time.Time) error {
	if len(keys) == 0 {
		return &Error{Reason: ReasonNoSecret}
	}
	for _, k := range keys {
		if k.macs == nil {
			return &Error{Reason: ReasonNoSecret}
		}
	}
	id, timestamp, err := v.metadata(header, now)
	if err != nil {
		return err
	}
	value, err := single(header, v.signatureHeader)
	if err != nil {
		return err
	}
	var found signatures
	if !v.parse(&found, value) {
		return &Error{ReasonMalformed, v.signatureHeader}
	}
	for _, k := range keys {
		m := k.macs.get()
		sum := v.sum(m, id, timestamp, body)
		ok := found.contain(sum)
		k.macs.put(m)
		if ok {
			return nil
		}
	}
	return &Error{ReasonMismatch, v.signatureHeader}
}

// metadata reads and checks what is signed beside the body.
func (v *Verifier) metadata(header http.Header, now time.Time) (id, timestamp string, err error) {
	if v.hasID {
		if id, err = single(header, v.idHeader); err != nil {
			return "", "", err
		}
		if !v.validID(id) {
			return "", "", &Error{ReasonMalformed, v.idHeader}
		}
	}
	if v.hasTimestamp {
		if timestamp, err = single(header, v.timestampHeader); err != nil {
			return "", "", err
		}
		at, ok := parseTimestamp(timestamp)
		if !ok {
			return "", "", &Error{ReasonMalformed, v.timestampHeader}
		}
		if age := now.Sub(at); age > v.scheme.Tolerance || age < -v.scheme.Tolerance {
			return "", "", &Error{ReasonStale, v.timestampHeader}
		}
	}
	return id, timestamp, nil
}

// single returns the only value of a header. A second value is refused, not ignored: whoever reads the
// header after us may well take the other one.
func single(header http.Header, name string) (string, error) {
	switch values := header[name]; len(values) {
	case 0:
		return "", &Error{ReasonMissing, name}
	case 1:
		return values[0], nil
	default:
		return "", &Error{ReasonMalformed, name}
	}
}

// parseTimestamp reads Unix seconds: digits only, since a sign or a space would be another signed text for the same time.
func parseTimestamp(text string) (time.Time, bool) {
	const maxDigits = 18 // fits int64, and time.Time's range
	if text == "" || len(text) > maxDigits {
		return time.Time{}, false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return time.Time{}, false
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), err == nil
}

// signatures holds the decoded signatures of one header, on the stack of who verifies them.
type signatures struct {
	macs  [MaxSignatures][maxMACSize]byte
	count int
	size  int
}

// contain compares with all of them, so that the time taken tells only how many there are.
func (s *signatures) contain(sum []byte) bool {
	found := false
	for i := range s.count {
		if hmac.Equal(s.macs[i][:s.size], sum) {
			found = true
		}
	}
	return found
}

// parse decodes the signatures in a header's value and reports whether there is at least one of the scheme's form.
func (v *Verifier) parse(found *signatures, value string) bool {
	found.size = v.macSize
	if v.scheme.Separator == "" {
		return v.add(found, value)
	}
	for n := 1; ; n++ {
		entry, rest, more := strings.Cut(value, v.scheme.Separator)
		v.add(found, entry)
		if !more {
			return found.count > 0
		}
		if n == MaxSignatures {
			return false
		}
		value = rest
	}
}

func (v *Verifier) add(found *signatures, entry string) bool {
	text, ok := strings.CutPrefix(entry, v.scheme.Prefix)
	if !ok || !v.scheme.Encoding.decode(found.macs[found.count][:], text, v.macSize) {
		return false
	}
	found.count++
	return true
}

// sum computes the MAC of the scheme's template into m.
func (v *Verifier) sum(m *mac, id, timestamp string, body []byte) []byte {
	m.text = m.text[:0]
	for _, p := range v.parts {
		switch p.kind {
		case textPart:
			m.text = append(m.text, p.text...)
		case idPart:
			m.text = append(m.text, id...)
		case timestampPart:
			m.text = append(m.text, timestamp...)
		case bodyPart: // always the last
		}
	}
	m.hash.Write(m.text)
	m.hash.Write(body)
	return m.hash.Sum(m.sum[:0])
}

// Sign sets in header what [Verifier.Verify] needs to see: the signature, and the id and the time (in whole seconds)
// where the scheme signs them. Other values of those headers are replaced. id is ignored where the scheme does not sign it.
func (v *Verifier) Sign(header http.Header, key Key, id string, at time.Time, body []byte) error {
	if key.macs == nil {
		return errEmptySecret
	}
	if v.hasID {
		if !v.validID(id) {
			return errors.New("the id to sign is empty or has a character that the scheme reserves")
		}
		header[v.idHeader] = []string{id}
	}
	var timestamp string
	if v.hasTimestamp {
		if at.Unix() < 0 {
			return errors.New("the time to sign is before 1970")
		}
		timestamp = strconv.FormatInt(at.Unix(), 10)
		header[v.timestampHeader] = []string{timestamp}
	}
	m := key.macs.get()
	defer key.macs.put(m)
	sum := v.sum(m, id, timestamp, body)
	value := make([]byte, 0, len(v.scheme.Prefix)+v.scheme.Encoding.size(len(sum)))
	value = v.scheme.Encoding.append(append(value, v.scheme.Prefix...), sum)
	header[v.signatureHeader] = []string{string(value)}
	return nil
}
