package signature_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/signature"
)

func BenchmarkVerify(b *testing.B) {
	for name, s := range map[string]signature.Scheme{
		"GitHub": signature.GitHub(), "StandardWebhooks": signature.StandardWebhooks(),
	} {
		for _, size := range []int{0, 1 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%dB", name, size), func(b *testing.B) {
				v, key := mustNew(b, s), mustKey(b, s, standardSecret)
				header, now, body := http.Header{}, time.Unix(standardTimestamp, 0), bytes.Repeat([]byte("x"), size)
				if err := v.Sign(header, key, standardID, now, body); err != nil {
					b.Fatal(err)
				}
				keys := []signature.Key{key}
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					if err := v.Verify(header, body, keys, now); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkSign(b *testing.B) {
	s := signature.StandardWebhooks()
	v, key := mustNew(b, s), mustKey(b, s, standardSecret)
	header, now, body := http.Header{}, time.Unix(standardTimestamp, 0), bytes.Repeat([]byte("x"), 1<<10)
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Sign(header, key, standardID, now, body); err != nil {
			b.Fatal(err)
		}
	}
}
