package signature

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"time"
)

// Algorithm names the hash function below the HMAC.
type Algorithm string

// The algorithms that a scheme may use. Older ones (MD5, SHA-1) are left out on purpose.
const (
	SHA256 Algorithm = "SHA256"
	SHA512 Algorithm = "SHA512"
)

// hash returns the constructor and the digest's size in bytes; a nil constructor for an unknown algorithm.
func (a Algorithm) hash() (func() hash.Hash, int) {
	switch a {
	case SHA256:
		return sha256.New, sha256.Size
	case SHA512:
		return sha512.New, sha512.Size
	default:
		return nil, 0
	}
}

// Encoding names how the MAC's bytes are written into the header.
type Encoding string

// The encodings that a scheme may use. Hex is read in either case and written in lower case;
// Base64 is the standard alphabet with padding (RFC 4648 §4), and read strictly.
const (
	Hex    Encoding = "Hex"
	Base64 Encoding = "Base64"
)

// strictBase64 refuses non-zero trailing bits, so that one MAC has one spelling only.
var strictBase64 = base64.StdEncoding.Strict()

// size is the length in bytes of an encoded MAC of n bytes; 0 for an unknown encoding.
func (e Encoding) size(n int) int {
	switch e {
	case Hex:
		return hex.EncodedLen(n)
	case Base64:
		return strictBase64.EncodedLen(n)
	default:
		return 0
	}
}

func (e Encoding) append(dst, mac []byte) []byte {
	if e == Hex {
		return hex.AppendEncode(dst, mac)
	}
	return strictBase64.AppendEncode(dst, mac)
}

// decode writes the bytes that text stands for to dst and reports whether they are exactly n.
func (e Encoding) decode(dst []byte, text string, n int) bool {
	var src [maxEncodedSize]byte
	if len(text) != e.size(n) || len(text) > len(src) {
		return false
	}
	copy(src[:], text)
	var got int
	var err error
	if e == Hex {
		got, err = hex.Decode(dst, src[:len(text)])
	} else {
		got, err = strictBase64.Decode(dst, src[:len(text)])
	}
	return err == nil && got == n
}

const (
	maxMACSize     = sha512.Size
	maxEncodedSize = 2 * maxMACSize // hex of SHA-512
)

// SecretFormat names how the bytes of a secret become the key of the HMAC.
type SecretFormat string

const (
	// RawSecret uses the secret's bytes as they are.
	RawSecret SecretFormat = "Raw"
	// WhsecSecret expects base64 (RFC 4648 §4), with or without the prefix "whsec_", as Standard Webhooks writes secrets.
	WhsecSecret SecretFormat = "Whsec"
)

// Scheme describes one way of signing webhooks. It is plain data; [New] says whether it makes sense.
type Scheme struct {
	Algorithm Algorithm
	Encoding  Encoding
	Secret    SecretFormat

	// Signed is the template of the bytes under the MAC. {id}, {timestamp} and {body} stand for the value of IDHeader,
	// of TimestampHeader and for the raw body, everything else for itself: "{id}.{timestamp}.{body}".
	Signed string

	// SignatureHeader carries the encoded MAC behind Prefix (may be empty).
	SignatureHeader string
	Prefix          string
	// Separator divides the signatures where one header may carry several, as it does while a sender rotates its secret.
	// Entries with another prefix are then skipped. Empty: the header is exactly one signature.
	Separator string

	// IDHeader carries the sender's own identifier of the event: the default idempotency key, and {id} in Signed.
	IDHeader string
	// TypeHeader carries the event's type, for the providers that have such a header.
	TypeHeader string

	// TimestampHeader carries {timestamp}: Unix seconds. Tolerance is how far it may lie from now, before or after;
	// required exactly when Signed has {timestamp}, because an unsigned time proves nothing and an unchecked one allows replays.
	TimestampHeader string
	Tolerance       time.Duration
}

// Key is a decoded secret, made by [Scheme.DecodeSecret]. It is safe for concurrent use and cheap to copy;
// the zero Key is no key, and never verifies anything.
type Key struct {
	macs *macPool
}

var errEmptySecret = errors.New("secret is empty")

// DecodeSecret turns the bytes of a secret into a key for this scheme. It does not keep the slice. The error never
// quotes the secret. No length but zero is refused: senders choose their secrets, and too short a one is theirs to fix.
func (s Scheme) DecodeSecret(secret []byte) (Key, error) {
	newHash, _ := s.Algorithm.hash()
	if newHash == nil {
		return Key{}, fmt.Errorf("unknown algorithm %q", s.Algorithm)
	}
	key := secret
	switch s.Secret {
	case RawSecret:
	case WhsecSecret:
		var err error
		if key, err = decodeWhsec(secret); err != nil {
			return Key{}, err
		}
	default:
		return Key{}, fmt.Errorf("unknown secret format %q", s.Secret)
	}
	if len(key) == 0 {
		return Key{}, errEmptySecret
	}
	return Key{macs: newMACPool(newHash, key)}, nil
}
