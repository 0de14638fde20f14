package ingress_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/signature"
	"github.com/ackrail/ackrail/internal/testenv"
)

// noticed is by when a changed secret file must have been noticed.
const noticed = 5 * time.Second

// eventually sends until the answer has a status.
func (r *rig) eventually(t *testing.T, q *request, status int) reply {
	t.Helper()
	var got reply
	testenv.Eventually(t, noticed, func() error {
		if got = r.send(t, q); got.Status != status {
			return fmt.Errorf("answer %+v, want %d", got, status)
		}
		return nil
	})
	return got
}

func githubSigned(t *testing.T, secret string) *request {
	t.Helper()
	q := signed(t, "github", []byte("{}"))
	q.sign(t, signature.GitHub(), secret, "")
	return q
}

// checkUnavailable asserts the answer of an endpoint that cannot verify.
func checkUnavailable(t *testing.T, got reply) {
	t.Helper()
	if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "5" || got.Body != refusal("unavailable") {
		t.Errorf("answer %+v, want 503 with Retry-After", got)
	}
}

func TestSecretRotation(t *testing.T) {
	dir := secrets(t)
	r := start(t, database(t), func(s *setup) {
		s.options.SecretsDir = dir
		s.config.Endpoints[0].Verification.SecretFiles = []string{"github/secret", "github/next"}
	})
	fresh := func(secret string) *request { return githubSigned(t, secret) }

	// Both secrets are live.
	writeSecret(t, dir, "github/next", "next secret\n")
	r.eventually(t, fresh("next secret"), http.StatusAccepted)
	r.accept(t, fresh(githubSecret))

	// The first is replaced: the old one is dead, the others are not.
	writeSecret(t, dir, "github/secret", "third secret")
	r.eventually(t, fresh("third secret"), http.StatusAccepted)
	r.accept(t, fresh("next secret"))
	if got := r.send(t, fresh(githubSecret)); got.Status != http.StatusUnauthorized {
		t.Errorf("answer %+v under a replaced secret, want 401", got)
	}

	// One is removed: what the other signs is still taken; what fits none
	// may be signed with the one that cannot be read.
	if err := os.Remove(filepath.Join(dir, "github/next")); err != nil {
		t.Fatal(err)
	}
	checkUnavailable(t, r.eventually(t, fresh("next secret"), http.StatusServiceUnavailable))
	r.accept(t, fresh("third secret"))
	unsigned := fresh("third secret")
	unsigned.header.Del("X-Hub-Signature-256")
	if got := r.send(t, unsigned); got.Status != http.StatusUnauthorized {
		t.Errorf("answer %+v without a signature, want 401", got)
	}

	// None is left: nothing is accepted, and the other endpoints are not affected.
	if err := os.Remove(filepath.Join(dir, "github/secret")); err != nil {
		t.Fatal(err)
	}
	checkUnavailable(t, r.eventually(t, fresh("third secret"), http.StatusServiceUnavailable))
	r.accept(t, signed(t, "standard", []byte("{}")))

	writeSecret(t, dir, "github/secret", "fourth secret")
	r.eventually(t, fresh("fourth secret"), http.StatusAccepted)
}

func TestUnusableSecretAtStart(t *testing.T) {
	database := database(t)
	for _, c := range []struct {
		name    string
		prepare func(dir string) error
	}{
		{"missing", func(dir string) error { return os.Remove(filepath.Join(dir, "standard/secret")) }},
		{"missing folder", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "standard")) }},
		{"empty", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "standard/secret"), []byte("\n"), 0o600)
		}},
		{"undecodable", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "standard/secret"), []byte("whsec_not base64"), 0o600)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := secrets(t)
			if err := c.prepare(dir); err != nil {
				t.Fatal(err)
			}
			r := start(t, database, func(s *setup) { s.options.SecretsDir = dir })
			if lines := r.logs.with(t, "Secret cannot be used"); len(lines) != 1 || lines[0]["endpoint"] != "standard" {
				t.Errorf("log at start: %v", lines)
			}
			checkUnavailable(t, r.send(t, signed(t, "standard", []byte("{}"))))
			if n := r.requests(t, "standard", "unavailable"); n != 1 {
				t.Errorf("counted %v times, want once", n)
			}
			if n := r.metric(t, "ackrail_ingress_signature_failures_total", "standard", "test", string(signature.ReasonNoSecret)); n != 1 {
				t.Errorf("reason counted %v times, want once", n)
			}
			if lines := r.logs.with(t, "Could not take a request"); len(lines) != 1 || lines[0]["endpoint"] != "standard" {
				t.Errorf("log: %v", lines)
			}
			r.accept(t, signed(t, "github", []byte("{}")))

			writeSecret(t, dir, "standard/secret", standardSecret)
			r.eventually(t, signed(t, "standard", []byte("{}")), http.StatusAccepted)
		})
	}
}

// Nobody gets in while secrets change under load: every answer is one that
// the request deserves with the old or the new secret.
func TestRotationUnderLoad(t *testing.T) {
	dir := secrets(t)
	r := start(t, database(t), func(s *setup) { s.options.SecretsDir = dir })
	stop := make(chan struct{})
	rotated := make(chan error, 1)
	go func() {
		var err error
		for i := 0; ; i++ {
			select {
			case <-stop:
				rotated <- err
				return
			default:
			}
			file := filepath.Join(dir, "github/secret")
			err = errors.Join(err,
				os.WriteFile(file+".new", fmt.Appendf(nil, "secret %d", i%2), 0o600), os.Rename(file+".new", file))
		}
	}()
	began := time.Now()
	accepted := 0
	for accepted == 0 || time.Since(began) < 1500*time.Millisecond {
		if time.Since(began) > 20*time.Second {
			t.Fatal("neither secret was ever accepted")
		}
		for _, secret := range []string{"secret 0", "secret 1"} {
			switch got := r.send(t, githubSigned(t, secret)); got.Status {
			case http.StatusAccepted:
				accepted++
			case http.StatusUnauthorized:
			default:
				t.Fatalf("answer %+v", got)
			}
		}
		if got := r.send(t, githubSigned(t, "secret 2")); got.Status != http.StatusUnauthorized {
			t.Fatalf("answer %+v to a secret that never was, want 401", got)
		}
	}
	close(stop)
	if err := <-rotated; err != nil {
		t.Fatal(err)
	}
}
