# Every command is described by `make help`. All of them work as root, without
# a terminal, on a bare Debian 12 with Go: what else they need they install.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# The Go that is installed is the Go that is used.
export GOTOOLCHAIN := local

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME ?= 20s

controller-gen := go tool -modfile=hack/tools/go.mod controller-gen
golangci-lint := go tool -modfile=hack/tools/go.mod golangci-lint

##@ Everyday

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## " } \
	    /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: go ## Build bin/ackrail, a static binary.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-X github.com/ackrail/ackrail/internal/cli.version=$(VERSION)' -o bin/ackrail .

.PHONY: test
test: go ## Run all tests, with the race detector and real servers.
	@hack/install-deps postgres pgbouncer gcc
	@echo "Building and running the tests, package by package"
	go test -race -timeout 30m ./...

.PHONY: demo
demo: go ## Show a pipeline from webhook to replay, step by step.
	@hack/install-deps postgres curl jq
	hack/demo/run

##@ Before a commit

.PHONY: generate
generate: go ## Regenerate deep copies, apply configurations and CRDs from api/.
	rm -rf api/v1alpha1/applyconfiguration config/crd/bases
	$(controller-gen) paths=./api/... \
	    object:headerFile=hack/boilerplate.go.txt \
	    applyconfiguration:headerFile=hack/boilerplate.go.txt \
	    crd output:crd:artifacts:config=config/crd/bases

.PHONY: fmt
fmt: go ## Format the code.
	$(golangci-lint) fmt ./...

.PHONY: lint
lint: go ## Check the code. The first run builds the linter, which takes minutes.
	$(golangci-lint) run ./...

.PHONY: tidy
tidy: go ## Tidy the modules.
	go mod tidy
	cd hack/tools && go mod tidy

.PHONY: verify
verify: go ## Check that everything generated, tidied and formatted is so, and lint.
	@echo "Checking the generated files"
	@hack/verify-generated
	@echo "Checking the format and the code; the first run builds the linter"
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted, run make fmt: $$files" >&2; exit 1; fi
	@$(MAKE) lint

##@ Now and then

.PHONY: fuzz
fuzz: go ## Run each fuzz target for FUZZTIME (default 20s).
	@hack/fuzz $(FUZZTIME)

.PHONY: bench
bench: go ## Measure the hot paths.
	@hack/install-deps postgres
	hack/bench/run

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin .cache

.PHONY: go
go:
	@hack/check-go
