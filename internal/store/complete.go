package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/event"
)

// Outcome is how an attempt ended.
type Outcome struct {
	Claim   *Claim
	Verdict event.Verdict
	// Delay is after how long the delivery is due again (failed, released).
	Delay time.Duration
	// Reason is set with the verdict dead.
	Reason event.Reason
	// Status is the response's status code, 0 if there was no response.
	Status int
	// Latency is how long the exchange took.
	Latency    time.Duration
	ErrorClass event.ErrorClass
	// Error and Excerpt must be valid UTF-8 without NUL; Excerpt is the
	// beginning of the response's body.
	Error, Excerpt string
	// KeepLedger is for how long the record of the attempt is kept, KeepEnded
	// for how long a delivery that ends with it is (done, dead).
	KeepLedger, KeepEnded time.Duration
}

// MaxDelay bounds Outcome.Delay: a year.
const MaxDelay = 366 * 24 * time.Hour

// Complete records outcomes, each only if its claim still holds, by one
// statement. It returns for each outcome whether it took effect: one that did
// not was fenced off, since the delivery has another owner now or has ended.
// A batch should stay below 500. Outcomes whose text the database refuses are
// recorded without it.
func (s *Store) Complete(ctx context.Context, outcomes []Outcome) ([]bool, error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	took, err := s.complete(ctx, outcomes)
	if !isDataError(err) {
		return took, err
	}
	if len(outcomes) == 1 {
		plain := outcomes[0]
		plain.Error, plain.Excerpt = "", ""
		return s.complete(ctx, []Outcome{plain})
	}
	half := len(outcomes) / 2
	first, err := s.Complete(ctx, outcomes[:half])
	if err != nil {
		return nil, err
	}
	second, err := s.Complete(ctx, outcomes[half:])
	return append(first, second...), err
}

func (s *Store) complete(ctx context.Context, outcomes []Outcome) ([]bool, error) {
	claims := make([]*Claim, len(outcomes))
	for i := range outcomes {
		claims[i] = outcomes[i].Claim
	}
	// Of two outcomes of one claim the first is recorded.
	order := slices.CompactFunc(lockOrder(claims), func(a, b int) bool { return claims[a].row() == claims[b].row() })
	t := tokensOf(claims, order)
	var attempts, latency, keep, keepEnded []int32
	var status []*int32
	var verdict, reason, class, message, excerpt []string
	var delay []int64
	for _, i := range order {
		o := &outcomes[i]
		attempts = append(attempts, int32(o.Claim.Attempts)) //nolint:gosec // bounded by configuration
		latency = append(latency, int32(min(o.Latency.Milliseconds(), 1<<31-1)))
		keep = append(keep, wholeSeconds(o.KeepLedger))
		keepEnded = append(keepEnded, wholeSeconds(o.KeepEnded))
		status = append(status, statusOrNil(o.Status))
		verdict = append(verdict, string(o.Verdict))
		reason = append(reason, string(o.Reason))
		class = append(class, string(o.ErrorClass))
		message = append(message, o.Error)
		excerpt = append(excerpt, o.Excerpt)
		delay = append(delay, min(max(o.Delay, 0), MaxDelay).Milliseconds())
	}
	return s.fenced(ctx, "recording outcomes", sqlComplete, claims, order, append(t.args(),
		attempts, verdict, delay, reason, status, latency, class, message, excerpt, keep, keepEnded))
}

func statusOrNil(status int) *int32 {
	if status == 0 {
		return nil
	}
	n := int32(status) //nolint:gosec // three digits
	return &n
}

// Renew extends the leases of claims that still hold, each by its lease from
// now. It returns for each claim whether it still holds: a worker must drop
// one that does not.
func (s *Store) Renew(ctx context.Context, claims []*Claim, leases []time.Duration) ([]bool, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	order := lockOrder(claims)
	t := tokensOf(claims, order)
	ms := make([]int64, 0, len(claims))
	for _, i := range order {
		ms = append(ms, leases[i].Milliseconds())
	}
	return s.fenced(ctx, "renewing leases", sqlRenew, claims, order, append(t.args(), ms))
}

// fenced runs a statement about the claims at some positions, which returns
// the tokens for which it took effect, and says so for each claim.
func (s *Store) fenced(ctx context.Context, doing, statement string, claims []*Claim, positions []int, args []any) ([]bool, error) {
	for {
		took, err := s.effects(ctx, statement, args)
		if isContention(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, classify(doing, err)
		}
		result := make([]bool, len(claims))
		for _, i := range positions {
			result[i] = took[claims[i].row()]
		}
		return result, nil
	}
}

func (s *Store) effects(ctx context.Context, statement string, args []any) (map[rowKey]bool, error) {
	rows, err := s.pool.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	took := map[rowKey]bool{}
	for rows.Next() {
		var k rowKey
		if err := rows.Scan((*[16]byte)(&k.event), &k.destination, &k.run, &k.attempt); err != nil {
			return nil, err
		}
		took[k] = true
	}
	return took, rows.Err()
}

// rowKey is a fencing token as the tables have it: a delivery's primary key,
// and the attempt.
type rowKey struct {
	event       uuid.UUID
	destination int32
	run         int32
	attempt     int32
}

func (c *Claim) row() rowKey {
	t := &c.Token
	return rowKey{t.Delivery.Event, c.destination, int32(t.Delivery.Run), int32(t.Attempt)} //nolint:gosec // came from int columns
}

// lockOrder returns the positions of claims in the order of their keys, in
// which statements lock rows so that no two of them can deadlock. Claims of
// the same key keep their order.
func lockOrder(claims []*Claim) []int {
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := claims[a].row(), claims[b].row()
		return cmp.Or(bytes.Compare(x.event[:], y.event[:]), cmp.Compare(x.destination, y.destination),
			cmp.Compare(x.run, y.run), cmp.Compare(x.attempt, y.attempt))
	})
	return order
}

// tokens are the columns of fencing tokens.
type tokens struct {
	event                     [][16]byte
	destination, run, attempt []int32
}

func tokensOf(claims []*Claim, order []int) *tokens {
	t := &tokens{}
	for _, i := range order {
		k := claims[i].row()
		t.event = append(t.event, k.event)
		t.destination = append(t.destination, k.destination)
		t.run = append(t.run, k.run)
		t.attempt = append(t.attempt, k.attempt)
	}
	return t
}

func (t *tokens) args() []any { return []any{t.event, t.destination, t.run, t.attempt} }
