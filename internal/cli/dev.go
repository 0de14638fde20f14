package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/manifest"
	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/resources"
	"github.com/ackrail/ackrail/internal/store"
)

// devFlags are the flags of ackrail dev.
type devFlags struct {
	files        []string
	listen       string
	opsListen    string
	dataDir      string
	role         string
	database     databaseFlag
	logs         logFlags
	drainTimeout time.Duration
}

func newDev() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev -f FILE...",
		Short: "Run a pipeline from its manifests on this machine",
		Long: `Run the pipeline of WebhookEndpoint and Secret manifests on this machine,
without a cluster. Unless a database is given, a private PostgreSQL server is
started in the data folder, which keeps the events for the next time.`,
		Example: `  ackrail dev -f endpoint.yaml
  ackrail dev -f endpoint.yaml --listen 127.0.0.1:0
  ackrail dev -f endpoint.yaml --role worker --database-url postgres://…`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.files, "filename", "f", nil, "manifests: files, folders or - for standard input (required)")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "address that takes webhooks")
	flags.StringVar(&f.opsListen, "ops-listen", "127.0.0.1:9090", "address of /healthz, /readyz and /metrics")
	flags.StringVar(&f.dataDir, "data-dir", "", "folder for the private PostgreSQL server and secrets (default "+describeDataDir()+")")
	flags.StringVar(&f.role, "role", "all", "what to run: all, ingress or worker")
	flags.DurationVar(&f.drainTimeout, "drain-timeout", 20*time.Second, "how long what is under way may take to finish after an interrupt")
	f.database.register(cmd)
	f.logs.register(cmd, "text")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

func (f *devFlags) run(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	log, err := f.logs.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if f.role != "all" && f.role != "ingress" && f.role != "worker" {
		return fmt.Errorf("--role: must be all, ingress or worker, is %q", f.role)
	}
	set, err := f.read(cmd.InOrStdin(), out)
	if err != nil {
		return err
	}
	dir, err := f.prepareDataDir()
	if err != nil {
		return err
	}
	secrets := filepath.Join(dir, "secrets")
	if err := writeSecrets(set, secrets); err != nil {
		return err
	}
	url, stop, err := f.startDatabase(cmd.Context(), dir, out, log)
	if err != nil {
		return err
	}
	defer stop()
	say(out, "Migrating the schema")
	if err := store.Migrate(cmd.Context(), url, func(format string, args ...any) { say(out, format, args...) }); err != nil {
		return err
	}
	p := &plan{
		config:       resources.Pipeline(set.Endpoints),
		secretsDir:   secrets,
		database:     databaseLocation{url: url},
		ingress:      f.role != "worker",
		listen:       f.listen,
		worker:       f.role != "ingress",
		opsListen:    f.opsListen,
		drainTimeout: f.drainTimeout,
		log:          log,
		started: func(ingress, ops net.Addr) {
			f.announce(out, set, ingress, ops)
		},
	}
	return p.run(cmd.Context())
}

// say tells a step.
func say(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}

// read reads the manifests and checks that every secret they refer to is
// there and fit for its use, which in a cluster would be a condition.
func (f *devFlags) read(stdin io.Reader, out io.Writer) (*manifest.Set, error) {
	set, err := manifest.Read(f.files, stdin)
	if err != nil {
		return nil, err
	}
	for _, ignored := range set.Ignored {
		say(out, "Ignoring %s", ignored)
	}
	if len(set.Endpoints) == 0 {
		return nil, fmt.Errorf("%s: no WebhookEndpoint found: add its manifest", strings.Join(f.files, ", "))
	}
	var faults []error
	for i := range set.Endpoints {
		faults = append(faults, checkSecrets(set, &set.Endpoints[i]))
	}
	return set, errors.Join(faults...)
}

// dataDirEnv is the standard folder for a user's data.
const dataDirEnv = "XDG_DATA_HOME"

func describeDataDir() string {
	return "$" + dataDirEnv + "/ackrail, for root /var/lib/ackrail"
}

// prepareDataDir makes the data folder and returns its absolute path.
func (f *devFlags) prepareDataDir() (string, error) {
	dir := f.dataDir
	if dir == "" {
		var err error
		if dir, err = defaultDataDir(); err != nil {
			return "", err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--data-dir: %w", err)
	}
	// The server runs as another user when this process is root, and has to
	// get through.
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // see above; secrets lie in a folder of their own
		return "", fmt.Errorf("--data-dir: %w", err)
	}
	return dir, nil
}

func defaultDataDir() (string, error) {
	if os.Geteuid() == 0 {
		// The server cannot run as root, nor get into root's home.
		return "/var/lib/ackrail", nil
	}
	if base := os.Getenv(dataDirEnv); base != "" {
		return filepath.Join(base, "ackrail"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home folder to keep data in, set --data-dir: %w", err)
	}
	return filepath.Join(home, ".local", "share", "ackrail"), nil
}

// startDatabase returns the URL of the database to use, and what ends it.
func (f *devFlags) startDatabase(ctx context.Context, dir string, out io.Writer, log *slog.Logger) (url string, stop func(), err error) {
	if url := f.database.value(); url != "" {
		return url, func() {}, nil
	}
	server, err := postgres.Start(ctx, postgres.Options{
		Dir:  filepath.Join(dir, "postgres"),
		Logf: func(format string, args ...any) { say(out, format, args...) },
	})
	if errors.Is(err, postgres.ErrNoServer) {
		return "", nil, fmt.Errorf("%w; or use a database that runs already with --database-url", err)
	}
	if err != nil {
		return "", nil, err
	}
	say(out, "Database     %s", server.URL())
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		keepRunning(watching, server, log)
	}()
	return server.URL(), func() {
		cancel()
		<-watched
		stopping, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.Stop(stopping); err != nil {
			log.Error("Stopping PostgreSQL failed", "error", err)
		}
	}, nil
}

// keepRunning starts the private server again when it has died.
func keepRunning(ctx context.Context, server *postgres.Server, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-server.Done():
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("PostgreSQL ended unexpectedly, starting it again")
		if err := server.Restart(ctx); err != nil {
			log.Error("Starting PostgreSQL failed", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
	}
}

// announce tells where the pipeline is and how to try it.
func (f *devFlags) announce(out io.Writer, set *manifest.Set, ingress, ops net.Addr) {
	say(out, "Operations   %s/metrics", baseURL(ops))
	for i := range set.Endpoints {
		e := &set.Endpoints[i]
		say(out, "Endpoint     %s/%s", e.Namespace, e.Name)
		if ingress != nil {
			say(out, "  takes      %s (%s)", baseURL(ingress)+e.Path(), describeVerification(e))
			if !slices.Contains(f.files, "-") { // what was read there cannot be read again
				say(out, "  try it     %s", f.tryIt(e, baseURL(ingress)))
			}
		}
		for j := range e.Spec.Destinations {
			d := &e.Spec.Destinations[j]
			say(out, "  delivers   %s: %s", d.Name, d.HTTP.URL)
		}
	}
	say(out, "Running (%s). Stop with Ctrl-C.", f.role)
}

// baseURL returns a URL that reaches a listener from this machine.
func baseURL(a net.Addr) string {
	host := a.String()
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		host = net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return "http://" + host
}

func describeVerification(e *v1alpha1.WebhookEndpoint) string {
	if e.Spec.Source.Provider == v1alpha1.ProviderNone {
		return "not verified"
	}
	return "verified as " + string(e.Spec.Source.Provider)
}

// tryIt returns a command that sends an event to an endpoint, from whatever
// folder.
func (f *devFlags) tryIt(e *v1alpha1.WebhookEndpoint, base string) string {
	args := []string{"echo", shellQuote(`{"hello":"world"}`), "|", "ackrail", "send"}
	for _, file := range f.files {
		if absolute, err := filepath.Abs(file); err == nil {
			file = absolute
		}
		args = append(args, "-f", shellQuote(file))
	}
	args = append(args, "--endpoint", e.Namespace+"/"+e.Name, "--body", "-")
	if typeHeader(e) != "" {
		args = append(args, "--event-type", "test")
	}
	return strings.Join(append(args, "--url", base), " ")
}

// shellQuote quotes a word for a POSIX shell where it needs it.
func shellQuote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_./:=@%+,", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
