package deliver

import "testing"

func FuzzPrintable(f *testing.F) {
	f.Add([]byte("plain €\x00\xff\n"), 4)
	f.Add([]byte{0xe2, 0x82}, 3)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		text := printable(b, limit)
		if len(text) > max(limit, 0) {
			t.Errorf("printable(%q, %d) has %d bytes", b, limit, len(text))
		}
		if again := printable([]byte(text), limit); again != text {
			t.Errorf("printable changed its own result %q to %q", text, again)
		}
	})
}
