package invariant

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/ackrail/ackrail/internal/event"
)

// data is everything that is compared.
type data struct {
	now time.Time // the database's clock

	destinations map[int32]event.DestinationRef
	events       []stored
	open         []openRow
	ended        []endedRow
	attempts     []attemptRow
	outcomes     []outcomeRow
	replays      map[uuid.UUID]replayRow
	items        []itemRow

	sends    []Send
	receipts []Receipt
	notes    []note
}

// row is what every row about a delivery has.
type row struct {
	Event       [16]byte
	Destination int32
	Run         int
	Attempt     int
}

// stored is an event of the database.
type stored struct {
	id                event.ID
	endpoint          event.EndpointRef
	key               string
	received, expires time.Time
	body              [32]byte
	size              int
}

type openRow struct {
	row
	state    string
	released int
	next     *time.Time // nil: missing or infinite
	replay   *uuid.UUID
}

// endedRow is a delivery that is done or dead.
type endedRow struct {
	row
	state      event.State
	attempts   int
	status     int
	reason     event.Reason
	at         time.Time
	replay     *uuid.UUID
	replayedBy *uuid.UUID
}

type attemptRow struct {
	row
	started time.Time
	worker  string
}

type outcomeRow struct {
	row
	verdict event.Verdict
	status  int // 0: none
	class   string
	ended   time.Time
}

type replayRow struct {
	name      string
	planned   time.Time
	completed *time.Time
}

type itemRow struct {
	replay      uuid.UUID
	event       [16]byte
	destination int32
	run         int
	state       string
}

// Clock returns the time by a database's clock, for Expect.Since.
func Clock(ctx context.Context, databaseURL string) (now time.Time, err error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return now, fmt.Errorf("reading the database's clock: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now, err
}

// load reads the database in one snapshot.
func load(ctx context.Context, databaseURL string) (*data, error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("reading the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("reading the database: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	d := &data{destinations: map[int32]event.DestinationRef{}, replays: map[uuid.UUID]replayRow{}}
	if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&d.now); err != nil {
		return nil, fmt.Errorf("reading the database's clock: %w", err)
	}
	for _, table := range []struct {
		name, query string
		scan        func(pgx.Row) error
	}{
		{"destinations", `SELECT d.id, e.namespace, e.name, d.name FROM destination d JOIN endpoint e ON e.id = d.endpoint_id`, d.scanDestination},
		{"events", `SELECT DISTINCT ON (e.id) e.id, n.namespace, n.name, e.idempotency_key, e.received_at, e.expires_at, sha256(e.body), octet_length(e.body)
			FROM (SELECT * FROM event UNION ALL SELECT * FROM held_event) AS e JOIN endpoint n ON n.id = e.endpoint_id`, d.scanEvent},
		{"deliveries", `SELECT event_id, destination_id, run, attempt, state, released, CASE WHEN isfinite(next_at) THEN next_at END, replay_id
			FROM delivery`, d.scanOpen},
		{"ended deliveries", `SELECT event_id, destination_id, run, attempt, 'done', attempts, status, '', settled_at, replay_id, NULL::uuid FROM settled
			UNION ALL
			SELECT event_id, destination_id, run, attempt, 'dead', attempts, coalesce(last_status, 0), reason, died_at, replay_id, replayed_by
			FROM dead_letter`, d.scanEnded},
		{"attempts", `SELECT event_id, destination_id, run, attempt, started_at, worker FROM attempt`, d.scanAttempt},
		{"outcomes", `SELECT event_id, destination_id, run, attempt, verdict, coalesce(status, 0), error_class, ended_at FROM outcome`, d.scanOutcome},
		{"replays", `SELECT id, namespace || '/' || name, planned_at, completed_at FROM replay`, d.scanReplay},
		{"replay items", `SELECT replay_id, event_id, destination_id, run, state FROM replay_item`, d.scanItem},
	} {
		if err := each(ctx, tx, table.query, table.scan); err != nil {
			return nil, fmt.Errorf("reading %s: %w", table.name, err)
		}
	}
	return d, nil
}

func each(ctx context.Context, tx pgx.Tx, query string, scan func(pgx.Row) error) error {
	rows, err := tx.Query(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (d *data) scanDestination(row pgx.Row) error {
	var id int32
	var ref event.DestinationRef
	err := row.Scan(&id, &ref.Endpoint.Namespace, &ref.Endpoint.Name, &ref.Name)
	d.destinations[id] = ref
	return err
}

func (d *data) scanEvent(row pgx.Row) error {
	var e stored
	var body []byte
	err := row.Scan((*[16]byte)(&e.id), &e.endpoint.Namespace, &e.endpoint.Name, &e.key, &e.received, &e.expires, &body, &e.size)
	copy(e.body[:], body)
	d.events = append(d.events, e)
	return err
}

// with are the columns of a row about a delivery.
func (r *row) with(columns ...any) []any {
	return append([]any{&r.Event, &r.Destination, &r.Run, &r.Attempt}, columns...)
}

func (d *data) scanOpen(row pgx.Row) error {
	var o openRow
	err := row.Scan(o.with(&o.state, &o.released, &o.next, &o.replay)...)
	d.open = append(d.open, o)
	return err
}

func (d *data) scanEnded(row pgx.Row) error {
	var e endedRow
	err := row.Scan(e.with(&e.state, &e.attempts, &e.status, &e.reason, &e.at, &e.replay, &e.replayedBy)...)
	d.ended = append(d.ended, e)
	return err
}

func (d *data) scanAttempt(row pgx.Row) error {
	var a attemptRow
	err := row.Scan(a.with(&a.started, &a.worker)...)
	d.attempts = append(d.attempts, a)
	return err
}

func (d *data) scanOutcome(row pgx.Row) error {
	var o outcomeRow
	err := row.Scan(o.with(&o.verdict, &o.status, &o.class, &o.ended)...)
	d.outcomes = append(d.outcomes, o)
	return err
}

func (d *data) scanReplay(row pgx.Row) error {
	var id uuid.UUID
	var r replayRow
	err := row.Scan(&id, &r.name, &r.planned, &r.completed)
	d.replays[id] = r
	return err
}

func (d *data) scanItem(row pgx.Row) error {
	var i itemRow
	err := row.Scan(&i.replay, &i.event, &i.destination, &i.run, &i.state)
	d.items = append(d.items, i)
	return err
}
