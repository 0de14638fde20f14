package crd

import "embed"

// Bases holds the definitions as YAML, one file each, in the folder bases.
//
//go:embed bases/*.yaml
var Bases embed.FS
