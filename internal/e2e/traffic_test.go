//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ackrail/ackrail/internal/invariant"
)

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// delivered is what the handler records of a request, see hack/sink.
type delivered struct {
	Time    time.Time `json:"time"`
	Path    string    `json:"path"`
	ID      string    `json:"id"`
	Attempt int       `json:"attempt"`
	Run     int       `json:"run"`
	Replay  string    `json:"replay"`
	SHA256  string    `json:"sha256"`
	Status  int       `json:"status"`
	Hang    bool      `json:"hang"`
}

// handler is what the pipeline delivers to. It is told and asked through the
// API server's proxy, which every cluster has.
type handler struct{ ns string }

func newHandler(ctx context.Context, ns string) *handler {
	GinkgoHelper()
	apply(ctx, handlerObjects(ns)...)
	kubectl(ctx, "rollout", "status", "deployment/handler", "-n", ns, "--timeout=60s")
	return &handler{ns: ns}
}

func (h *handler) call(ctx context.Context, verb, path, query string) ([]byte, error) {
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	request := api.CoreV1().RESTClient().Verb(verb).Namespace(h.ns).Resource("services").Name("handler:8080").SubResource("proxy").Suffix(path)
	for key := range params {
		request.Param(key, params.Get(key))
	}
	return request.DoRaw(ctx)
}

// behave makes the handler answer as hack/sink documents it.
func (h *handler) behave(ctx context.Context, query string) {
	GinkgoHelper()
	Expect(h.call(ctx, http.MethodPut, "behaviour", query)).Error().NotTo(HaveOccurred())
}

// mend makes the handler answer 204 again.
func (h *handler) mend(ctx context.Context) {
	GinkgoHelper()
	Expect(h.call(ctx, http.MethodDelete, "behaviour", "")).Error().NotTo(HaveOccurred())
}

func (h *handler) records(ctx context.Context) ([]delivered, error) {
	out, err := h.call(ctx, http.MethodGet, "requests", "")
	if err != nil {
		return nil, err
	}
	var records []delivered
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var d delivered
		if err := decoder.Decode(&d); err != nil {
			return nil, err
		}
		records = append(records, d)
	}
	return records, nil
}

// successes returns how often each event was answered with 2xx in a run.
func (h *handler) successes(ctx context.Context, run int) (map[string]int, error) {
	records, err := h.records(ctx)
	counts := map[string]int{}
	for _, d := range records {
		if d.Run == run && d.Status/100 == 2 {
			counts[d.ID]++
		}
	}
	return counts, err
}

// waitFor waits until every one of some events was answered with 2xx in a run,
// and checks that no other one was.
func (h *handler) waitFor(ctx context.Context, run int, ids []string) map[string]int {
	GinkgoHelper()
	var counts map[string]int
	Eventually(ctx, func(g Gomega) {
		var err error
		counts, err = h.successes(ctx, run)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(missing(counts, ids)).To(BeEmpty(), "events that have not arrived")
	}).WithTimeout(90 * time.Second).WithPolling(500 * time.Millisecond).Should(Succeed())
	Expect(counts).To(HaveLen(len(ids)), "events that arrived")
	return counts
}

func missing(counts map[string]int, ids []string) (missing []string) {
	for _, id := range ids {
		if counts[id] == 0 {
			missing = append(missing, id)
		}
	}
	return missing
}

// sender signs as GitHub does, and sends to a Service: to its IP, or where
// that is not reached from here through the API server.
type sender struct {
	url    string
	secret string
	client *http.Client
	sends  *sends
}

// sends are the requests that were sent, with their answers.
type sends struct {
	mu  sync.Mutex
	all []invariant.Send
}

func (s *sends) add(one invariant.Send) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

// newSender makes a sender for an endpoint's URL, whose host is a Service's
// name. It waits until the Service answers: nodes learn a little later than
// the endpoint that there are pods.
func newSender(ctx context.Context, endpoint *url.URL, secret string) *sender {
	GinkgoHelper()
	s := senderTo(ctx, endpoint, secret)
	Eventually(ctx, func() (int, error) {
		a, err := s.with("").send(ctx, "unsigned", nil)
		return a.status, err
	}).WithTimeout(30*time.Second).Should(Equal(http.StatusUnauthorized), "a request without a signature")
	return s
}

func senderTo(ctx context.Context, endpoint *url.URL, secret string) *sender {
	GinkgoHelper()
	labels := strings.Split(endpoint.Hostname(), ".")
	Expect(len(labels)).To(BeNumerically(">=", 2), "host of %s", endpoint)
	service, err := api.CoreV1().Services(labels[1]).Get(ctx, labels[0], metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	port := endpoint.Port()
	if port == "" {
		port = "80"
	}
	if direct {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 16
		return &sender{
			url:    "http://" + net.JoinHostPort(service.Spec.ClusterIP, port) + endpoint.Path,
			secret: secret,
			client: &http.Client{Transport: transport, Timeout: 10 * time.Second},
			sends:  &sends{},
		}
	}
	client, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	client.Timeout = 10 * time.Second
	base := api.CoreV1().RESTClient().Get().Namespace(service.Namespace).Resource("services").
		Name(service.Name + ":" + port).SubResource("proxy").URL()
	return &sender{url: base.String() + endpoint.Path, secret: secret, client: client, sends: &sends{}}
}

// with returns a sender that signs with another secret.
func (s *sender) with(secret string) *sender {
	other := *s
	other.secret = secret
	return &other
}

// answer is what the ingress says.
type answer struct {
	status           int
	text, retryAfter string

	Status  string `json:"status"`
	EventID string `json:"eventId"`
}

// send sends a body under an idempotency key, as a push. An empty secret does
// not sign.
func (s *sender) send(ctx context.Context, key string, body []byte) (a answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Event", "push")
	request.Header.Set("X-GitHub-Delivery", key)
	if s.secret != "" {
		mac := hmac.New(sha256.New, []byte(s.secret))
		mac.Write(body)
		request.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	at := time.Now()
	defer func() {
		one := invariant.Send{
			Key: key, Body: sha256.Sum256(body), At: at, Answered: time.Now(), Status: a.status, EventID: a.EventID,
			RetryAfter: a.retryAfter, Forged: strings.Trim(s.secret, "\x00") == "",
		}
		if err != nil {
			one.Err = err.Error()
		}
		s.sends.add(one)
	}()
	response, err := s.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a = answer{status: response.StatusCode, text: string(text), retryAfter: response.Header.Get("Retry-After")}
	if a.status/100 == 2 {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// load sends events at a steady pace until it is stopped.
type load struct {
	stop func()

	mu       sync.Mutex
	accepted []string
	failures []string
}

// startLoad starts four senders, which send about forty events a second. With
// again, an event that failed is sent once more until it is accepted, as
// senders of webhooks do; without, each must succeed at once. It must be
// stopped with end.
func startLoad(ctx context.Context, s *sender, key string, again bool) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{}
	var senders sync.WaitGroup
	l.stop = func() { cancel(); senders.Wait() }
	for n := range 4 {
		senders.Go(func() {
			ticker := time.NewTicker(100 * time.Millisecond)
			defer ticker.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
				// What was begun is finished, so that its answer is known.
				l.one(context.WithoutCancel(ctx), s, fmt.Sprintf("%s-%d-%d", key, n, i), again)
			}
		})
	}
	return l
}

func (l *load) one(ctx context.Context, s *sender, key string, again bool) {
	deadline := time.Now().Add(time.Minute)
	for {
		a, err := s.send(ctx, key, fmt.Appendf(nil, `{"key":%q}`, key))
		l.mu.Lock()
		if err == nil && a.status/100 == 2 {
			l.accepted = append(l.accepted, a.EventID)
			l.mu.Unlock()
			return
		}
		l.failures = append(l.failures, fmt.Sprintf("%s %s: %d %s %v", time.Now().Format(time.StampMilli), key, a.status, a.text, err))
		l.mu.Unlock()
		if !again || time.Now().After(deadline) {
			return
		}
		<-time.After(200 * time.Millisecond)
	}
}

// progress waits until so many further events were accepted.
func (l *load) progress(ctx context.Context, n int) {
	GinkgoHelper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.accepted)
	}
	until := count() + n
	Eventually(ctx, count).WithTimeout(time.Minute).Should(BeNumerically(">=", until))
}

// end stops the load and returns the ids of what was accepted, and what went
// wrong.
func (l *load) end() (accepted, failures []string) {
	l.stop()
	return l.accepted, l.failures
}
