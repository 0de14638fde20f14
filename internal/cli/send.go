package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/manifest"
	"github.com/ackrail/ackrail/internal/signature"
)

// sendFlags are the flags of ackrail send.
type sendFlags struct {
	files       []string
	endpoint    string
	namespace   string
	body        string
	eventType   string
	id          string
	contentType string
	url         string
}

func newSend() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "send -f FILE... --endpoint NAME --body FILE",
		Short: "Send a webhook, signed as the endpoint's provider would",
		Long: `Send a webhook to an endpoint, signed as its provider would with the first of
its secrets, and print the answer. An answer other than 2xx makes the command
fail.`,
		Example: `  ackrail send -f github.yaml --endpoint github --body a.json --id 1
  echo '{}' | ackrail send -f a.yaml --endpoint payments/github --body -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.files, "filename", "f", nil, "manifests with the endpoint and its secrets: files, folders or - for standard input (required)")
	flags.StringVar(&f.endpoint, "endpoint", "", "endpoint to send to: NAME or NAMESPACE/NAME (required)")
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "namespace of an endpoint that is given by its name alone")
	flags.StringVar(&f.body, "body", "", "file with the body, - for standard input (required)")
	flags.StringVar(&f.eventType, "event-type", "", "type of the event")
	flags.StringVar(&f.id, "id", "", "idempotency key (default: a new one)")
	flags.StringVar(&f.contentType, "content-type", "", "media type of the body (default: application/json where it is JSON)")
	flags.StringVar(&f.url, "url", "http://127.0.0.1:8080", "where the ingress is; the endpoint's path is added unless the URL has one")
	for _, name := range []string{"filename", "endpoint", "body"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

func (f *sendFlags) run(cmd *cobra.Command) error {
	if f.body == "-" && slices.Contains(f.files, "-") {
		return errors.New("--body and --filename cannot both be standard input")
	}
	set, err := manifest.Read(f.files, cmd.InOrStdin())
	if err != nil {
		return err
	}
	e, err := f.find(set)
	if err != nil {
		return err
	}
	body, err := readFile(f.body, cmd.InOrStdin())
	if err != nil {
		return fmt.Errorf("--body: %w", err)
	}
	request, err := f.request(cmd, set, e, body)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 30 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("--url: sending to %s: %w (is ackrail dev running there?)", request.URL.Redacted(), errors.Unwrap(err))
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	say(cmd.OutOrStdout(), "HTTP %s", response.Status)
	say(cmd.OutOrStdout(), "%s", bytes.TrimSpace(answer))
	if response.StatusCode/100 != 2 {
		return errPrinted
	}
	return nil
}

func readFile(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

func (f *sendFlags) find(set *manifest.Set) (*v1alpha1.WebhookEndpoint, error) {
	ref, err := event.ParseEndpointRef(f.endpoint, f.namespace)
	if err != nil {
		return nil, fmt.Errorf("--endpoint: %w", err)
	}
	var known []string
	for i := range set.Endpoints {
		e := &set.Endpoints[i]
		if e.Namespace == ref.Namespace && e.Name == ref.Name {
			return e, nil
		}
		known = append(known, e.Namespace+"/"+e.Name)
	}
	if known == nil {
		known = []string{"none"}
	}
	return nil, fmt.Errorf("--endpoint: no WebhookEndpoint %s in %s, which has %s", ref, strings.Join(f.files, ", "), strings.Join(known, ", "))
}

// request makes the request that the endpoint's provider would.
func (f *sendFlags) request(cmd *cobra.Command, set *manifest.Set, e *v1alpha1.WebhookEndpoint, body []byte) (*http.Request, error) {
	target, err := f.target(e)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(cmd.Context(), http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	h := request.Header
	h.Set("User-Agent", "ackrail-send/"+version)
	switch {
	case f.contentType != "":
		h.Set("Content-Type", f.contentType)
	case json.Valid(body):
		h.Set("Content-Type", "application/json")
	default:
		h.Set("Content-Type", "application/octet-stream")
	}
	if f.eventType != "" {
		name := typeHeader(e)
		if name == "" {
			return nil, errors.New("--event-type: the endpoint takes no type: set spec.source.identity.type.header")
		}
		h.Set(name, f.eventType)
	}
	id := f.id
	if id == "" {
		id = uuid.NewString()
	}
	h.Set(keyHeader(e), id)
	for flag, value := range map[string]string{"content-type": f.contentType, "event-type": f.eventType, "id": id} {
		if !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("--%s: has control characters, which no header can carry", flag)
		}
	}
	return request, sign(set, e, h, id, body)
}

func (f *sendFlags) target(e *v1alpha1.WebhookEndpoint) (string, error) {
	u, err := url.Parse(f.url)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		// The URL is not repeated: it may have a password.
		return "", errors.New("--url: is malformed: want http://HOST:PORT[/PATH]")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = e.Path()
	}
	return u.String(), nil
}

// sign signs with the endpoint's first secret, which is the newest one by
// convention.
func sign(set *manifest.Set, e *v1alpha1.WebhookEndpoint, h http.Header, id string, body []byte) error {
	scheme, ok := schemeOf(e)
	if !ok {
		return nil
	}
	key, err := secretKey(set, e.Namespace, scheme, e.Spec.Source.SecretRefs[0])
	if err != nil {
		return fmt.Errorf("WebhookEndpoint %s/%s: spec.source.secretRefs[0]: %w", e.Namespace, e.Name, err)
	}
	verifier, err := signature.New(scheme)
	if err != nil {
		return err
	}
	if err := verifier.Sign(h, key, id, time.Now(), body); err != nil {
		return fmt.Errorf("signing: %w", err)
	}
	return nil
}
