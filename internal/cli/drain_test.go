package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/testenv"
)

// unready waits until a process says that it is not ready, which it must be
// alive to say.
func (p *pod) unready() {
	p.t.Helper()
	testenv.Eventually(p.t, patience, func() error {
		switch err := p.ready(); {
		case err == nil:
			return errors.New("it is ready still")
		case !strings.HasPrefix(err.Error(), "503 "):
			p.t.Fatalf("asked whether it is ready: %v", err)
		}
		return nil
	})
}

// An ingress that is told to end says so first, goes on taking requests until
// load balancers have noticed, answers what is under way, and then ends.
func TestIngressDrains(t *testing.T) {
	t.Parallel()
	const delay = 6 * time.Second
	r := newRig(t, testenv.Schema(t), githubSecrets(), githubEndpoint("github", "http://127.0.0.1:9"))
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	in := r.pod(r.url, "ingress", "--listen", address, "--drain-delay", delay.String())
	s, hook := newSender(t, 1), "http://"+address+"/hooks/test/github"

	// A request but for its last byte.
	var head bytes.Buffer
	request, err := http.NewRequest(http.MethodPost, hook, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "X-Github-Delivery": {"slow"}, "X-Github-Event": {"push"}, "Content-Length": {"2"}}
	if err := s.verifier.Sign(request.Header, s.key, "slow", time.Now(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&head, "POST %s HTTP/1.1\r\nHost: test\r\n", request.URL.Path)
	_ = request.Header.Write(&head)
	head.WriteString("\r\n{")
	slow, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := slow.Write(head.Bytes()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, patience, func() error {
		if n, err := in.metric("ackrail_ingress_inflight_bytes"); err != nil || n != 2 {
			return fmt.Errorf("%v bytes under way, %w", n, err)
		}
		return nil
	})

	began := time.Now()
	in.signal(syscall.SIGTERM)
	in.unready()
	if time.Since(began) < delay/2 { // else the machine is too busy to tell
		s.accepted(t, hook, "meanwhile", []byte("{}"))
		response, err := http.Post(hook, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if !response.Close {
			t.Error("the connection is kept, so it would be closed when it may be in use")
		}
	}
	testenv.Eventually(t, patience, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return errors.New("it takes new connections still")
		}
		return nil
	})
	if took := time.Since(began); took < delay {
		t.Errorf("it took no new connections after %s, want %s", took, delay)
	}
	if _, err := io.WriteString(slow, "}"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(slow), request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusAccepted || !response.Close {
		t.Errorf("answered with %s, want 202 and the end of the connection", response.Status)
	}
	<-in.ended
	if code := in.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with code %d", code)
	}
}

// A worker that is told to end starts nothing more and finishes what is under
// way.
func TestWorkerDrains(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	handler, release := testenv.Block(testenv.Status(http.StatusNoContent))
	sink.Handle(handler)
	r := newRig(t, testenv.Schema(t), githubSecrets(), githubEndpoint("github", sink.URL(), func(e *pipeline.Endpoint) {
		e.Destinations[0].HTTP.TimeoutSeconds, e.LeaseSeconds = 60, 90
	}))
	in, w := r.ingress(0, r.url), r.worker(r.url)
	s := newSender(t, 1)
	first := s.accepted(t, in.url+"/hooks/test/github", "first", []byte("{}"))
	arrived(t, sink, first)
	w.signal(syscall.SIGTERM)
	w.unready()
	second := s.accepted(t, in.url+"/hooks/test/github", "second", []byte("{}"))
	release()
	<-w.ended
	if code := w.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with code %d", code)
	}
	l := r.look()
	if diff := cmp.Diff([]event.State{event.StateDone}, states(l.event(first))); diff != "" {
		t.Errorf("what was under way (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]event.State{event.StatePending}, states(l.event(second))); diff != "" {
		t.Errorf("what came later (-want +got):\n%s", diff)
	}
}
