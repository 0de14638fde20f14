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
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

// An ingress that is told to end says so first, goes on taking requests until
// load balancers have noticed, answers what is under way, and then ends.
func TestIngressDrains(t *testing.T) {
	t.Parallel()
	const delay = 6 * time.Second
	r := rig.New(t, testenv.Schema(t), rig.Secrets(), rig.GitHub("github", "http://127.0.0.1:9"))
	address := fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t))
	in := r.Pod(r.URL, "ingress", "--listen", address, "--drain-delay", delay.String())
	s, hook := rig.NewSender(t, 1), "http://"+address+"/hooks/test/github"

	// A request but for its last byte.
	var head bytes.Buffer
	request, err := http.NewRequest(http.MethodPost, hook, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "X-Github-Delivery": {"slow"}, "X-Github-Event": {"push"}, "Content-Length": {"2"}}
	if err := s.Sign(request.Header, "slow", []byte("{}")); err != nil {
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
		if n, err := in.Metric("ackrail_ingress_inflight_bytes"); err != nil || n != 2 {
			return fmt.Errorf("%v bytes under way, %w", n, err)
		}
		return nil
	})

	began := time.Now()
	in.Signal(syscall.SIGTERM)
	in.Unready()
	if time.Since(began) < delay/2 { // else the machine is too busy to tell
		s.Accepted(t, hook, "meanwhile", []byte("{}"))
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
	<-in.Ended()
	if code := in.ExitCode(); code != 0 {
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
	r := rig.New(t, testenv.Schema(t), rig.Secrets(), rig.GitHub("github", sink.URL(), func(e *pipeline.Endpoint) {
		e.Destinations[0].HTTP.TimeoutSeconds, e.LeaseSeconds = 60, 90
	}))
	in, w := r.Ingress(0, r.URL), r.Worker(r.URL)
	s := rig.NewSender(t, 1)
	first := s.Accepted(t, in.URL+"/hooks/test/github", "first", []byte("{}"))
	arrived(t, sink, first)
	w.Signal(syscall.SIGTERM)
	w.Unready()
	second := s.Accepted(t, in.URL+"/hooks/test/github", "second", []byte("{}"))
	release()
	<-w.Ended()
	if code := w.ExitCode(); code != 0 {
		t.Errorf("it ended with code %d", code)
	}
	l := r.Look()
	if diff := cmp.Diff([]event.State{event.StateDone}, rig.States(l.Event(first))); diff != "" {
		t.Errorf("what was under way (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]event.State{event.StatePending}, rig.States(l.Event(second))); diff != "" {
		t.Errorf("what came later (-want +got):\n%s", diff)
	}
}
