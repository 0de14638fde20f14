package ingress

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxKeptHeaderBytes bounds the names and values kept with an event.
	maxKeptHeaderBytes = 16 << 10
	// maxContentTypeBytes bounds a content type that is kept as it is.
	maxContentTypeBytes = 256
	// unknownContentType stands for one that cannot be kept (RFC 9110 §8.3).
	unknownContentType = "application/octet-stream"
)

// unkept are the headers that are about the connection (RFC 9110 §7.6.1) or
// hold credentials.
var unkept = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Authorization", "Proxy-Authorization", "Proxy-Authenticate", "Cookie",
}

// kept returns the headers that are kept with the event, without the unkept
// ones, those that the request declares to be about its connection, and the
// endpoint's signatures. Values are text that jsonb can hold. What exceeds
// maxKeptHeaderBytes is left out, in the order of names.
func (e *endpoint) kept(header http.Header) map[string][]string {
	left := maxKeptHeaderBytes
	perHop := connectionHeaders(header)
	kept := make(map[string][]string, len(header))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if e.unkept[name] || slices.Contains(perHop, name) {
			continue
		}
		for _, value := range header[name] {
			value = toText(value)
			if size := len(name) + len(value); size <= left {
				left -= size
				kept[name] = append(kept[name], value)
			}
		}
	}
	return kept
}

// connectionHeaders returns the names that the Connection header lists.
func connectionHeaders(header http.Header) []string {
	var names []string
	for _, value := range header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

// toText replaces what is not UTF-8, and NUL, which PostgreSQL cannot hold in
// text, by U+FFFD.
func toText(value string) string {
	if isStorable(value) {
		return value
	}
	const replacement = "\uFFFD"
	return strings.ReplaceAll(strings.ToValidUTF8(value, replacement), "\x00", replacement)
}

func isStorable(value string) bool {
	return utf8.ValidString(value) && strings.IndexByte(value, 0) < 0
}

// keptContentType returns the content type as it was sent, also if it is
// missing, unless it cannot be stored or is overlong.
func keptContentType(header http.Header) string {
	value := header.Get("Content-Type")
	if len(value) > maxContentTypeBytes || !isStorable(value) {
		return unknownContentType
	}
	return value
}

// traceParentForm is version 00 of W3C Trace Context §3.2.2.
var traceParentForm = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)

// traceParent returns the sender's trace context, or "" if it has none that
// is valid.
func traceParent(header http.Header) string {
	values := header["Traceparent"]
	if len(values) != 1 {
		return ""
	}
	ids := traceParentForm.FindStringSubmatch(values[0])
	if ids == nil || strings.Trim(ids[1], "0") == "" || strings.Trim(ids[2], "0") == "" {
		return ""
	}
	return values[0]
}

// identifier reads a header that is part of an event's identity: one value,
// not empty, of at most so many bytes of UTF-8 without control characters,
// since it goes into columns, logs and the headers of deliveries. The error
// never repeats the value.
func identifier(header http.Header, name string, maxBytes int) (string, error) {
	values := header[name]
	if len(values) == 0 {
		return "", errors.New("the header is missing")
	}
	value := values[0]
	switch {
	case len(values) > 1:
		return "", fmt.Errorf("the header is there %d times", len(values))
	case value == "":
		return "", errors.New("the header is empty")
	case len(value) > maxBytes:
		return "", fmt.Errorf("the header has %d bytes, more than %d", len(value), maxBytes)
	case !utf8.ValidString(value):
		return "", errors.New("the header is not UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		return "", errors.New("the header has control characters")
	}
	return value, nil
}
