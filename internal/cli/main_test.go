package cli

import (
	"errors"
	"testing"

	"github.com/ackrail/ackrail/internal/rig"
)

func TestMain(m *testing.M) { rig.Main(m, Main) }

var errNotYet = errors.New("not yet")
