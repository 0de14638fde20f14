package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// BinEnv names the environment variable with the folder that holds the server's programs. When it is set, no
	// other folder is looked at.
	BinEnv = "ACKRAIL_POSTGRES_BIN"

	// MinVersion is the oldest major version of PostgreSQL that works.
	MinVersion = 14

	howToInstall = "install PostgreSQL, for instance with 'apt-get install postgresql' or 'brew install postgresql', " +
		"or set " + BinEnv + " to the folder that holds initdb and postgres"
)

// ErrNoServer is the cause of Start's error when the machine has no usable PostgreSQL server programs.
var ErrNoServer = errors.New("no PostgreSQL server programs found")

// installed are the folders that packages put the server's programs in when they do not put them into PATH.
var installed = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// binaries is a folder with the programs initdb and postgres of one version.
type binaries struct {
	folder  string
	version string // as printed, for instance 15.10
	major   int
}

func (b binaries) path(program string) string { return filepath.Join(b.folder, program) }

// find returns the programs to use. A major of 0 means that any version will do from MinVersion on; otherwise it is
// the version that the data was written by, and no other can read it.
func find(ctx context.Context, major int) (binaries, error) {
	if folder := os.Getenv(BinEnv); folder != "" {
		b, err := inspect(ctx, folder)
		if err != nil {
			return binaries{}, fmt.Errorf("%w: %s is %s: %w", ErrNoServer, BinEnv, folder, err)
		}
		return choose([]binaries{b}, major)
	}
	var found []binaries
	for _, folder := range likely(ctx) {
		if b, err := inspect(ctx, folder); err == nil {
			found = append(found, b)
		}
	}
	return choose(found, major)
}

// choose takes the first of found that fits. The errors say what to install.
func choose(found []binaries, major int) (binaries, error) {
	if len(found) == 0 {
		return binaries{}, fmt.Errorf("%w in PATH, in what pg_config names, or where packages put them: %s", ErrNoServer, howToInstall)
	}
	for _, b := range found {
		if b.major >= MinVersion && (major == 0 || b.major == major) {
			return b, nil
		}
	}
	have := found[0]
	if major != 0 && major >= MinVersion {
		return binaries{}, fmt.Errorf("%w for version %d, which wrote the data (found %s in %s): install PostgreSQL %d, "+
			"or set %s to its folder, or remove the data to start afresh", ErrNoServer, major, have.version, have.folder, major, BinEnv)
	}
	return binaries{}, fmt.Errorf("%w that are new enough: %s in %s, but %d or newer is needed: %s",
		ErrNoServer, have.version, have.folder, MinVersion, howToInstall)
}

// likely lists folders to look into, best first. Not every one exists or holds a server.
func likely(ctx context.Context) []string {
	var folders []string
	if program, err := exec.LookPath("postgres"); err == nil {
		folders = append(folders, filepath.Dir(program))
		if target, err := filepath.EvalSymlinks(program); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
	}
	if out, err := run(ctx, "pg_config", "--bindir"); err == nil {
		folders = append(folders, strings.TrimSpace(out))
	}
	for _, pattern := range installed {
		matches, _ := filepath.Glob(pattern) // fails only for a malformed pattern
		slices.SortFunc(matches, func(a, b string) int { return compareVersions(b, a) })
		folders = append(folders, matches...)
	}
	return folders
}

var number = regexp.MustCompile(`\d+`)

// compareVersions orders paths by the numbers in them, so that …/9.6/bin comes before …/14/bin.
func compareVersions(a, b string) int {
	ints := func(path string) (all []int) {
		for _, s := range number.FindAllString(path, -1) {
			n, _ := strconv.Atoi(s) // a number too long for int sorts last, which is as good as any place
			all = append(all, n)
		}
		return all
	}
	return slices.Compare(ints(a), ints(b))
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// inspect looks for both programs in folder and asks the server for its version.
func inspect(ctx context.Context, folder string) (binaries, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return binaries{}, err
	}
	folder, err = filepath.EvalSymlinks(folder)
	if err != nil {
		return binaries{}, err
	}
	b := binaries{folder: folder}
	if _, err := os.Stat(b.path("initdb")); err != nil {
		return binaries{}, err
	}
	out, err := run(ctx, b.path("postgres"), "--version")
	if err != nil {
		return binaries{}, err
	}
	m := versionLine.FindStringSubmatch(out)
	if m == nil {
		return binaries{}, fmt.Errorf("unknown version %q", strings.TrimSpace(out))
	}
	b.version = m[1]
	b.major, err = strconv.Atoi(m[2])
	return b, err
}

// run returns what a program prints that answers a question and ends.
func run(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).Output()
	return string(out), err
}
