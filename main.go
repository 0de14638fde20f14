// Ackrail runs webhook pipelines: see the README.
package main

import (
	"os"

	"github.com/ackrail/ackrail/internal/cli"
)

func main() { os.Exit(cli.Main()) }
