package databases

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackrail/ackrail/internal/store"
)

// errNotMigrated is returned for a schema that is missing or too old.
var errNotMigrated = errors.New("the database's schema is missing or too old, it has yet to be migrated")

// describe says what is wrong with a database. The words stay the same while
// the cause does: they end up in conditions, where each change is a write. So
// they hold no port, address or time of the attempt, which the driver's do.
// What none of the cases fits is called otherwise.
func describe(err error, otherwise string) error {
	var refused *pgconn.PgError
	var unknown *net.DNSError
	var code syscall.Errno
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case store.NotMigrated(err):
		return errNotMigrated
	case errors.As(err, &refused):
		return fmt.Errorf("the database refuses: %s (SQLSTATE %s)", refused.Message, refused.Code)
	case describeTLS(err) != "":
		return fmt.Errorf("no TLS connection to the database: %s", describeTLS(err))
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return fmt.Errorf("the database's host %q is unknown", unknown.Name)
	case errors.As(err, &unknown):
		return fmt.Errorf("the address of the database's host %q cannot be looked up", unknown.Name)
	case errors.As(err, &code):
		return fmt.Errorf("the database cannot be reached: %s", code.Error())
	case timedOut(err):
		return errors.New("the database does not answer in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the database closed the connection")
	}
	return errors.New(otherwise)
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || pgconn.Timeout(err)
}

// describeTLS returns "" for an error that has nothing to do with TLS.
func describeTLS(err error) string {
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the server's certificate has expired or is not valid yet"
	case errors.As(err, &invalid):
		return "the server's certificate is not valid"
	case errors.As(err, &host):
		return "the server's certificate is for another host"
	case errors.As(err, &authority):
		return "the server's certificate is signed by an unknown authority"
	case errors.As(err, &record):
		return "the server does not speak TLS"
	case errors.As(err, &alert):
		return alert.Error()
	}
	return ""
}

// answered reports whether a failure came from the database, over a
// connection that works.
func answered(err error) bool {
	var connecting *pgconn.ConnectError
	var refused *pgconn.PgError
	return errors.As(err, &refused) && !errors.As(err, &connecting)
}

// transient reports whether an error is about the database rather than about
// what was asked of it.
func transient(err error) bool { return errors.Is(err, store.ErrUnavailable) }
