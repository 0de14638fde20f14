package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

// settling is the time that processes get to start all that they start.
const settling = 3 * time.Second

// measureMemory looks at how much memory processes have resident.
func measureMemory(ctx context.Context, e *env) ([]figure, error) {
	var figures []figure
	for _, m := range []struct {
		name, field string
		bounds
		prepare func(context.Context, *env) (*process, error)
	}{
		{"resident memory of an idle ingress", "VmRSS", atMost(20, 12), idleIngress},
		{"resident memory of an idle worker", "VmRSS", atMost(20, 12), idleWorker},
		{"resident memory of an ingress, 256 bodies of 1 MB in flight, at its peak", "VmHWM", atMost(400, 300), fullIngress},
		{"resident memory of a worker, 1,000 destinations that hang", "VmRSS", atMost(150, 80), hangingWorker},
	} {
		p, err := m.prepare(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		f := newFigure(m.name, "MB", m.bounds)
		memory, err := p.memory()
		if err != nil {
			return nil, err
		}
		f.Product = append(f.Product, memory[m.field])
		f.Note = fmt.Sprintf("%.1f MB at the end its own, and %.1f MB of the program's file, which all processes on a machine share",
			memory["RssAnon"], memory["RssFile"])
		figures = append(figures, f)
		e.cleanUp()
	}
	return figures, nil
}

func idleIngress(ctx context.Context, e *env) (*process, error) {
	p, err := e.loneIngress(ctx)
	if err != nil {
		return nil, err
	}
	return p, sleep(ctx, settling)
}

func idleWorker(ctx context.Context, e *env) (*process, error) {
	url, err := e.migrated(ctx)
	if err != nil {
		return nil, err
	}
	p, err := e.worker(ctx, url, configuration(endpoint(nowhere)))
	if err != nil {
		return nil, err
	}
	return p, sleep(ctx, settling)
}

// fullIngress has 256 senders stop before the last byte, and then go on.
func fullIngress(ctx context.Context, e *env) (*process, error) {
	p, err := e.loneIngress(ctx, "--max-inflight-bytes", strconv.Itoa(300<<20))
	if err != nil {
		return nil, err
	}
	const senders = 256
	body := makeBody(1_000_000)
	head := requestHead(body)
	conns := make([]net.Conn, senders)
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	if _, err := concurrently(senders, func(i int) (err error) {
		if conns[i], err = net.Dial("tcp", p.address); err != nil {
			return err
		}
		_, err = fmt.Fprintf(conns[i], "%s%s\r\n\r\n%s", head, uuid.NewString(), body[:len(body)-1])
		return err
	}); err != nil {
		return nil, err
	}
	if err := until(ctx, "sending bodies", func() error {
		figures, err := p.metrics()
		if got := figures["ackrail_ingress_inflight_bytes"]; err == nil && got < senders*float64(len(body)-1) {
			err = fmt.Errorf("%.0f bytes have arrived", got)
		}
		return err
	}); err != nil {
		return nil, err
	}
	_, err = concurrently(senders, func(i int) error {
		if _, err := conns[i].Write(body[len(body)-1:]); err != nil {
			return err
		}
		// More than may wait for a commit is refused at once, and was in
		// flight all the same.
		status, answer, err := readAnswer(bufio.NewReader(conns[i]))
		if err == nil && status != http.StatusAccepted && status != http.StatusServiceUnavailable {
			err = fmt.Errorf("answered with %d: %s", status, answer)
		}
		return err
	})
	return p, err
}

// hangingWorker has a request under way to each of 1,000 destinations.
func hangingWorker(ctx context.Context, e *env) (*process, error) {
	const destinations = 1000
	s, url, err := e.open(ctx, 2)
	if err != nil {
		return nil, err
	}
	to, err := e.listen(&sink{hang: true})
	if err != nil {
		return nil, err
	}
	ep := endpoint(to.url)
	ep.Destinations = make([]pipeline.Destination, destinations)
	names := make([]string, destinations)
	for i := range names {
		names[i] = fmt.Sprintf("d%d", i)
		ep.Destinations[i] = destination(names[i], fmt.Sprintf("%s%d", to.url, i))
	}
	q := store.NewEnqueuer(s, store.EnqueuerOptions{})
	defer q.Close()
	if err := submitTo(ctx, q, &ep, names, makeBody(e.body)); err != nil {
		return nil, err
	}
	p, err := e.worker(ctx, url, configuration(ep), "--drain-timeout", "1s")
	if err != nil {
		return nil, err
	}
	if err := to.wait(ctx, destinations, 25*time.Second); err != nil {
		return nil, err
	}
	return p, sleep(ctx, settling)
}

// memory returns what the system says of a process' memory, in MB.
func (p *process) memory() (map[string]float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if number, found := strings.CutSuffix(strings.TrimSpace(value), " kB"); found {
			kB, err := strconv.ParseFloat(number, 64)
			if err != nil {
				return nil, err
			}
			figures[name] = kB * 1024 / 1e6
		}
	}
	if figures["VmRSS"] == 0 {
		return nil, errors.New("the system does not tell how much memory a process has")
	}
	return figures, nil
}
