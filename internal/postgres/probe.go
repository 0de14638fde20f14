package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

const (
	protocolVersion = 3 << 16 // 3.0

	probeTimeout = 2 * time.Second

	// cannotConnectNow is the SQLSTATE of a server that is starting up, recovering or shutting down.
	cannotConnectNow = "57P03"
)

// Ports for servers are taken from below the ranges that Linux (32768–60999) and others take the ports of outgoing
// connections from: while a server is down, any outgoing connection could get its port, even one to that very port,
// which TCP then connects to itself, and the server could not come back.
const (
	lowestPort  = 15000
	highestPort = 32000
)

// FreePort returns a TCP port of 127.0.0.1 that nothing listens on and that no outgoing connection is given.
func FreePort() (int, error) {
	var last error
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if last = portFree(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("finding a free port: %w", last)
}

func portFree(port int) error {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return err
	}
	return l.Close()
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// probe begins a connection and succeeds if the server is ready to go on with it: if it asks who we are, or refuses
// for any other reason than that it is coming or going.
// https://www.postgresql.org/docs/current/protocol-message-formats.html
func probe(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address(port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline() // set above
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write(startupMessage()); err != nil {
		return err
	}
	return readAnswer(conn)
}

func startupMessage() []byte {
	message := make([]byte, 4, 64)
	message = binary.BigEndian.AppendUint32(message, protocolVersion)
	for _, s := range []string{"user", role, "database", database, ""} {
		message = append(append(message, s...), 0)
	}
	binary.BigEndian.PutUint32(message, uint32(len(message)))
	return message
}

// readAnswer reads the first message: a type byte, a length that counts itself, and the content.
func readAnswer(r io.Reader) error {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("reading the server's answer: %w", err)
	}
	switch head[0] {
	case 'R': // an authentication request
		return nil
	case 'E':
		length := int64(binary.BigEndian.Uint32(head[1:])) - 4
		body, err := io.ReadAll(io.LimitReader(r, min(length, 4096)))
		if err != nil {
			return fmt.Errorf("reading the server's answer: %w", err)
		}
		// Fields are a type byte and a string that ends with a zero byte.
		for field := range bytes.SplitSeq(body, []byte{0}) {
			if string(field) == "C"+cannotConnectNow {
				return errors.New("the server is not ready for connections")
			}
		}
		return nil
	default:
		return fmt.Errorf("not a PostgreSQL server: the answer begins with %q", head[0])
	}
}
