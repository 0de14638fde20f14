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
	{"P6", "burn-down", measureBurnDown},
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
	figures, err := r.run(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("measuring %s, %s: %w", r.id, r.title, err)
	}
	for i := range figures {
		figures[i].Row = r.id
		if err := figures[i].judge(); err != nil {
			return nil, err
		}
	}
	return figures, nil
}
