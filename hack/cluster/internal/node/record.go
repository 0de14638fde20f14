package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// record says what runs on this machine and what has to be put back when it is
// gone. It is written before the cluster's first process does anything.
type record struct {
	// Run is the folder of the cluster's data; see Layout.
	Run string `json:"run"`
	// Programs is the folder that its programs come from.
	Programs string `json:"programs"`
	// Process is the first process of the cluster's process namespace.
	Process process `json:"process"`
	// Created are folders that were made to be mounted over.
	Created []string `json:"created,omitempty"`
	// Settings are the kernel settings as they were.
	Settings map[string]string `json:"settings,omitempty"`
}

// process identifies a process also after its id was given to another one.
type process struct {
	PID int `json:"pid"`
	// Start is when it started, in clock ticks after boot; see proc(5).
	Start uint64 `json:"start"`
	// Boot is the id of the boot that this was in.
	Boot string `json:"boot"`
}

func recordFile() string { return filepath.Join(volatile, "cluster.json") }

// readRecord returns nil if there is none.
func readRecord() (*record, error) {
	content, err := os.ReadFile(recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", recordFile(), err)
	}
	return &r, nil
}

func (r *record) write() error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	temporary := recordFile() + ".tmp"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, recordFile())
}

func identify(pid int) (process, error) {
	start, _, err := stat(pid)
	if err != nil {
		return process{}, err
	}
	boot, err := bootID()
	return process{PID: pid, Start: start, Boot: boot}, err
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// alive says whether the very process still runs.
func (p process) alive() bool {
	start, state, err := stat(p.PID)
	if err != nil || start != p.Start || state == "Z" || state == "X" {
		return false
	}
	boot, err := bootID()
	return err == nil && boot == p.Boot
}

// stat returns the start time and the state of a process; see proc(5).
func stat(pid int) (start uint64, state string, err error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, "", err
	}
	// The second field, the name, may hold anything; it ends at the last ")".
	text := string(content)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const stateField, startField = 0, 19
	if len(fields) <= startField {
		return 0, "", fmt.Errorf("/proc/%d/stat: too short", pid)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	return start, fields[stateField], err
}
