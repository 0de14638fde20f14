package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// tolerance is how far a signature's time may be off, either way.
const tolerance = 5 * time.Minute

// verify reports whether a request is signed with one of the secrets in a file,
// by https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
func verify(secretFile string, header http.Header, body []byte, now time.Time) bool {
	id, timestamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if id == "" || err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	secrets, err := os.ReadFile(secretFile)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(secrets) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(bytes.TrimSpace(line)), "whsec_"))
		if err != nil || len(key) == 0 {
			continue
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		for signature := range strings.FieldsSeq(header.Get("Webhook-Signature")) {
			if hmac.Equal([]byte(signature), []byte(want)) {
				return true
			}
		}
	}
	return false
}
