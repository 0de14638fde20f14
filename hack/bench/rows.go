package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// rows are all that can be measured, in the order of the table.
var rows = []row{
	{"P1", "ingest", measureIngest},
	{"P1b", "ingest while workers deliver", measureIngestWhileDelivering},
	{"P2", "ingest over many connections", measureManyConnections},
	{"P3", "batching", measureBatching},
	{"P4", "time to the answer", measureAck},
	{"P5", "time to the answer beside a backlog", measureAckBesideBacklog},
	{"P6", "burn-down", measureBurnDown},
	{"P7", "delivery", measureDelivery},
	{"P8", "claims on a backlog", measureClaimOnBacklog},
	{"P9", "claims beside a paused destination", measureClaimBesidePaused},
	{"P11", "claims under an old snapshot", measureClaimUnderOldSnapshot},
	{"P12", "wake-ups", measureWakeUps},
	{"P13", "write-ahead log", measureLog},
	{"P14", "retention", measureRetention},
	{"P15", "time to the delivery", measureHandOver},
	{"P16", "idle processes", measureIdle},
	{"P18", "memory", measureMemory},
	{"replay", "live events beside a replay", measureReplay},
	{"profiles", "what ingress and worker spend their time on", keepProfiles},
	{"plans", "the plans of the hot statements", keepPlans},
}

// choose returns the rows with the given ids, all for an empty list.
func choose(ids string) ([]row, error) {
	if ids == "" {
		return rows, nil
	}
	var chosen []row
	for id := range strings.SplitSeq(ids, ",") {
		i := slices.IndexFunc(rows, func(r row) bool { return strings.EqualFold(r.id, strings.TrimSpace(id)) })
		if i < 0 {
			return nil, fmt.Errorf("-rows: there is no row %q", id)
		}
		chosen = append(chosen, rows[i])
	}
	return chosen, nil
}

// measure runs a row and judges its figures.
func (r *row) measure(ctx context.Context, e *env) ([]figure, error) {
	defer e.cleanUp()
	e.refused.Store(0)
	figures, err := r.run(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("measuring %s, %s: %w", r.id, r.title, err)
	}
	for i := range figures {
		figures[i].Row = r.id
		if n := e.refused.Load(); n > 0 {
			figures[i].Note = strings.TrimPrefix(fmt.Sprintf("%s; %d requests were refused with 503", figures[i].Note, n), "; ")
		}
		if err := figures[i].judge(); err != nil {
			return nil, err
		}
	}
	return figures, nil
}
