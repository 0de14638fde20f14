package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ackrail/ackrail/internal/store"
)

// version is set by the linker.
var version = "dev"

// Main runs the command line of this process and returns its exit code: 0
// for success, 1 for any error. The first interrupt or termination signal
// asks a running command to stop in good order, the second ends it at once.
func Main() int {
	ctx, stop := signalContext(context.Background())
	defer stop()
	root := newRoot()
	if isPlugin(os.Args[0]) {
		makePlugin(root)
	}
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errPrinted):
		return 1
	case ctx.Err() != nil:
		// What was under way says little more than that it was cut short.
		first, _, _ := strings.Cut(err.Error(), "\n")
		err = fmt.Errorf("interrupted: %s", first)
	}
	printError(root.ErrOrStderr(), err)
	return 1
}

// errPrinted ends a command that has said everything already.
var errPrinted = errors.New("the command has told its error")

// signalContext returns a context that ends with the first signal to stop.
// The second one ends the process.
func signalContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(1)
	}()
	return ctx, cancel
}

func newRoot() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "ackrail",
		Short: "Webhook pipelines that ack first and work later",
		Long: `Ackrail takes webhooks in, answers once they are committed to PostgreSQL, and
delivers them to their handlers from there, so that nothing that was
acknowledged is ever lost.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}, newDev(), newSend(), newEvents(), newReplay(), newIngress(), newWorker(), newMigrate(), newManager())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	return root
}

// group makes a command that has nothing but subcommands. Alone it prints its
// help; cobra would do so for a misspelt subcommand too, and call it success.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.DisableFlagsInUseLine = true
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("unknown command %q for %q: see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(subcommands...)
	return cmd
}

// noArgs refuses arguments. Most often one is a second file after -f.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q: %s takes flags only, a file goes after a flag of its own", args[0], cmd.CommandPath())
}

// logFlags choose how a process logs.
type logFlags struct {
	level  slog.Level
	format string
}

func (f *logFlags) register(cmd *cobra.Command, format string) {
	f.format = format
	cmd.Flags().TextVar(&f.level, "log-level", slog.LevelInfo, "least `level` to log: debug, info, warn or error")
	cmd.Flags().StringVar(&f.format, "log-format", format, "log as json or text")
}

func (f *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: f.level}
	switch f.format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format: must be json or text, is %q", f.format)
}

// databaseEnv may hold the database's URL. Pods get it from their Secret, and
// people keep it out of their shell's history.
const databaseEnv = "ACKRAIL_DATABASE_URL"

// databaseFlag names the database of a command.
type databaseFlag struct{ url string }

func (f *databaseFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "database-url", "", "PostgreSQL URL (default: $"+databaseEnv+")")
}

// value returns the URL, empty if none was given.
func (f *databaseFlag) value() string {
	if f.url != "" {
		return f.url
	}
	return os.Getenv(databaseEnv)
}

func (f *databaseFlag) required() (string, error) {
	url := f.value()
	if url == "" {
		return "", fmt.Errorf("no database: set --database-url or $%s (ackrail dev prints the one that it runs)", databaseEnv)
	}
	return url, nil
}

// databaseFileFlags name the database of a pod: by its URL, or by a file that
// has it.
type databaseFileFlags struct {
	databaseFlag
	file string
}

func (f *databaseFileFlags) register(cmd *cobra.Command) {
	f.databaseFlag.register(cmd)
	cmd.Flags().StringVar(&f.file, "database-url-file", "", "`file` with the URL, read again for each connection")
}

// location checks that exactly one is given.
func (f *databaseFileFlags) location() (databaseLocation, error) {
	l := databaseLocation{url: f.value(), file: f.file}
	switch {
	case l.url == "" && l.file == "":
		return l, fmt.Errorf("no database: set --database-url-file, --database-url or $%s", databaseEnv)
	case l.url == "" || l.file == "":
		return l, nil
	case f.url != "":
		return l, errors.New("--database-url-file and --database-url are both set: choose one")
	}
	return l, fmt.Errorf("--database-url-file and $%s are both set: choose one", databaseEnv)
}

// databaseLocation is where a database's URL stands: in url, or in a file.
type databaseLocation struct{ url, file string }

func (l databaseLocation) open(o store.Options) (*store.Store, error) {
	if l.file == "" {
		return store.Open(l.url, o)
	}
	s, err := store.OpenFile(l.file, o)
	if err != nil {
		return nil, fmt.Errorf("--database-url-file: %w", err)
	}
	return s, nil
}

// read returns the URL as it is now.
func (l databaseLocation) read() (string, error) {
	if l.file == "" {
		return l.url, nil
	}
	url, err := store.ReadURL(l.file)
	if err != nil {
		return "", fmt.Errorf("--database-url-file: %w", err)
	}
	return url, nil
}
