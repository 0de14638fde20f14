package main

import (
	"debug/elf"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// platformOf returns what a binary runs on. A binary that asks for a loader is
// refused: the image has none, and the error at run time, "no such file or
// directory", would name the binary.
func platformOf(binary string) (v1.Platform, error) {
	f, err := elf.Open(binary)
	if err != nil {
		return v1.Platform{}, fmt.Errorf("%s is no Linux binary: %w", binary, err)
	}
	defer f.Close()
	for _, program := range f.Progs {
		if program.Type == elf.PT_INTERP {
			return v1.Platform{}, fmt.Errorf("%s is not static: build it with CGO_ENABLED=0", binary)
		}
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return v1.Platform{OS: "linux", Architecture: "amd64"}, nil
	case elf.EM_AARCH64:
		return v1.Platform{OS: "linux", Architecture: "arm64"}, nil
	}
	return v1.Platform{}, fmt.Errorf("%s is for %s, which is not supported", binary, f.Machine)
}
