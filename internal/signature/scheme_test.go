package signature_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/signature"
)

func TestNewRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(*signature.Scheme)
		want   string
	}{
		"no algorithm":                   {func(s *signature.Scheme) { s.Algorithm = "" }, "algorithm"},
		"a weak algorithm":               {func(s *signature.Scheme) { s.Algorithm = "SHA1" }, "algorithm"},
		"no encoding":                    {func(s *signature.Scheme) { s.Encoding = "" }, "encoding"},
		"no secret format":               {func(s *signature.Scheme) { s.Secret = "" }, "secret format"},
		"no signature header":            {func(s *signature.Scheme) { s.SignatureHeader = "" }, "signature header"},
		"a bad signature header":         {func(s *signature.Scheme) { s.SignatureHeader = "X Signature" }, "signature header"},
		"a bad id header":                {func(s *signature.Scheme) { s.IDHeader = "id:" }, "header"},
		"a bad type header":              {func(s *signature.Scheme) { s.TypeHeader = "тип" }, "header"},
		"a prefix that HTTP would strip": {func(s *signature.Scheme) { s.Prefix = " v1," }, "prefix"},
		"a prefix that is not ASCII":     {func(s *signature.Scheme) { s.Prefix = "π" }, "prefix"},
		"a long separator":               {func(s *signature.Scheme) { s.Separator = ", " }, "separator"},
		"a separator out of base64":      {func(s *signature.Scheme) { s.Separator = "+" }, "separator"},
		"a separator out of the prefix":  {func(s *signature.Scheme) { s.Separator = "," }, "separator"},
		"nothing signed":                 {func(s *signature.Scheme) { s.Signed = "" }, "{body}"},
		"body not signed":                {func(s *signature.Scheme) { s.Signed = "{id}.{timestamp}" }, "{body}"},
		"body not last":                  {func(s *signature.Scheme) { s.Signed = "{body}.{id}.{timestamp}" }, "{body}"},
		"body twice":                     {func(s *signature.Scheme) { s.Signed = "{id}.{timestamp}.{body}.{body}" }, "{body}"},
		"an unknown placeholder":         {func(s *signature.Scheme) { s.Signed = "{url}.{timestamp}.{body}" }, "unknown placeholder"},
		"an open placeholder":            {func(s *signature.Scheme) { s.Signed = "{timestamp}.{body" }, "unknown placeholder"},
		"nothing between placeholders":   {func(s *signature.Scheme) { s.Signed = "{timestamp}{body}" }, "text between"},
		"a digit after the timestamp":    {func(s *signature.Scheme) { s.Signed = "{timestamp}0.{body}" }, "digit"},
		"id without a header":            {func(s *signature.Scheme) { s.IDHeader = "" }, "id header"},
		"timestamp without a header":     {func(s *signature.Scheme) { s.TimestampHeader = "" }, "{timestamp}"},
		"timestamp without tolerance":    {func(s *signature.Scheme) { s.Tolerance = 0 }, "{timestamp}"},
		"negative tolerance":             {func(s *signature.Scheme) { s.Tolerance = -time.Second }, "{timestamp}"},
		"tolerance without timestamp":    {func(s *signature.Scheme) { s.Signed = "{body}" }, "{timestamp}"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := signature.StandardWebhooks()
			tc.change(&s)
			if _, err := signature.New(s); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("New = %v, want an error about %q", err, tc.want)
			}
		})
	}
}

func TestPreset(t *testing.T) {
	for _, name := range []string{signature.PresetGitHub, signature.PresetStandardWebhooks} {
		s, ok := signature.Preset(name)
		if !ok {
			t.Errorf("Preset(%q) is unknown", name)
		}
		mustNew(t, s)
		if s.IDHeader == "" {
			t.Errorf("Preset(%q) has no id header", name)
		}
	}
	for _, name := range []string{"", "github", "None"} {
		if s, ok := signature.Preset(name); ok {
			t.Errorf("Preset(%q) = %+v, want none", name, s)
		}
	}
}

func TestDecodeSecret(t *testing.T) {
	raw, whsec := signature.GitHub(), signature.StandardWebhooks()
	tests := map[string]struct {
		scheme signature.Scheme
		secret string
		ok     bool
	}{
		"raw":                          {raw, githubSecret, true},
		"raw, any bytes":               {raw, "\x00\xff", true},
		"raw, empty":                   {raw, "", false},
		"whsec":                        {whsec, standardSecret, true},
		"whsec, without prefix":        {whsec, strings.TrimPrefix(standardSecret, "whsec_"), true},
		"whsec, empty":                 {whsec, "", false},
		"whsec, prefix alone":          {whsec, "whsec_", false},
		"whsec, not base64":            {whsec, "whsec_It's a Secret to Everybody", false},
		"whsec, URL alphabet":          {whsec, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS_", false},
		"whsec, padding missing":       {whsec, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMQ", false},
		"whsec, in two lines":          {whsec, "whsec_MfKQ9r8GKYqrTwjU\nPD8ILPZIo2LaLaSw", false},
		"whsec, the asymmetric prefix": {whsec, "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false},
		"unknown algorithm":            {signature.Scheme{Secret: signature.RawSecret}, githubSecret, false},
		"unknown format":               {signature.Scheme{Algorithm: signature.SHA256}, githubSecret, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			key, err := tc.scheme.DecodeSecret([]byte(tc.secret))
			if (err == nil) != tc.ok {
				t.Fatalf("DecodeSecret: %v, want success %t", err, tc.ok)
			}
			content := strings.TrimPrefix(tc.secret, "whsec_")
			if err != nil && content != "" && strings.Contains(err.Error(), content) {
				t.Errorf("the error quotes the secret: %v", err)
			}
			if err != nil && key != (signature.Key{}) {
				t.Error("a key came with the error")
			}
		})
	}
}

func TestDecodeSecretKeepsNothingOfTheSlice(t *testing.T) {
	s := signature.GitHub()
	secret := []byte(githubSecret)
	key, err := s.DecodeSecret(secret)
	if err != nil {
		t.Fatalf("DecodeSecret: %v", err)
	}
	clear(secret)
	if err := mustNew(t, s).Verify(headers("X-Hub-Signature-256", githubSignature), []byte(githubBody), []signature.Key{key}, time.Now()); err != nil {
		t.Errorf("Verify after the secret's slice was cleared: %v", err)
	}
}
