package signature_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ackrail/ackrail/internal/signature"
)

// Published examples: GitHub's and Slack's documentation, the test of the Standard Webhooks reference libraries.
const (
	githubSecret    = "It's a Secret to Everybody"
	githubBody      = "Hello, World!"
	githubSignature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

	standardSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	standardID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	standardTimestamp = 1614265330
	standardBody      = `{"test": 2432232314}`
	standardSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

	slackSecret    = "8f742231b10e8888abcd99yyyzzz85a5"
	slackTimestamp = 1531420618
	slackBody      = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V" +
		"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=" +
		"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN" +
		"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	slackSignature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
)

// slack is not a preset. It stands here to show that one provider more takes data only.
func slack() signature.Scheme {
	return signature.Scheme{
		Algorithm:       signature.SHA256,
		Encoding:        signature.Hex,
		Secret:          signature.RawSecret,
		Signed:          "v0:{timestamp}:{body}",
		SignatureHeader: "X-Slack-Signature",
		Prefix:          "v0=",
		TimestampHeader: "X-Slack-Request-Timestamp",
		Tolerance:       5 * time.Minute,
	}
}

func mustNew(t testing.TB, s signature.Scheme) *signature.Verifier {
	t.Helper()
	v, err := signature.New(s)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return v
}

func mustKey(t testing.TB, s signature.Scheme, secret string) signature.Key {
	t.Helper()
	k, err := s.DecodeSecret([]byte(secret))
	if err != nil {
		t.Fatalf("DecodeSecret: %v", err)
	}
	return k
}

// headers makes a header from pairs of name and value; a name may come several times.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func standardHeaders(signatures string) http.Header {
	return headers("webhook-id", standardID, "webhook-timestamp", fmt.Sprint(standardTimestamp), "webhook-signature", signatures)
}

func reasonOf(err error) signature.Reason {
	if e, ok := errors.AsType[*signature.Error](err); ok {
		return e.Reason
	}
	return ""
}

func TestPublishedVectors(t *testing.T) {
	tests := map[string]struct {
		scheme signature.Scheme
		secret string
		id     string
		at     int64
		body   string
		want   http.Header
	}{
		"GitHub": {
			scheme: signature.GitHub(), secret: githubSecret, body: githubBody,
			want: headers("X-Hub-Signature-256", githubSignature),
		},
		"StandardWebhooks": {
			scheme: signature.StandardWebhooks(), secret: standardSecret, id: standardID, at: standardTimestamp, body: standardBody,
			want: standardHeaders(standardSignature),
		},
		"StandardWebhooks without the secret's prefix": {
			scheme: signature.StandardWebhooks(), secret: strings.TrimPrefix(standardSecret, "whsec_"),
			id: standardID, at: standardTimestamp, body: standardBody,
			want: standardHeaders(standardSignature),
		},
		"Slack": {
			scheme: slack(), secret: slackSecret, at: slackTimestamp, body: slackBody,
			want: headers("X-Slack-Signature", slackSignature, "X-Slack-Request-Timestamp", fmt.Sprint(slackTimestamp)),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v, key := mustNew(t, tc.scheme), mustKey(t, tc.scheme, tc.secret)
			at := time.Unix(tc.at, 0)
			if err := v.Verify(tc.want, []byte(tc.body), []signature.Key{key}, at); err != nil {
				t.Errorf("Verify refused a published signature: %v", err)
			}
			if err := v.Verify(tc.want, []byte(tc.body+" "), []signature.Key{key}, at); reasonOf(err) != signature.ReasonMismatch {
				t.Errorf("Verify of another body = %v, want %s", err, signature.ReasonMismatch)
			}
			got := http.Header{}
			if err := v.Sign(got, key, tc.id, at, []byte(tc.body)); err != nil {
				t.Fatalf("Sign: %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Sign made other headers (-published +made):\n%s", diff)
			}
		})
	}
}

func TestVerifyGitHub(t *testing.T) {
	const header = "X-Hub-Signature-256"
	digest := strings.TrimPrefix(githubSignature, "sha256=")
	tests := map[string]struct {
		header http.Header
		want   signature.Reason
	}{
		"good":                    {headers(header, githubSignature), ""},
		"upper-case hex":          {headers(header, "sha256="+strings.ToUpper(digest)), ""},
		"no header":               {headers(), signature.ReasonMissing},
		"only the SHA-1 header":   {headers("X-Hub-Signature", "sha1="+digest[:40]), signature.ReasonMissing},
		"empty":                   {headers(header, ""), signature.ReasonMalformed},
		"prefix alone":            {headers(header, "sha256="), signature.ReasonMalformed},
		"no prefix":               {headers(header, digest), signature.ReasonMalformed},
		"other prefix":            {headers(header, "sha512="+digest), signature.ReasonMalformed},
		"prefix in upper case":    {headers(header, "SHA256="+digest), signature.ReasonMalformed},
		"one digit short":         {headers(header, githubSignature[:len(githubSignature)-1]), signature.ReasonMalformed},
		"one digit more":          {headers(header, githubSignature+"0"), signature.ReasonMalformed},
		"not hex":                 {headers(header, "sha256="+strings.Repeat("g", 64)), signature.ReasonMalformed},
		"all zero":                {headers(header, "sha256="+strings.Repeat("0", 64)), signature.ReasonMismatch},
		"leading space":           {headers(header, " "+githubSignature), signature.ReasonMalformed},
		"two in one value":        {headers(header, githubSignature+" "+githubSignature), signature.ReasonMalformed},
		"good value, then other":  {headers(header, githubSignature, header, "sha256="+strings.Repeat("0", 64)), signature.ReasonMalformed},
		"other value, then good":  {headers(header, "sha256="+strings.Repeat("0", 64), header, githubSignature), signature.ReasonMalformed},
		"the same value twice":    {headers(header, githubSignature, header, githubSignature), signature.ReasonMalformed},
		"very long":               {headers(header, "sha256="+strings.Repeat("a", 1<<20)), signature.ReasonMalformed},
		"NUL bytes and bad UTF-8": {headers(header, "sha256=\x00\xff\xfe"), signature.ReasonMalformed},
	}
	v := mustNew(t, signature.GitHub())
	keys := []signature.Key{mustKey(t, signature.GitHub(), githubSecret)}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := v.Verify(tc.header, []byte(githubBody), keys, time.Now())
			if got := reasonOf(err); got != tc.want || (err == nil) != (tc.want == "") {
				t.Errorf("Verify = %v, want reason %q", err, tc.want)
			}
		})
	}
}

func TestVerifyStandardWebhooks(t *testing.T) {
	other := "v1," + base64.StdEncoding.EncodeToString(make([]byte, 32))
	asymmetric := "v1a," + base64.StdEncoding.EncodeToString(make([]byte, 64))
	id, timestamp := standardID, fmt.Sprint(standardTimestamp)
	tests := map[string]struct {
		header http.Header
		want   signature.Reason
	}{
		"one":                         {standardHeaders(standardSignature), ""},
		"second of two":               {standardHeaders(other + " " + standardSignature), ""},
		"beside an asymmetric one":    {standardHeaders(asymmetric + " " + standardSignature), ""},
		"beside rubbish":              {standardHeaders("v1 v1, v1,x ,, " + standardSignature), ""},
		"last of the most":            {standardHeaders(strings.Repeat(other+" ", signature.MaxSignatures-1) + standardSignature), ""},
		"one more than the most":      {standardHeaders(standardSignature + strings.Repeat(" "+other, signature.MaxSignatures)), signature.ReasonMalformed},
		"only an asymmetric one":      {standardHeaders(asymmetric), signature.ReasonMalformed},
		"symmetric named asymmetric":  {standardHeaders("v1a" + strings.TrimPrefix(standardSignature, "v1")), signature.ReasonMalformed},
		"only other ones":             {standardHeaders(other + " " + other), signature.ReasonMismatch},
		"joined by commas":            {standardHeaders(other + "," + standardSignature), signature.ReasonMalformed},
		"empty":                       {standardHeaders(""), signature.ReasonMalformed},
		"spaces":                      {standardHeaders(strings.Repeat(" ", 5)), signature.ReasonMalformed},
		"without padding":             {standardHeaders(strings.TrimRight(standardSignature, "=")), signature.ReasonMalformed},
		"trailing bits set":           {standardHeaders(strings.Replace(standardSignature, "OE=", "OF=", 1)), signature.ReasonMalformed},
		"line break inside":           {standardHeaders(standardSignature[:10] + "\n" + standardSignature[10:]), signature.ReasonMalformed},
		"signature missing":           {headers("webhook-id", id, "webhook-timestamp", timestamp), signature.ReasonMissing},
		"id missing":                  {headers("webhook-timestamp", timestamp, "webhook-signature", standardSignature), signature.ReasonMissing},
		"id empty":                    {headers("webhook-id", "", "webhook-timestamp", timestamp, "webhook-signature", standardSignature), signature.ReasonMalformed},
		"id twice":                    {headers("webhook-id", id, "webhook-id", id, "webhook-timestamp", timestamp, "webhook-signature", standardSignature), signature.ReasonMalformed},
		"other id":                    {headers("webhook-id", "msg_2", "webhook-timestamp", timestamp, "webhook-signature", standardSignature), signature.ReasonMismatch},
		"timestamp missing":           {headers("webhook-id", id, "webhook-signature", standardSignature), signature.ReasonMissing},
		"timestamp twice":             {headers("webhook-id", id, "webhook-timestamp", timestamp, "webhook-timestamp", timestamp, "webhook-signature", standardSignature), signature.ReasonMalformed},
		"signature twice":             {headers("webhook-id", id, "webhook-timestamp", timestamp, "webhook-signature", standardSignature, "webhook-signature", standardSignature), signature.ReasonMalformed},
		"timestamp empty":             {headers("webhook-id", id, "webhook-timestamp", "", "webhook-signature", standardSignature), signature.ReasonMalformed},
		"timestamp with a sign":       {headers("webhook-id", id, "webhook-timestamp", "+"+timestamp, "webhook-signature", standardSignature), signature.ReasonMalformed},
		"timestamp negative":          {headers("webhook-id", id, "webhook-timestamp", "-1", "webhook-signature", standardSignature), signature.ReasonMalformed},
		"timestamp with a fraction":   {headers("webhook-id", id, "webhook-timestamp", timestamp+".0", "webhook-signature", standardSignature), signature.ReasonMalformed},
		"timestamp a date":            {headers("webhook-id", id, "webhook-timestamp", "2021-02-25T15:02:10Z", "webhook-signature", standardSignature), signature.ReasonMalformed},
		"timestamp in milliseconds":   {headers("webhook-id", id, "webhook-timestamp", timestamp+"000", "webhook-signature", standardSignature), signature.ReasonStale},
		"timestamp of 18 nines":       {headers("webhook-id", id, "webhook-timestamp", strings.Repeat("9", 18), "webhook-signature", standardSignature), signature.ReasonStale},
		"timestamp beyond 64 bits":    {headers("webhook-id", id, "webhook-timestamp", strings.Repeat("9", 30), "webhook-signature", standardSignature), signature.ReasonMalformed},
		"timestamp with leading zero": {headers("webhook-id", id, "webhook-timestamp", "0"+timestamp, "webhook-signature", standardSignature), signature.ReasonMismatch},
	}
	v := mustNew(t, signature.StandardWebhooks())
	keys := []signature.Key{mustKey(t, signature.StandardWebhooks(), standardSecret)}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := v.Verify(tc.header, []byte(standardBody), keys, time.Unix(standardTimestamp, 0))
			if got := reasonOf(err); got != tc.want || (err == nil) != (tc.want == "") {
				t.Errorf("Verify = %v, want reason %q", err, tc.want)
			}
		})
	}
}

func TestTolerance(t *testing.T) {
	v := mustNew(t, signature.StandardWebhooks())
	keys := []signature.Key{mustKey(t, signature.StandardWebhooks(), standardSecret)}
	for _, tc := range []struct {
		late time.Duration
		want signature.Reason
	}{
		{0, ""},
		{5 * time.Minute, ""},
		{-5 * time.Minute, ""},
		{5*time.Minute + time.Nanosecond, signature.ReasonStale},
		{-5*time.Minute - time.Nanosecond, signature.ReasonStale},
		{1000 * time.Hour, signature.ReasonStale},
		{-1000 * time.Hour, signature.ReasonStale},
	} {
		now := time.Unix(standardTimestamp, 0).Add(tc.late)
		if err := v.Verify(standardHeaders(standardSignature), []byte(standardBody), keys, now); reasonOf(err) != tc.want {
			t.Errorf("Verify %v after the timestamp = %v, want reason %q", tc.late, err, tc.want)
		}
	}
}

// A captured message must not verify when its parts are cut at other places.
func TestPartsCannotBeShifted(t *testing.T) {
	v := mustNew(t, signature.StandardWebhooks())
	keys := []signature.Key{mustKey(t, signature.StandardWebhooks(), standardSecret)}
	header, at := http.Header{}, time.Unix(standardTimestamp, 0)
	body := []byte("1614269999.the rest")
	if err := v.Sign(header, keys[0], "msg_1", at, body); err != nil {
		t.Fatalf("Sign: %v", err)
	}
	header.Set("webhook-id", fmt.Sprintf("msg_1.%d", standardTimestamp))
	header.Set("webhook-timestamp", "1614269999")
	err := v.Verify(header, []byte("the rest"), keys, time.Unix(1614269999, 0))
	if reasonOf(err) != signature.ReasonMalformed {
		t.Errorf("Verify of the shifted message = %v, want reason %q", err, signature.ReasonMalformed)
	}
	if err := v.Sign(http.Header{}, keys[0], "msg.1", at, body); err == nil {
		t.Error("Sign accepted an id that Verify refuses")
	}
}

func TestSeveralSecrets(t *testing.T) {
	s := signature.GitHub()
	v := mustNew(t, s)
	right, wrong := mustKey(t, s, githubSecret), mustKey(t, s, "another")
	tests := map[string]struct {
		keys []signature.Key
		want signature.Reason
	}{
		"first":          {[]signature.Key{right, wrong}, ""},
		"last":           {[]signature.Key{wrong, wrong, right}, ""},
		"none right":     {[]signature.Key{wrong, wrong}, signature.ReasonMismatch},
		"none":           {nil, signature.ReasonNoSecret},
		"a zero one":     {[]signature.Key{right, {}}, signature.ReasonNoSecret},
		"only a zero":    {[]signature.Key{{}}, signature.ReasonNoSecret},
		"other hash":     {[]signature.Key{mustKey(t, signature.HMAC("X", signature.SHA512, signature.Hex, ""), githubSecret)}, signature.ReasonMismatch},
		"empty, non-nil": {[]signature.Key{}, signature.ReasonNoSecret},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := v.Verify(headers("X-Hub-Signature-256", githubSignature), []byte(githubBody), tc.keys, time.Now())
			if got := reasonOf(err); got != tc.want || (err == nil) != (tc.want == "") {
				t.Errorf("Verify = %v, want reason %q", err, tc.want)
			}
		})
	}
}

// The MACs are computed here with the standard library alone, so that an error of the package cannot cancel itself out.
func TestHMACSettings(t *testing.T) {
	body, secret := []byte("\x00body\xff\n"), []byte("\x01raw secret\xfe")
	sha2 := hmac.New(sha256.New, secret)
	sha2.Write(body)
	sha5 := hmac.New(sha512.New, secret)
	sha5.Write(body)
	sum2, sum5 := sha2.Sum(nil), sha5.Sum(nil)
	tests := map[string]struct {
		scheme signature.Scheme
		value  string
	}{
		"SHA256 hex":    {signature.HMAC("x-signature", signature.SHA256, signature.Hex, ""), hex.EncodeToString(sum2)},
		"SHA256 base64": {signature.HMAC("x-signature", signature.SHA256, signature.Base64, "sig="), "sig=" + base64.StdEncoding.EncodeToString(sum2)},
		"SHA512 hex":    {signature.HMAC("x-signature", signature.SHA512, signature.Hex, "sha512="), "sha512=" + hex.EncodeToString(sum5)},
		"SHA512 base64": {signature.HMAC("x-signature", signature.SHA512, signature.Base64, ""), base64.StdEncoding.EncodeToString(sum5)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v, key := mustNew(t, tc.scheme), mustKey(t, tc.scheme, string(secret))
			if err := v.Verify(headers("X-Signature", tc.value), body, []signature.Key{key}, time.Now()); err != nil {
				t.Errorf("Verify: %v", err)
			}
			got := http.Header{}
			if err := v.Sign(got, key, "ignored", time.Time{}, body); err != nil {
				t.Fatalf("Sign: %v", err)
			}
			if diff := cmp.Diff(headers("X-Signature", tc.value), got); diff != "" {
				t.Errorf("Sign (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSignRefuses(t *testing.T) {
	s := signature.StandardWebhooks()
	v, key := mustNew(t, s), mustKey(t, s, standardSecret)
	for name, sign := range map[string]func(http.Header) error{
		"no key":      func(h http.Header) error { return v.Sign(h, signature.Key{}, "msg_1", time.Unix(1, 0), nil) },
		"no id":       func(h http.Header) error { return v.Sign(h, key, "", time.Unix(1, 0), nil) },
		"before 1970": func(h http.Header) error { return v.Sign(h, key, "msg_1", time.Unix(-1, 0), nil) },
	} {
		h := http.Header{}
		if err := sign(h); err == nil {
			t.Errorf("%s: Sign made %v, want an error", name, h)
		}
		if h.Get("webhook-signature") != "" {
			t.Errorf("%s: a signature was set beside the error", name)
		}
	}
}

// One key serves all requests to an endpoint at once.
func TestKeyIsSafeForConcurrentUse(t *testing.T) {
	s := signature.StandardWebhooks()
	v, keys := mustNew(t, s), []signature.Key{mustKey(t, s, standardSecret)}
	at := time.Unix(standardTimestamp, 0)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				h, body := http.Header{}, []byte(fmt.Sprintf("body %d %d", i, j))
				if err := v.Sign(h, keys[0], fmt.Sprintf("msg_%d", j), at, body); err != nil {
					t.Errorf("Sign: %v", err)
				}
				if err := v.Verify(h, body, keys, at); err != nil {
					t.Errorf("Verify: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestErrorsNameTheHeaderAndQuoteNothing(t *testing.T) {
	v := mustNew(t, signature.GitHub())
	keys := []signature.Key{mustKey(t, signature.GitHub(), githubSecret)}
	err := v.Verify(headers("X-Hub-Signature-256", "from-the-sender"), nil, keys, time.Now())
	if err == nil || !strings.Contains(err.Error(), "X-Hub-Signature-256") || strings.Contains(err.Error(), "from-the-sender") {
		t.Errorf("Verify = %v, want an error that names the header and not its value", err)
	}
	texts := map[string]bool{}
	for _, r := range signature.Reasons() {
		texts[(&signature.Error{Reason: r}).Error()] = true
	}
	if want := len(signature.Reasons()); len(texts) != want || len(slices.Compact(slices.Sorted(slices.Values(signature.Reasons())))) != want {
		t.Errorf("%d texts for %d reasons, want one each", len(texts), want)
	}
}
