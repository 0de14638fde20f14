package databases

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// What is said of a cause is the same each time.
func TestDescribe(t *testing.T) {
	dial := func(port int, err error) error {
		return fmt.Errorf("connecting: %w", &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: err})
	}
	expired := func(at time.Time) error {
		return x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time " + at.String()}
	}
	for want, errs := range map[string][2]error{
		"the database cannot be reached: connection reset by peer": {
			dial(40001, os.NewSyscallError("read", syscall.ECONNRESET)), dial(40002, os.NewSyscallError("read", syscall.ECONNRESET)),
		},
		"the database does not answer in time": {dial(40001, os.ErrDeadlineExceeded), context.DeadlineExceeded},
		`the database's host "pg-rw.payments" is unknown`: {
			&net.DNSError{Err: "no such host", Name: "pg-rw.payments", Server: "10.96.0.10:53", IsNotFound: true},
			&net.DNSError{Err: "no such host", Name: "pg-rw.payments", IsNotFound: true},
		},
		`the address of the database's host "pg-rw.payments" cannot be looked up`: {
			&net.DNSError{Err: "read udp 10.0.0.1:40001: i/o timeout", Name: "pg-rw.payments", IsTimeout: true},
			&net.DNSError{Err: "read udp 10.0.0.1:40002: i/o timeout", Name: "pg-rw.payments", IsTimeout: true},
		},
		"no TLS connection to the database: the server's certificate has expired or is not valid yet": {
			expired(time.Unix(0, 0)), expired(time.Unix(1, 0)),
		},
		"no TLS connection to the database: the server's certificate is signed by an unknown authority": {
			x509.UnknownAuthorityError{}, fmt.Errorf("tls: %w", x509.UnknownAuthorityError{}),
		},
		"the database closed the connection": {dial(1, io.EOF), dial(2, io.ErrUnexpectedEOF)},
		"the database refuses: permission denied for schema public (SQLSTATE 42501)": {
			&pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "permission denied for schema public", Line: 1},
			&pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "permission denied for schema public", Line: 2},
		},
		"otherwise":        {io.ErrClosedPipe, fmt.Errorf("%d", 1)},
		"context canceled": {context.Canceled, fmt.Errorf("reading: %w", context.Canceled)},
	} {
		for _, err := range errs {
			is(t, err.Error(), want, describe(err, "otherwise"))
		}
	}
}
