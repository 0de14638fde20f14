package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// ErrNotReady says that there is no cluster, or that something of it does not
// work, which has been printed.
var ErrNotReady = errors.New("the cluster is not ready")

// Status prints how each part of the cluster is.
func (l Layout) Status(ctx context.Context, out io.Writer) error {
	if err := l.Available(); err != nil {
		return err
	}
	r, err := readRecord()
	if err != nil {
		return err
	}
	switch {
	case r == nil && len(l.leftovers()) == 0:
		_, _ = fmt.Fprintln(out, "No cluster runs.")
		return ErrNotReady
	case r == nil || !r.Process.alive():
		_, _ = fmt.Fprintln(out, "The cluster has ended without being taken down.")
		return ErrNotReady
	}
	client, err := l.client()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	ready := true
	row := func(name string, err error) {
		state := "ok"
		if err != nil {
			ready, state = false, err.Error()
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\n", name, state)
	}
	for _, c := range l.components(r.Programs) {
		row(c.name, client.check(ctx, c.name))
	}
	row("node "+name, client.node(ctx))
	row("name server", client.nameServer(ctx))
	if err := table.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "\nKUBECONFIG   %s\nlogs         %s\naudit log    %s\nprocess      %d, and all below it\n", l.Kubeconfig(), l.path("log"), l.AuditLog(), r.Process.PID)
	if !ready {
		return ErrNotReady
	}
	return nil
}
