package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackrail/ackrail/internal/secretfile"
)

// Options are what a process may choose about its connections.
type Options struct {
	// MaxConns bounds the connections, 8 if zero.
	MaxConns int
	// Name is shown as the connections' application name.
	Name string
	// IdleTimeout closes connections that were idle for so long, down to
	// none; 0 leaves that to the URL's pool settings.
	IdleTimeout time.Duration
	// Logger gets a line when the URL in a file (see OpenFile) cannot be
	// used; nil for none.
	Logger *slog.Logger
}

// connectTimeout bounds one attempt to connect where the URL sets no
// connect_timeout of its own.
const connectTimeout = 2 * time.Second

// ErrURL is returned for a URL that cannot be understood. It hides the text
// of the driver's own error, which repeats the URL.
var ErrURL = errors.New("the database URL is malformed: want postgres://USER:PASSWORD@HOST:PORT/DATABASE")

// Open prepares the use of the database at a URL (or libpq key/value string).
// It does not connect: a process may start, and refuse work politely, while
// the database is away. The error of a malformed URL never repeats it.
func Open(url string, o Options) (*Store, error) {
	config, err := o.parse(url)
	if err != nil {
		return nil, err
	}
	return open(config, nil)
}

// OpenFile is Open for the URL in a file. The file is read again whenever a
// connection is made, so that another password, user or host is used without
// a restart, while connections that are open go on until they end. While the
// file is missing or its URL is malformed the last good one is used. That the
// first one is good is a condition: the error names the file, never its
// content. One line end at the end of the file, as editors make it, is no part
// of the URL, nor is other white space around it.
func OpenFile(path string, o Options) (*Store, error) {
	f, err := openURLFile(path, o)
	if err != nil {
		return nil, err
	}
	return open(f.good.Copy(), f.refresh)
}

// ReadURL returns the URL in a file as OpenFile would read it.
func ReadURL(path string) (string, error) {
	file, err := secretfile.Open(filepath.Dir(path), filepath.Base(path), func(content []byte) (string, error) {
		return CleanURL(string(content))
	})
	if err != nil {
		return "", err
	}
	return file.Value()
}

// CleanURL returns what somebody wrote as a URL without white space around
// it, or an error if it cannot be understood. No URL at all would stand for
// whatever the environment of this process happens to have, and a second line
// would be a part of some value, and come up in messages with its password.
func CleanURL(text string) (string, error) {
	url := strings.TrimSpace(text)
	if url == "" {
		return "", errors.New("the database URL is empty")
	}
	if strings.ContainsAny(url, "\r\n") {
		return "", ErrURL
	}
	_, err := Options{}.parse(url)
	return url, err
}

// parse turns a URL into the settings of a pool.
func (o Options) parse(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, ErrURL
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if o.Name != "" {
		config.ConnConfig.RuntimeParams["application_name"] = o.Name
	}
	config.ConnConfig.OnPgError = staysOpen
	config.MaxConns = 8
	if o.MaxConns > 0 {
		config.MaxConns = int32(min(o.MaxConns, 1000)) //nolint:gosec // bounded on the line
	}
	if o.IdleTimeout > 0 {
		config.MaxConnIdleTime = o.IdleTimeout
		config.MinConns, config.MinIdleConns = 0, 0
	}
	return config, nil
}

// staysOpen reports whether a connection is good for more after an error. After
// a failover one may lead to the former primary, and the sessions of a database
// that was made read-only stay so when it is writable again: only a new one
// finds the way.
func staysOpen(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	return err.SeverityUnlocalized != "FATAL" && err.Code != readOnlyTransaction
}

// readOnlyTransaction is the SQLSTATE of a write that a session may not do.
const readOnlyTransaction = "25006"

// open makes the pool. refresh, if not nil, is called before each connection
// and may replace its settings.
func open(config *pgxpool.Config, refresh func(*pgx.ConnConfig)) (*Store, error) {
	s := &Store{refresh: refresh}
	config.AfterConnect = s.detectPooler
	config.ConnConfig.OnNotice = noteUnreplicated
	if refresh != nil {
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			refresh(c)
			return nil
		}
	}
	var err error
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return nil, fmt.Errorf("preparing the database pool: %w", err)
	}
	return s, nil
}

// connConfig returns the settings of a connection outside the pool.
func (s *Store) connConfig() *pgx.ConnConfig {
	c := s.pool.Config().ConnConfig
	if s.refresh != nil {
		s.refresh(c)
	}
	return c
}

// urlFile is a database URL in a file.
type urlFile struct {
	file *secretfile.File[*pgxpool.Config]
	log  *slog.Logger

	mu   sync.Mutex
	good *pgxpool.Config
	// told is what was said last about why the file cannot be used.
	told string
}

func openURLFile(path string, o Options) (*urlFile, error) {
	file, err := secretfile.Open(filepath.Dir(path), filepath.Base(path), func(content []byte) (*pgxpool.Config, error) {
		url, err := CleanURL(string(content))
		if err != nil {
			return nil, err
		}
		return o.parse(url)
	}, secretfile.WithInterval(0))
	if err != nil {
		return nil, err
	}
	f := &urlFile{file: file, log: o.Logger}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.good, err = file.Value()
	return f, err
}

// refresh replaces settings by those of the URL that the file has now.
func (f *urlFile) refresh(c *pgx.ConnConfig) {
	config, err := f.file.Value()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.good, f.told = config, ""
	case f.told != err.Error():
		f.told = err.Error()
		f.log.Warn("The database URL cannot be used, the last good one is used on", "error", err)
	}
	*c = *f.good.ConnConfig.Copy()
}
