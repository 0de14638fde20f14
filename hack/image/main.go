package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func run(args []string, stdout, stderr io.Writer) error {
	var s spec
	var output, user string
	var links, arguments, labels list
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&output, "o", "", "`file` to write (required)")
	flags.StringVar(&s.name, "name", "", "the image's `reference`, with registry and tag (required)")
	flags.StringVar(&s.binary, "binary", "", "static Linux `binary` to pack (required)")
	flags.StringVar(&s.program, "as", "", "`name` of the binary in the image (default: its file name)")
	flags.Var(&links, "link", "further `name` of the binary, as a symbolic link beside it; repeatable")
	flags.Var(&arguments, "arg", "`argument` that the binary gets unless a container says otherwise; repeatable")
	flags.Var(&labels, "label", "label as `key=value`; org.opencontainers.image. stands before a key without a dot; repeatable")
	flags.StringVar(&user, "user", nonroot, "numeric `user:group` that runs the binary")
	flags.BoolVar(&s.certificates, "certificates", true, "put certificate authorities into the image")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, required := range []struct{ flag, value string }{{"-o", output}, {"-name", s.name}, {"-binary", s.binary}} {
		if required.value == "" {
			return fmt.Errorf("%s is required", required.flag)
		}
	}
	if s.program == "" {
		s.program = filepath.Base(s.binary)
	}
	s.links, s.arguments, s.user = links, arguments, user
	var err error
	if s.labels, err = parseLabels(labels); err != nil {
		return err
	}
	if s.created, err = created(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	digest, err := write(output, s)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s %s@%s\n", output, s.name, digest)
	return err
}

// check refuses what would make an image that cannot be run.
func (s *spec) check() error {
	names := append([]string{s.program}, s.links...)
	for i, name := range names {
		if name == "." || name == ".." || name == "" || path.Base(name) != name {
			return fmt.Errorf("%q is no file name", name)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("the name %q is given twice", name)
		}
	}
	uid, gid, ok := strings.Cut(s.user, ":")
	for _, id := range []string{uid, gid} {
		if _, err := strconv.ParseUint(id, 10, 31); err != nil || !ok {
			return fmt.Errorf("-user: must be numbers, as in %s, is %q: Kubernetes cannot tell a name from root", nonroot, s.user)
		}
	}
	return nil
}

func parseLabels(values []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, value := range values {
		key, text, ok := strings.Cut(value, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("-label: must be key=value, is %q", value)
		}
		if !strings.Contains(key, ".") {
			key = "org.opencontainers.image." + key
		}
		labels[key] = text
	}
	return labels, nil
}

// created reads a SOURCE_DATE_EPOCH, see
// https://reproducible-builds.org/specs/source-date-epoch.
func created(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: must be seconds since 1970, is %q", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
