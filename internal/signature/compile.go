package signature

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

type partKind int

const (
	textPart partKind = iota
	idPart
	timestampPart
	bodyPart
)

var placeholders = map[string]partKind{"id": idPart, "timestamp": timestampPart, "body": bodyPart}

// part is one piece of the signed bytes; text is set only with kind textPart.
type part struct {
	kind partKind
	text string
}

// New checks the scheme and compiles it. The error names the field at fault.
func New(s Scheme) (*Verifier, error) {
	v := &Verifier{
		scheme:          s,
		signatureHeader: http.CanonicalHeaderKey(s.SignatureHeader),
		idHeader:        http.CanonicalHeaderKey(s.IDHeader),
		timestampHeader: http.CanonicalHeaderKey(s.TimestampHeader),
	}
	if _, v.macSize = s.Algorithm.hash(); v.macSize == 0 {
		return nil, fmt.Errorf("algorithm: %q is not one of %s, %s", s.Algorithm, SHA256, SHA512)
	}
	if s.Encoding.size(v.macSize) == 0 {
		return nil, fmt.Errorf("encoding: %q is not one of %s, %s", s.Encoding, Hex, Base64)
	}
	if s.Secret != RawSecret && s.Secret != WhsecSecret {
		return nil, fmt.Errorf("secret format: %q is not one of %s, %s", s.Secret, RawSecret, WhsecSecret)
	}
	if err := v.compileHeaders(); err != nil {
		return nil, err
	}
	if err := v.compileTemplate(); err != nil {
		return nil, fmt.Errorf("signed template %q: %w", s.Signed, err)
	}
	return v, nil
}

func (v *Verifier) compileHeaders() error {
	s := v.scheme
	if !isToken(s.SignatureHeader) {
		return fmt.Errorf("signature header: %q is not a header name", s.SignatureHeader)
	}
	for _, name := range []string{s.IDHeader, s.TypeHeader, s.TimestampHeader} {
		if name != "" && !isToken(name) {
			return fmt.Errorf("id, type or timestamp header: %q is not a header name", name)
		}
	}
	for i := range len(s.Prefix) {
		// Spaces as well: HTTP strips them at the ends of a value, and such a prefix would never be seen.
		if s.Prefix[i] <= ' ' || s.Prefix[i] > '~' {
			return fmt.Errorf("prefix: %q has a character other than visible ASCII", s.Prefix)
		}
	}
	if s.Separator != "" && (len(s.Separator) > 1 || isEncoded(s.Separator[0]) || strings.Contains(s.Prefix, s.Separator)) {
		return fmt.Errorf("separator: %q must be one character that occurs in no signature", s.Separator)
	}
	return nil
}

// compileTemplate splits the template and refuses those under which two different messages could share one signature.
func (v *Verifier) compileTemplate() error {
	for rest := v.scheme.Signed; rest != ""; {
		literal, after, found := strings.Cut(rest, "{")
		if literal != "" {
			v.parts = append(v.parts, part{kind: textPart, text: literal})
		}
		if !found {
			break
		}
		name, after, closed := strings.Cut(after, "}")
		kind, known := placeholders[name]
		if !closed || !known {
			return errors.New("unknown placeholder: {id}, {timestamp} and {body} are known")
		}
		v.parts = append(v.parts, part{kind: kind})
		rest = after
		v.hasID = v.hasID || kind == idPart
		v.hasTimestamp = v.hasTimestamp || kind == timestampPart
	}
	if len(v.parts) == 0 || v.parts[len(v.parts)-1].kind != bodyPart {
		return errors.New("{body} must come last")
	}
	if v.hasID && v.scheme.IDHeader == "" {
		return errors.New("{id} needs an id header")
	}
	if v.hasTimestamp != (v.scheme.TimestampHeader != "") || v.hasTimestamp != (v.scheme.Tolerance > 0) {
		return errors.New("{timestamp}, a timestamp header and a tolerance above zero go together")
	}
	return v.checkBoundaries()
}

// checkBoundaries makes sure that one can tell where each part ends. Otherwise a captured message can be cut
// differently, say with the first bytes of its body moved into its timestamp, and still verify.
func (v *Verifier) checkBoundaries() error {
	for i, p := range v.parts[:len(v.parts)-1] {
		next := v.parts[i+1]
		switch {
		case p.kind == bodyPart:
			return errors.New("{body} may come only last, since it may contain anything")
		case p.kind != textPart && next.kind != textPart:
			return errors.New("two placeholders need a text between them")
		case p.kind == timestampPart && next.text[0] >= '0' && next.text[0] <= '9':
			return errors.New("the text after {timestamp} must not begin with a digit")
		}
	}
	return nil
}

// validID reports whether id can be signed: not empty, and without the character that marks its end in the template.
func (v *Verifier) validID(id string) bool {
	for i, p := range v.parts[:len(v.parts)-1] {
		if p.kind == idPart && strings.IndexByte(id, v.parts[i+1].text[0]) >= 0 {
			return false
		}
	}
	return id != ""
}

// isToken reports whether s is a header's name (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// isEncoded reports whether c may occur in a MAC as hex or base64.
func isEncoded(c byte) bool { return isAlphanumeric(c) || c == '+' || c == '/' || c == '=' }

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
