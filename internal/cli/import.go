package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
)

const (
	// importRows and importBytes bound what one transaction writes.
	importRows  = 200
	importBytes = 8 << 20
	// longestLine is room for the largest body, in base64 and as text.
	longestLine = 128 << 20
	// mostFaults is how many faults are told of a file.
	mostFaults = 20
	// keepImportedKeys is how long what the sender repeats is a duplicate.
	keepImportedKeys = 7 * 24 * time.Hour
)

// importFlags are the flags of ackrail events import.
type importFlags struct {
	database  databaseFlag
	namespace string
	endpoint  string
	keep      time.Duration
	dryRun    bool
}

func newEventsImport() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Put exported dead letters into this database",
		Long: `Read what ackrail events export has written, from a file or, with -,
from standard input, and make dead letters of it in this database: the same
events, byte for byte, with the reason and the time of their death. Nothing is
delivered by that; a replay does.

All lines are checked before anything is written; then they are written in
transactions of at most 200. What has left any trace here stays as it is, so an
import that was interrupted is run again, and one that is repeated does nothing.
An event whose idempotency key another event here holds is left out: the sender
has sent it here too.`,
		Example: `  ackrail events import dead.ndjson --dry-run
  ackrail events import dead.ndjson
  ackrail events import dead.ndjson --endpoint staging/github`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one FILE, or - for standard input, have %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	f.database.register(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "", "put all of them into this namespace (default: each into its own)")
	flags.StringVar(&f.endpoint, "endpoint", "", "put all of them into this endpoint: NAME or NAMESPACE/NAME (default: each into its own)")
	flags.DurationVar(&f.keep, "keep", 30*24*time.Hour, "how long to keep them, from now")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would become of them, and write nothing")
	return cmd
}

func (f *importFlags) run(cmd *cobra.Command, name string) error {
	if f.keep < time.Hour || f.keep > 365*24*time.Hour {
		return fmt.Errorf("--keep: must be 1h to 8760h (365 days), is %s", f.keep)
	}
	place, err := f.place()
	if err != nil {
		return err
	}
	file, done, err := spool(name, cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer done()
	if err := newLetterReader(place).all(file, func(*letterLine) error { return nil }); err != nil {
		return fmt.Errorf("%s: nothing was imported: %w", name, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading %s again: %w", name, err)
	}
	return f.database.open(cmd.Context(), func(s *store.Store) error {
		n, bodiless, err := f.importAll(cmd.Context(), s, file, place)
		cmd.PrintErrln(f.summary(n, bodiless))
		return err
	})
}

// place returns what to make of the endpoint of a letter.
func (f *importFlags) place() (func(*event.EndpointRef), error) {
	if f.endpoint == "" {
		if f.namespace != "" && !validName(f.namespace) {
			return nil, fmt.Errorf("--namespace: %q is not a valid name", f.namespace)
		}
		return func(ref *event.EndpointRef) {
			if f.namespace != "" {
				ref.Namespace = f.namespace
			}
		}, nil
	}
	namespace, name, full := strings.Cut(f.endpoint, "/")
	if !full {
		namespace, name = f.namespace, f.endpoint
	}
	switch {
	case full && f.namespace != "" && f.namespace != namespace:
		return nil, fmt.Errorf("--endpoint: %q is not in the namespace %q of --namespace", f.endpoint, f.namespace)
	case !validName(name) || namespace != "" && !validName(namespace):
		return nil, fmt.Errorf("--endpoint: %q is not NAME or NAMESPACE/NAME", f.endpoint)
	}
	return func(ref *event.EndpointRef) {
		ref.Name = name
		if namespace != "" {
			ref.Namespace = namespace
		}
	}, nil
}

// importAll imports batch by batch, and returns what became of the letters
// and how many have no body.
func (f *importFlags) importAll(ctx context.Context, s *store.Store, file io.Reader, place func(*event.EndpointRef)) (sum store.Imported, bodiless int, err error) {
	var batch []store.DeadLetter
	bytes := 0
	flush := func() error {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		n, err := s.ImportDeadLetters(ctx, batch, f.keep, keepImportedKeys, f.dryRun)
		sum.New, sum.Known, sum.KeyTaken = sum.New+n.New, sum.Known+n.Known, sum.KeyTaken+n.KeyTaken
		batch, bytes = nil, 0
		return err
	}
	err = newLetterReader(place).all(file, func(l *letterLine) error {
		if l.letter.Event == nil {
			bodiless++
			return nil
		}
		batch = append(batch, l.letter)
		if bytes += len(l.letter.Event.Body); len(batch) < importRows && bytes < importBytes {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	return sum, bodiless, err
}

// summary says what became of the letters.
func (f *importFlags) summary(n store.Imported, bodiless int) string {
	text := "Imported " + count(n.New, "dead letter")
	if f.dryRun {
		text = "Would import " + count(n.New, "dead letter")
	}
	for _, left := range []struct {
		n   int
		why string
	}{
		{n.Known, "known here already"},
		{n.KeyTaken, "left out, since another event here has the idempotency key"},
		{bodiless, "left out, since the body was not exported"},
	} {
		if left.n > 0 {
			text += fmt.Sprintf("; %d %s", left.n, left.why)
		}
	}
	return text + "."
}

// spool opens a file that can be read twice: standard input is kept in a
// temporary one until done is called.
func spool(name string, stdin io.Reader) (file io.ReadSeeker, done func(), err error) {
	if name != "-" {
		opened, err := os.Open(name)
		if err != nil {
			return nil, nil, err
		}
		return opened, func() { _ = opened.Close() }, nil
	}
	kept, err := os.CreateTemp("", "ackrail-import-")
	if err != nil {
		return nil, nil, fmt.Errorf("keeping standard input: %w", err)
	}
	done = func() { _ = kept.Close() }
	// Its name is of no use: what is left when the process is killed is freed.
	if err := errors.Join(os.Remove(kept.Name()), copyAll(kept, stdin)); err != nil {
		done()
		return nil, nil, fmt.Errorf("keeping standard input: %w", err)
	}
	return kept, done, nil
}

func copyAll(to io.WriteSeeker, from io.Reader) error {
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	_, err := to.Seek(0, io.SeekStart)
	return err
}

// all reads every line, and gives each to use. A line that is at fault does
// not end it, so that all faults are told at once.
func (r *letterReader) all(file io.Reader, use func(*letterLine) error) error {
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 64<<10), longestLine)
	var faults []string
	n := 0
	for scanner.Scan() {
		n++
		if len(strings.TrimSpace(scanner.Text())) == 0 {
			continue
		}
		line, err := r.read(n, scanner.Bytes())
		if err != nil {
			if faults = append(faults, fmt.Sprintf("line %d: %v", n, err)); len(faults) == mostFaults {
				faults = append(faults, "and perhaps more")
				break
			}
			continue
		}
		if len(faults) > 0 {
			continue
		}
		if err := use(line); err != nil {
			return fmt.Errorf("line %d or before: %w", n, err)
		}
	}
	if err := scanner.Err(); err != nil {
		faults = append(faults, fmt.Sprintf("line %d: %v", n+1, err))
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "\n"))
	}
	return nil
}
