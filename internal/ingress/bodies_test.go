package ingress_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What goes in comes out, whatever it is, with a declared length or without.
func TestBodiesByteForByte(t *testing.T) {
	r := start(t, database(t), nil)
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	atLimit := []byte(`"` + strings.Repeat("x", maxBody-2) + `"`)
	for _, c := range []struct {
		name, endpoint string
		body           []byte
	}{
		{"escaped NUL in JSON", "github", []byte(`{"a":"\u0000"}`)},
		{"lone surrogate in JSON", "standard", []byte(`{"a":"\ud800"}`)},
		{"invalid UTF-8 in JSON", "github", []byte("{\"a\":\"\xff\xfe\"}")},
		{"pretty-printed", "github", []byte("{\r\n\t\"b\" : 1,\n\n  \"a\" : [ ]\n}\n\n")},
		{"repeated and unordered names", "standard", []byte(`{"b":1,"a":2,"b":3}`)},
		{"400 digits", "github", []byte(`{"n":` + strings.Repeat("9", 400) + `,"x":1e` + strings.Repeat("9", 400) + `}`)},
		{"bare value", "github", []byte("null")},
		{"escaped slashes", "github", []byte(`{"u":"http:\/\/a\/","e":"\u00e9"}`)},
		{"at the limit", "github", atLimit},
		{"empty", "hmac", []byte{}},
		{"empty, unsigned", "none", []byte{}},
		{"every byte", "hmac", everyByte},
		{"NUL bytes", "none", make([]byte, 1000)},
		{"invalid UTF-8", "none", []byte("\xff\xc0\xaf\xed\xa0\x80")},
		{"at the limit, unsigned", "none", bytes.Repeat([]byte{0xff}, maxBody)},
	} {
		for _, way := range []struct {
			name    string
			chunked bool
		}{{"declared", false}, {"chunked", true}} {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				q := signed(t, c.endpoint, c.body)
				q.chunked = way.chunked
				if e := r.accept(t, q); !bytes.Equal(e.Body, c.body) {
					t.Errorf("stored %d bytes that differ from the %d sent", len(e.Body), len(c.body))
				}
			})
		}
	}
}

// Real bodies, where the folder with them lies beside the checkout.
func TestCollectedPayloads(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "payloads", "github", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("no collected payloads beside this checkout")
	}
	r := start(t, database(t), func(s *setup) {
		for i := range s.config.Endpoints {
			s.config.Endpoints[i].MaxBodyBytes = 1 << 20
		}
	})
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, endpoint := range []string{"github", "standard"} {
				if e := r.accept(t, signed(t, endpoint, body)); !bytes.Equal(e.Body, body) {
					t.Errorf("%s: stored bytes differ", endpoint)
				}
			}
		})
	}
}

// The headers of one event are bounded, and those that fit are kept.
func TestKeptHeadersAreBounded(t *testing.T) {
	r := start(t, database(t), nil)
	q := signed(t, "none", []byte("x"))
	for _, name := range []string{"X-A", "X-B", "X-C"} {
		q.header.Set(name, strings.Repeat("v", 7<<10))
	}
	q.header.Set("X-D", "small")
	e := r.accept(t, q)
	encoded, err := json.Marshal(e.Headers)
	if err != nil {
		t.Fatal(err)
	}
	if len(encoded) > 17<<10 {
		t.Errorf("kept %d bytes", len(encoded))
	}
	for name, want := range map[string]bool{"X-A": true, "X-B": true, "X-C": false, "X-D": true} {
		if got := http.Header(e.Headers).Get(name) != ""; got != want {
			t.Errorf("header %s kept: %t, want %t", name, got, want)
		}
	}
}
