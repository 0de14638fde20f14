package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/ackrail/ackrail/hack/cluster/internal/node"
	"github.com/ackrail/ackrail/hack/cluster/internal/programs"
	"github.com/ackrail/ackrail/hack/cluster/internal/progress"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, node.ErrNotReady):
		os.Exit(1)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

const usage = `usage: cluster -source FOLDER COMMAND

assets           print a folder with etcd, kube-apiserver and kubectl
up               start the cluster, or check that it runs
down             remove it
status           tell how it is
load FILE...     load images, tars of OCI layouts
kubectl ARG...   run kubectl
`

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case node.InitCommand:
			return node.Init(args[1], args[2])
		case node.SuperviseCommand:
			return node.Supervise(args[1], args[2])
		}
	}
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	source := flags.String("source", "", "folder of the cluster's module")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *source == "" {
		flags.Usage()
		return flag.ErrHelp
	}
	cache, err := cacheFolder()
	if err != nil {
		return err
	}
	// Where Debian has what administrators run, and not everybody's PATH.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin"); err != nil {
		return err
	}
	report := progress.New(os.Stderr)
	c := &command{
		store:  &programs.Store{Source: *source, Folder: filepath.Join(cache, "cluster", "programs"), Report: report},
		layout: node.Layout{Run: filepath.Join(cache, "cluster", "run")},
		report: report,
		lock:   filepath.Join(cache, "cluster", "lock"),
	}
	return c.run(ctx, flags.Arg(0), flags.Args()[1:])
}

func cacheFolder() (string, error) {
	if dir := os.Getenv("ACKRAIL_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the cluster's files, set ACKRAIL_CACHE: %w", err)
	}
	return filepath.Join(dir, "ackrail"), nil
}

// command runs the commands that people call.
type command struct {
	store  *programs.Store
	layout node.Layout
	report *progress.Reporter
	// lock is the file that keeps two commands from changing the cluster at
	// the same time.
	lock string
}

func (c *command) run(ctx context.Context, name string, args []string) error {
	switch name {
	case "assets":
		return c.assets(ctx)
	case "kubectl":
		return c.kubectl(ctx, args)
	case "up", "down", "status", "load":
	default:
		return fmt.Errorf("no command is called %s", name)
	}
	if other := c.otherCluster(); other != "" {
		if name == "load" {
			return fmt.Errorf("KUBECONFIG is set to %s: load the images into that cluster with its own tools", other)
		}
		c.report.Say("KUBECONFIG is set: using the cluster of %s, leaving this machine's alone", other)
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root: its node mounts, makes network interfaces and runs containers. Run this as root, or set KUBECONFIG to another cluster")
	}
	if name == "status" {
		return c.layout.Status(ctx, os.Stdout)
	}
	unlock, err := programs.Lock(ctx, c.lock, c.report, "another command of the cluster")
	if err != nil {
		return err
	}
	defer unlock()
	switch name {
	case "up":
		return c.up(ctx)
	case "load":
		return c.layout.LoadImages(ctx, args)
	}
	return c.layout.Down(ctx, c.report)
}

// otherCluster returns KUBECONFIG if it is set and not this machine's cluster.
func (c *command) otherCluster() string {
	config := os.Getenv("KUBECONFIG")
	if path, err := filepath.Abs(config); err == nil && path == c.layout.Kubeconfig() {
		return ""
	}
	return config
}

func (c *command) assets(ctx context.Context) error {
	dir, err := c.store.Assets(ctx)
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

func (c *command) up(ctx context.Context) error {
	// Before minutes are spent on building.
	if err := c.layout.Available(); err != nil {
		return err
	}
	install := exec.CommandContext(ctx, filepath.Join(c.store.Source, "..", "install-deps"), "containerd", "cni", "nft", "ip")
	install.Stdout, install.Stderr = os.Stderr, os.Stderr
	if err := install.Run(); err != nil {
		return fmt.Errorf("installing what the cluster needs: %w", err)
	}
	kube, err := c.store.Kube(ctx)
	if err != nil {
		return err
	}
	images, err := c.store.Images(ctx)
	if err != nil {
		return err
	}
	config := &node.Config{
		Layout:   c.layout,
		Programs: kube,
		Images:   images,
		Pause:    programs.PauseImage,
		CoreDNS:  programs.CoreDNSImage,
	}
	return config.Up(ctx, c.report)
}

// kubectl becomes kubectl, for this machine's cluster unless KUBECONFIG says
// otherwise.
func (c *command) kubectl(ctx context.Context, args []string) error {
	if c.otherCluster() == "" {
		if _, err := os.Stat(c.layout.Kubeconfig()); err != nil {
			return errors.New("no cluster runs on this machine: start one with make cluster-up, or set KUBECONFIG")
		}
		if err := os.Setenv("KUBECONFIG", c.layout.Kubeconfig()); err != nil {
			return err
		}
	}
	path, err := c.kubectlPath(ctx)
	if err != nil {
		return err
	}
	return os.NewSyscallError("exec "+path, syscall.Exec(path, append([]string{"kubectl"}, args...), os.Environ()))
}

// kubectlPath returns the kubectl that was built. For another cluster the
// installed one does as well, if there is one: it takes no build.
func (c *command) kubectlPath(ctx context.Context) (string, error) {
	if c.otherCluster() != "" {
		if path, err := exec.LookPath("kubectl"); err == nil {
			return path, nil
		}
	}
	dir, err := c.store.Kube(ctx)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "kubectl"), nil
}
