package store

import (
	"embed"
	"io/fs"
)

//go:embed migrations/*.sql
var migrations embed.FS

//go:embed sql/*.sql
var sqlFiles embed.FS

// The statements, by file.
var (
	sqlMissingSchema     = statement("missing_schema")
	sqlRegisterEndpoints = statement("register_endpoints")
	sqlRegisterNames     = statement("register_destinations")
	sqlEnqueue           = statement("enqueue")
	sqlLookupKeys        = statement("lookup_keys")
	sqlClaim             = statement("claim")
	sqlReadEvent         = statement("read_event")
	sqlComplete          = statement("complete")
	sqlRenew             = statement("renew")
	sqlNotify            = statement("notify")
	sqlChannel           = statement("channel")
	sqlCounts            = statement("counts")
	sqlImportDeadLetters = statement("import_dead_letters")
	sqlDeadCounts        = statement("dead_counts")
	sqlFoldTally         = statement("fold_tally")
	sqlTakeChore         = statement("take_chore")
	sqlPostponeChore     = statement("postpone_chore")
	sqlMissingPartitions = statement("missing_partitions")
	sqlPurgeDedup        = statement("purge_dedup")
	sqlPurgeDeadLetters  = statement("purge_dead_letters")
	sqlPurgeHeldEvents   = statement("purge_held_events")
	sqlUnknownNames      = statement("unknown_destinations")
	sqlPlanReplay        = statement("select_replay") + statement("plan_replay")
	sqlCountReplay       = statement("select_replay") + statement("count_replay")
	sqlRunReplay         = statement("run_replay")
	sqlFinishReplay      = statement("finish_replay")
	sqlReplayStatus      = statement("replay_status")
	sqlListDeliveries    = statement("list_deliveries")
	sqlDeadLetters       = statement("dead_letters")
	sqlShowEvent         = statement("show_event")
	sqlShowDeliveries    = statement("show_deliveries")
	sqlShowAttempts      = statement("show_attempts")
)

// statement reads an embedded statement. A name without a file is a mistake
// of this package that its first test would meet.
func statement(name string) string {
	text, err := fs.ReadFile(sqlFiles, "sql/"+name+".sql")
	if err != nil {
		panic(err)
	}
	return string(text)
}
