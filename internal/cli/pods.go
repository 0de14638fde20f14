package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/store"
)

// podFlags are what ingress and worker pods have in common.
type podFlags struct {
	database     databaseFileFlags
	logs         logFlags
	config       string
	secretsDir   string
	opsListen    string
	drainTimeout time.Duration
	profileDir   string
}

func (f *podFlags) register(cmd *cobra.Command) {
	f.database.register(cmd)
	f.logs.register(cmd, "json")
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "file with the pipeline configuration (required)")
	flags.StringVar(&f.secretsDir, "secrets-dir", "", "folder that the configuration's secret files lie in")
	flags.StringVar(&f.opsListen, "ops-listen", ":9090", "address of /healthz, /readyz and /metrics")
	flags.DurationVar(&f.drainTimeout, "drain-timeout", 20*time.Second, "how long what is under way may take to finish after SIGTERM")
	_ = cmd.MarkFlagRequired("config")
	flags.StringVar(&f.profileDir, "profile-dir", "", "folder for profiles of the process' time and allocations, written when it ends")
}

func (f *podFlags) plan(cmd *cobra.Command) (*plan, error) {
	log, err := f.logs.logger(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	database, err := f.database.location()
	if err != nil {
		return nil, err
	}
	config, err := pipeline.Load(f.config)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return &plan{
		config:       config,
		secretsDir:   f.secretsDir,
		database:     database,
		opsListen:    f.opsListen,
		drainTimeout: f.drainTimeout,
		profileDir:   f.profileDir,
		log:          log,
	}, nil
}

func newIngress() *cobra.Command {
	var f podFlags
	var address string
	var delay time.Duration
	var limits ingressLimits
	cmd := &cobra.Command{
		Use:   "ingress --config FILE",
		Short: "Take webhooks in: verify, commit, answer",
		Long: `Take the webhooks of a pipeline in: verify each, commit it to PostgreSQL,
answer. While the database is away the answer is 503. Pods run this; on a laptop
there is ackrail dev.`,
		Example: `  ackrail ingress --config pipeline.json --secrets-dir secrets`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := f.plan(cmd)
			if err != nil {
				return err
			}
			if err := limits.check(); err != nil {
				return err
			}
			p.ingress, p.listen, p.drainDelay, p.limits = true, address, delay, limits
			return p.run(cmd.Context())
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&address, "listen", ":8080", "address that takes webhooks")
	cmd.Flags().DurationVar(&delay, "drain-delay", 5*time.Second,
		"how long requests are still taken after SIGTERM, until load balancers have noticed")
	limits.register(cmd)
	return cmd
}

// ingressLimits bound what an ingress takes at once. Zero values stand for
// the defaults of package ingress.
type ingressLimits struct {
	connections   int
	inflightBytes int64
}

func (l *ingressLimits) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&l.connections, "max-connections", 10_000, "how many connections may be open at once; others wait")
	cmd.Flags().Int64Var(&l.inflightBytes, "max-inflight-bytes", 64<<20,
		"bytes of bodies that may be under way at once; beyond it the answer is 503")
}

func (l *ingressLimits) check() error {
	if l.connections < 1 {
		return fmt.Errorf("--max-connections: must be at least 1, is %d", l.connections)
	}
	if l.inflightBytes < 1 {
		return fmt.Errorf("--max-inflight-bytes: must be at least 1, is %d", l.inflightBytes)
	}
	return nil
}

func newWorker() *cobra.Command {
	var f podFlags
	cmd := &cobra.Command{
		Use:   "worker --config FILE",
		Short: "Deliver what was taken in",
		Long: `Deliver the events of a pipeline to its destinations, again and again until each
is taken or dead. Pods run this; on a laptop there is ackrail dev.`,
		Example: `  ackrail worker --config pipeline.json --secrets-dir secrets`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := f.plan(cmd)
			if err != nil {
				return err
			}
			p.worker = true
			return p.run(cmd.Context())
		},
	}
	f.register(cmd)
	return cmd
}

func newMigrate() *cobra.Command {
	var database databaseFileFlags
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring a database's schema up to date",
		Long: `Bring a database's schema up to date. Binaries one version older go on working
with the new schema, so migrate first and roll out afterwards. Several migrators
at once are safe.`,
		Example: `  ackrail migrate --database-url postgres://…`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			location, err := database.location()
			if err != nil {
				return err
			}
			url, err := location.read()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			return store.Migrate(cmd.Context(), url, func(format string, args ...any) { say(out, format, args...) })
		},
	}
	database.register(cmd)
	return cmd
}
