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
# How often make faults runs its rows, or for how long.
COUNT ?= 1
DURATION ?=

# The images that clusters run. Set IMAGE to one that another cluster can pull.
IMAGE ?= docker.io/ackrail/ackrail:dev
SINK_IMAGE ?= docker.io/ackrail/sink:dev

controller-gen := go tool -modfile=hack/tools/go.mod controller-gen
golangci-lint := go tool -modfile=hack/tools/go.mod golangci-lint
# The same from another module's folder two levels down.
linter-beside := go tool -modfile=../tools/go.mod golangci-lint run --config ../../.golangci.yml

##@ Everyday

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## " } \
	    /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: go ## Build bin/ackrail, a static binary.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X github.com/ackrail/ackrail/internal/cli.version=$(VERSION)' -o bin/ackrail .

.PHONY: test
test: go ## Run all tests, with the race detector and real servers.
	@hack/install-deps postgres pgbouncer gcc ip nft pgrep faketime
	@hack/cluster/assets >/dev/null
	@echo "Building and running the tests, package by package"
	go test -race -timeout 30m ./...
	go test -C hack/image ./...
	go test -C hack/chart ./...
	go test -C hack/cluster . ./internal/...
	go test -C hack/bench .

.PHONY: demo
demo: go ## Show the operator on a cluster of this machine, from helm install to a replay.
	@hack/install-deps postgres curl jq
	hack/demo/run

.PHONY: dev
dev: go ## Show a pipeline from webhook to replay in a minute, without a cluster.
	@hack/install-deps postgres curl jq
	hack/demo/dev

.PHONY: e2e
e2e: go ## Run the end-to-end tests on a cluster: KUBECONFIG's, or one of this machine.
	@hack/install-deps postgres curl jq
	hack/e2e

.PHONY: faults
faults: go ## Break everything, see that it holds, write docs/faults.md; COUNT=3, DURATION=8h.
	@hack/install-deps postgres ip nft pgrep faketime curl jq
	@COUNT='$(COUNT)' DURATION='$(DURATION)' hack/faults

##@ Cluster

.PHONY: cluster-up
cluster-up: go ## Start a Kubernetes cluster on this machine. Builds it the first time: 15 minutes.
	@hack/cluster/up

.PHONY: cluster-status
cluster-status: go ## Tell how the cluster is.
	@hack/cluster/status

.PHONY: cluster-down
cluster-down: go ## Remove the cluster, all that it made, and its pods' database.
	@hack/cluster/down
	@hack/postgres/down --data

##@ Image

.PHONY: image
image: build ## Make bin/image/ackrail.tar and sink.tar, OCI images, without Docker.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/sink ./hack/sink
	IMAGE='$(IMAGE)' SINK_IMAGE='$(SINK_IMAGE)' VERSION='$(VERSION)' hack/image/make

.PHONY: cluster-load
cluster-load: image ## Put the images into the cluster of make cluster-up.
	IMAGE='$(IMAGE)' SINK_IMAGE='$(SINK_IMAGE)' hack/image/load

##@ Before a commit

.PHONY: generate
generate: go ## Regenerate what follows from api/ and controllers/: code, CRDs, RBAC, chart.
	rm -rf api/v1alpha1/applyconfiguration config/crd/bases config/rbac/role.yaml
	$(controller-gen) paths=./api/... \
	    object:headerFile=hack/boilerplate.go.txt \
	    applyconfiguration:headerFile=hack/boilerplate.go.txt \
	    crd output:crd:artifacts:config=config/crd/bases
	$(controller-gen) paths=./controllers/... \
	    rbac:roleName=manager output:rbac:artifacts:config=config/rbac
	go run -C hack/chart .

.PHONY: fmt
fmt: go ## Format the code.
	$(golangci-lint) fmt ./...

.PHONY: lint
lint: go ## Check the code. The first run builds the linter, which takes minutes.
	$(golangci-lint) run ./...
	cd hack/image && $(linter-beside) ./...
	cd hack/chart && $(linter-beside) ./...
	cd hack/cluster && $(linter-beside) . ./internal/... ./pause ./probe
	cd hack/bench && $(linter-beside) .

.PHONY: tidy
tidy: go ## Tidy the modules.
	go mod tidy
	cd hack/tools && go mod tidy
	cd hack/cluster && go mod tidy
	cd hack/cluster/coredns && go mod tidy
	cd hack/image && go mod tidy
	cd hack/chart && go mod tidy
	cd hack/bench && go mod tidy

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
bench: go ## Measure the hot paths, in half an hour; BENCH="-short" in five minutes.
	@hack/install-deps postgres
	hack/bench/run $(BENCH)

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin .cache

.PHONY: go
go:
	@hack/check-go
