package deliver

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable returns the beginning of b, at most limit bytes, as a text that a database stores and a terminal survives: what
// is not UTF-8, and control characters other than tab and line breaks, become U+FFFD.
func printable(b []byte, limit int) string {
	var text strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if unicode.IsControl(r) && !strings.ContainsRune("\t\r\n", r) {
			r = utf8.RuneError
		}
		if text.Len()+utf8.RuneLen(r) > limit {
			break
		}
		text.WriteRune(r)
		b = b[size:]
	}
	return text.String()
}
