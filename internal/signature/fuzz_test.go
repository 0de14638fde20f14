package signature_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/signature"
)

// A header that verifies must carry the very bytes of the one right MAC, however it is spelled.
func FuzzVerifyGitHub(f *testing.F) {
	f.Add(githubSignature)
	f.Add("sha256=")
	f.Add("")
	f.Add(strings.ToUpper(githubSignature))
	f.Add("sha256=" + strings.Repeat("0", 64))
	v := mustNew(f, signature.GitHub())
	keys := []signature.Key{mustKey(f, signature.GitHub(), githubSecret)}
	right, err := hex.DecodeString(strings.TrimPrefix(githubSignature, "sha256="))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value string) {
		err := v.Verify(headers("X-Hub-Signature-256", value), []byte(githubBody), keys, time.Now())
		text, hasPrefix := strings.CutPrefix(value, "sha256=")
		got, decodeErr := hex.DecodeString(text)
		want := hasPrefix && decodeErr == nil && bytes.Equal(got, right)
		if (err == nil) != want {
			t.Errorf("Verify(%q) = %v, want accepted: %t", value, err, want)
		}
		if err != nil && reasonOf(err) == "" {
			t.Errorf("Verify(%q) gave an error without a reason: %v", value, err)
		}
	})
}

func FuzzVerifyStandardWebhooks(f *testing.F) {
	f.Add(standardID, fmt.Sprint(standardTimestamp), standardSignature, []byte(standardBody))
	f.Add(standardID, fmt.Sprint(standardTimestamp), "v1a,AAAA "+standardSignature+" v1,", []byte(standardBody))
	f.Add("", "-1", strings.Repeat("v1, ", 20), []byte{})
	f.Add("a.b", "999999999999999999", "v1,"+strings.Repeat("=", 44), []byte{0})
	v := mustNew(f, signature.StandardWebhooks())
	keys := []signature.Key{mustKey(f, signature.StandardWebhooks(), standardSecret)}
	right := strings.TrimPrefix(standardSignature, "v1,")
	f.Fuzz(func(t *testing.T, id, timestamp, value string, body []byte) {
		header := headers("Webhook-Id", id, "Webhook-Timestamp", timestamp, "Webhook-Signature", value)
		err := v.Verify(header, body, keys, time.Unix(standardTimestamp, 0))
		if err != nil {
			if reasonOf(err) == "" {
				t.Errorf("an error without a reason: %v", err)
			}
			return
		}
		// Only the published message has a known signature; anything else that verifies is a forgery.
		if id != standardID || timestamp != fmt.Sprint(standardTimestamp) || string(body) != standardBody || !strings.Contains(value, right) {
			t.Errorf("verified: id %q, timestamp %q, signature %q, body %q", id, timestamp, value, body)
		}
	})
}

// What is signed verifies; with one bit changed anywhere it does not.
func FuzzSignVerify(f *testing.F) {
	f.Add([]byte("secret"), "msg_1", int64(standardTimestamp), []byte(`{"a":1}`), uint(0))
	f.Add([]byte{0}, "x", int64(0), []byte{}, uint(77))
	schemes := []signature.Scheme{
		signature.GitHub(), signature.StandardWebhooks(), slack(),
		signature.HMAC("X-Signature", signature.SHA512, signature.Base64, "sig="),
		signature.HMAC("X-Signature", signature.SHA512, signature.Hex, ""),
	}
	f.Fuzz(func(t *testing.T, secret []byte, id string, at int64, body []byte, flip uint) {
		if len(secret) == 0 || id == "" || strings.Contains(id, ".") || at < 0 || at >= 1e18 {
			t.Skip("not a message that can be signed")
		}
		now := time.Unix(at, 0)
		for _, s := range schemes {
			v := mustNew(t, s)
			encoded := string(secret)
			if s.Secret == signature.WhsecSecret {
				encoded = "whsec_" + base64.StdEncoding.EncodeToString(secret)
			}
			keys := []signature.Key{mustKey(t, s, encoded)}
			header := http.Header{}
			if err := v.Sign(header, keys[0], id, now, body); err != nil {
				t.Fatalf("Sign: %v", err)
			}
			if err := v.Verify(header, body, keys, now); err != nil {
				t.Fatalf("Verify refused what Sign made: %v", err)
			}
			if len(body) > 0 {
				changed := bytes.Clone(body)
				changed[flip/8%uint(len(changed))] ^= 1 << (flip % 8)
				if err := v.Verify(header, changed, keys, now); reasonOf(err) != signature.ReasonMismatch {
					t.Fatalf("Verify of a changed body = %v", err)
				}
			}
			flipHeader(t, v, header, s, body, keys, now, flip)
		}
	})
}

// flipHeader changes one bit of the signature header. Hex digits differ from their other case by one bit: that one is no change.
func flipHeader(t *testing.T, v *signature.Verifier, header http.Header, s signature.Scheme, body []byte, keys []signature.Key, now time.Time, flip uint) {
	t.Helper()
	name := http.CanonicalHeaderKey(s.SignatureHeader)
	before := header.Get(name)
	value := []byte(before)
	value[flip/8%uint(len(value))] ^= 1 << (flip % 8)
	inPrefix := !strings.HasPrefix(string(value), s.Prefix)
	if s.Encoding == signature.Hex && !inPrefix && strings.EqualFold(string(value), before) {
		return
	}
	header[name] = []string{string(value)}
	if err := v.Verify(header, body, keys, now); err == nil {
		t.Fatalf("Verify accepted %q for %q", value, before)
	}
}
