package testenv_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/testenv"
)

func TestProxyLatency(t *testing.T) {
	const latency = 200 * time.Millisecond
	p := testenv.NewProxy(t, echo(t))
	conn := dial(t, p.Addr())
	p.Slow(testenv.Speed{Latency: latency}, testenv.ToServer)
	// What follows does not wait for what is on its way: one after the other, these would take 4 s.
	start := time.Now()
	pace := time.NewTicker(latency / 20)
	defer pace.Stop()
	for range 20 {
		send(t, conn, "a")
		<-pace.C
	}
	wantText(t, conn, strings.Repeat("a", 20))
	if took := time.Since(start); took < latency || took > 10*latency {
		t.Errorf("the echo took %s, the way is %s long", took, latency)
	}
	p.Slow(testenv.Speed{Latency: latency})
	start = time.Now()
	send(t, conn, "b")
	wantText(t, conn, "b")
	if took := time.Since(start); took < 2*latency {
		t.Errorf("there and back took %s", took)
	}

	p.Slow(testenv.Speed{Latency: time.Hour})
	send(t, conn, "c")
	wantSilence(t, conn)
	p.Slow(testenv.Speed{})
	wantText(t, conn, "c")
	p.Slow(testenv.Speed{Latency: time.Hour})
	send(t, conn, "d")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantSilence(t, conn)
	p.Slow(testenv.Speed{})
	wantText(t, conn, "d")
	if err := broken(t, conn); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestProxyBandwidth(t *testing.T) {
	p := testenv.NewProxy(t, echo(t))
	conn := dial(t, p.Addr())
	p.Slow(testenv.Speed{BytesPerSecond: 1 << 10}, testenv.ToClient)
	start := time.Now()
	send(t, conn, strings.Repeat("a", 256))
	wantText(t, conn, strings.Repeat("a", 256))
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("256 bytes took %s at 1 KiB/s", took)
	}
	long := strings.Repeat("b", 1<<20) // a quarter of an hour
	send(t, conn, long)
	wantText(t, conn, "b")
	p.Slow(testenv.Speed{})
	wantText(t, conn, long[1:])
}

func TestProxyRetarget(t *testing.T) {
	first, second := testenv.NewSink(t), testenv.NewSink(t)
	second.Handle(testenv.Status(299))
	p := testenv.NewProxy(t, first.URL())
	mustPost(t, p.URL(), "a", "", 204)
	p.Retarget(second.URL())
	mustPost(t, p.URL(), "b", "", 299)
	if got := len(first.Requests()); got != 1 {
		t.Errorf("the first server got %d requests", got)
	}
}
