package deliver

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/secretfile"
	"github.com/ackrail/ackrail/internal/signature"
)

// Limits of one exchange.
const (
	maxResponseHeaderBytes = 64 << 10
	maxResponseBodyBytes   = 64 << 10
	// maxExcerptBytes and maxErrorBytes bound the texts of an Outcome.
	maxExcerptBytes = 1 << 10
	maxErrorBytes   = 512
)

// HTTP holds what all destinations share: the connections, and how requests are signed. It is safe for concurrent use.
type HTTP struct {
	transport *http.Transport
	signer    *signature.Verifier
	secrets   string
	userAgent string
}

// New makes a sender. The signing secrets are files below the folder secrets, which may be empty while no
// destination signs; version goes into User-Agent. A proxy is taken from the environment, as Go programs do
// (HTTPS_PROXY, HTTP_PROXY, NO_PROXY).
func New(secrets, version string) (*HTTP, error) {
	signer, err := signature.New(signature.StandardWebhooks())
	if err != nil {
		return nil, fmt.Errorf("preparing to sign deliveries: %w", err)
	}
	return &HTTP{
		transport: newTransport(),
		signer:    signer,
		secrets:   secrets,
		userAgent: "Ackrail/" + version,
	}, nil
}

func newTransport() *http.Transport {
	// A dial goes on in the background when its request has given up, because another one may use the connection.
	// These two end it; the request's own deadline is usually shorter.
	const connectTimeout = 30 * time.Second
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: connectTimeout,
		ForceAttemptHTTP2:   true,
		// A pinged connection that does not answer is given up; else one dead peer would cost every request its whole timeout.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		// How many requests are in flight is the caller's choice; what they leave behind should survive until the next ones.
		MaxIdleConns:        4096,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     60 * time.Second,
		// Neither asked for nor undone: the excerpt shows what came.
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
	}
}

// CloseIdleConnections ends the connections that no request is using.
func (h *HTTP) CloseIdleConnections() { h.transport.CloseIdleConnections() }

// Destination is one place to send to. It is safe for concurrent use.
type Destination struct {
	http *HTTP
	// template has the method and the URL; each request is a copy of it.
	template *http.Request
	timeout  time.Duration
	// maxRetryAfter bounds what the destination may ask for.
	maxRetryAfter time.Duration
	key           *secretfile.File[signature.Key] // nil: not signed
}

// Destination prepares to send to d. The error is about the configuration alone: a signing secret that is not there yet
// is an outcome of the attempts that need it. No error quotes the URL, which may contain a token.
func (h *HTTP) Destination(d pipeline.Destination) (*Destination, error) {
	template, err := http.NewRequest(http.MethodPost, d.HTTP.URL, http.NoBody)
	if err != nil || template.URL.Host == "" || (template.URL.Scheme != "http" && template.URL.Scheme != "https") {
		return nil, fmt.Errorf("destination %s: url is not an absolute http or https URL", d.Name)
	}
	if d.HTTP.Timeout() <= 0 {
		return nil, fmt.Errorf("destination %s: a timeout above zero is required", d.Name)
	}
	dest := &Destination{
		http:          h,
		template:      template,
		timeout:       d.HTTP.Timeout(),
		maxRetryAfter: d.Retry.MaxBackoff(),
	}
	if d.HTTP.SigningSecretFile != "" {
		dest.key, err = secretfile.Open(h.secrets, d.HTTP.SigningSecretFile, signature.StandardWebhooks().DecodeSecret)
		if err != nil {
			return nil, fmt.Errorf("destination %s: %w", d.Name, err)
		}
	}
	return dest, nil
}
