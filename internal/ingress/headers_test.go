package ingress

import (
	"net/http"
	"strings"
	"testing"
)

func TestTraceParent(t *testing.T) {
	const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		name   string
		values []string
		want   string
	}{
		{"valid", []string{valid}, valid},
		{"not sampled", []string{valid[:53] + "00"}, valid[:53] + "00"},
		{"missing", nil, ""},
		{"empty", []string{""}, ""},
		{"twice", []string{valid, valid}, ""},
		{"another version", []string{"01" + valid[2:]}, ""},
		{"forbidden version", []string{"ff" + valid[2:]}, ""},
		{"capitals", []string{strings.ToUpper(valid)}, ""},
		{"zero trace id", []string{"00-" + strings.Repeat("0", 32) + valid[35:]}, ""},
		{"zero parent id", []string{valid[:36] + strings.Repeat("0", 16) + valid[52:]}, ""},
		{"short", []string{valid[:54]}, ""},
		{"more behind it", []string{valid + "-00"}, ""},
		{"line end", []string{valid + "\n"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := traceParent(http.Header{"Traceparent": c.values}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestToText(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{"", ""},
		{"plain\ttext", "plain\ttext"},
		{"größe 鍵", "größe 鍵"},
		{"a\x00b", "a\ufffdb"},
		{"caf\xe9", "caf\ufffd"},
		{"\xff\x00", "\ufffd\ufffd"},
		{"\xed\xa0\x80", "\ufffd"}, // a surrogate
	} {
		if got := toText(c.value); got != c.want {
			t.Errorf("toText(%q) = %q, want %q", c.value, got, c.want)
		}
	}
}

func TestGate(t *testing.T) {
	g := newGate()
	passed, suppressed := 0, int64(0)
	const calls = 1000
	for range calls {
		n, ok := g.pass()
		if ok {
			passed++
		}
		suppressed += n
	}
	if passed < linesPerSecond || passed == calls {
		t.Errorf("%d of %d passed", passed, calls)
	}
	if sum := int64(passed) + suppressed + g.suppressed.Load(); sum != calls {
		t.Errorf("%d accounted for, want %d", sum, calls)
	}
}
