package deliver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/deliver"
	"github.com/ackrail/ackrail/internal/event"
)

func TestConnectionRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	check(t, destination(t, "", "http://"+address, nil).Send(t.Context(), request()), failed(event.ErrorConnectionRefused))
}

func TestUnknownHost(t *testing.T) {
	got := destination(t, "", "http://nowhere.invalid/t0ken", nil).Send(t.Context(), request())
	check(t, got, failed(event.ErrorDNS))
	if strings.Contains(got.Error, "t0ken") {
		t.Errorf("the error quotes the URL: %s", got.Error)
	}
}

func TestTLS(t *testing.T) {
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	quiet := log.New(io.Discard, "", 0) // the server's complaints about the handshakes that must fail
	start := func(change func(*httptest.Server)) string {
		server := httptest.NewUnstartedServer(handler)
		server.Config.ErrorLog = quiet
		change(server)
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL
	}
	trusted := start(func(*httptest.Server) {})
	http2 := start(func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err != nil || r.ProtoMajor != 2 || r.Header.Get("Idempotency-Key") == "" || len(body) == 0 {
				http.Error(w, "not as it should be", http.StatusBadRequest)
			}
		})
	})
	tests := map[string]struct {
		url  string
		want deliver.Outcome
	}{
		"trusted": {trusted, deliver.Outcome{Verdict: event.VerdictDone, Status: 200}},
		"HTTP/2":  {http2, deliver.Outcome{Verdict: event.VerdictDone, Status: 200}},
		"unknown authority": {
			start(func(s *httptest.Server) { s.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}} }),
			failed(event.ErrorTLS),
		},
		"other host": {strings.Replace(trusted, "127.0.0.1", "localhost", 1), failed(event.ErrorTLS)},
		"old version": {start(func(s *httptest.Server) {
			s.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
		}), failed(event.ErrorTLS)},
		"client certificate required": {
			start(func(s *httptest.Server) {
				s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
			}),
			failed(event.ErrorTLS),
		},
		"plain HTTP behind https": {strings.Replace(serve(t, handler), "http", "https", 1), failed(event.ErrorTLS)},
		"rubbish behind https":    {strings.Replace(serveRaw(t, func(c net.Conn) { fmt.Fprint(c, "rubbish rubbish"); hold(c) }), "http", "https", 1), failed(event.ErrorTLS)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			check(t, destination(t, "", tc.url, nil).Send(t.Context(), request()), tc.want)
		})
	}
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// After 101 the body is the bare connection; waiting for it would outlast every deadline.
func TestSwitchingProtocols(t *testing.T) {
	url := serveRaw(t, func(c net.Conn) {
		_ = readRequest(c)
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		hold(c)
	})
	got := destination(t, "", url, timeout(1)).Send(t.Context(), request())
	check(t, got, deliver.Outcome{Verdict: event.VerdictFailed, Class: event.ErrorHTTPStatus, Status: 101})
}

// The connection has served one request already, and the next one is read but not answered. It must reach the
// destination once, however much net/http would like to help.
func TestNothingIsResentWithinAnAttempt(t *testing.T) {
	for name, end := range map[string]func(net.Conn){"closed": func(net.Conn) {}, "reset": reset} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			url := serveRaw(t, func(c net.Conn) {
				for readRequest(c) == nil {
					if requests.Add(1) > 1 {
						end(c)
						return
					}
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
			dest := destination(t, "", url, nil)
			check(t, dest.Send(t.Context(), request()), deliver.Outcome{Verdict: event.VerdictDone, Status: 200})
			check(t, dest.Send(t.Context(), request()), failed(event.ErrorConnectionReset))
			if n := requests.Load(); n != 2 {
				t.Errorf("%d requests for 2 attempts", n)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	arrived := make(chan struct{})
	url := serveRaw(t, func(c net.Conn) {
		_ = readRequest(c)
		close(arrived)
		hold(c)
	})
	dest := destination(t, "", url, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	got := dest.Send(ctx, request())
	check(t, got, failed(event.ErrorCanceled))
	if got.Latency > 5*time.Second {
		t.Errorf("took %v to notice", got.Latency)
	}
	again := dest.Send(ctx, request())
	if again.Verdict != event.VerdictReleased || again.Class != event.ErrorCanceled || again.Error == "" {
		t.Errorf("Send with a context that is done = %+v, want released", again)
	}
}
