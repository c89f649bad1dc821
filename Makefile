# Tidemark. `make` runs what a change must pass before it is sent; `make help` lists the rest.
SHELL := /bin/bash
GO ?= go
BIN := bin/tidemark
T ?= 60s
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# One set of build flags for binary and tests, so that nothing is compiled twice: static, no paths of the machine.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath
LDFLAGS := -s -w -X main.version=$(VERSION)
FUZZ_PACKAGES := $(shell grep -rl --include=*_test.go '^func Fuzz' internal | xargs -n1 dirname | sort -u | sed 's,^,./,')

.PHONY: all help build demo explore test race fuzz bench bench-mirror bench-cluster kafka chaos chaos-mirror sim-night ci fmt-check vet lint vectors
all: fmt-check vet lint test

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

build: $(BIN) ## bin/tidemark
$(BIN): $(shell find cmd internal -name '*.go' -not -name '*_test.go') go.mod go.sum
	$(GO) build -ldflags '$(LDFLAGS)' -o $@ ./cmd/tidemark

demo: $(BIN) ## a source and a standby in one process: mirror, unclean election, failover, proof
	$(BIN) demo --once

test: ## unit, property, vector and end-to-end tests
	$(GO) test -timeout 40m ./...

explore: $(BIN) ## every order of every operation on two small clusters, as deep as T (default 60s; 1h) allows on two cores
	$(BIN) sim --exhaustive --for $(T) -j 2

race: ## the same under the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout 60m ./...

fuzz: ## every fuzz target for T (default 60s) each
	@set -e; for p in $(FUZZ_PACKAGES); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	  echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(T) $$p; done; done

bench: ## benchmarks of the parts; docs/perf says how to read them
	$(GO) test -run '^$$' -bench . -benchmem ./internal/...

bench-mirror: $(BIN) ## benchmarks of whole processes beside Apache Kafka and MirrorMaker 2 (long)
	test/kafka/fetch-kafka .cache/kafka
	mvn -q -B -f test/kafka/mirrormaker/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.cache/mirrormaker -DincludeScope=runtime
	TIDEMARK_KAFKA_LIBS=$(CURDIR)/.cache/kafka/libs TIDEMARK_MIRRORMAKER_LIBS=$(CURDIR)/.cache/mirrormaker TIDEMARK_BIN=$(CURDIR)/$(BIN) \
	  $(GO) test -tags kafka -run '^$$' -bench . -benchtime 1x -timeout 60m ./test/kafka/

bench-cluster: $(BIN) ## three nodes beside three of Apache Kafka: F=Throughput, Latency, JavaClient, CatchUp, Idle, Failover; Tidemark alone: ChangeOfSides, Outage, GroupAge; all without (long)
	test/kafka/fetch-kafka .cache/kafka
	TIDEMARK_KAFKA_LIBS=$(CURDIR)/.cache/kafka/libs TIDEMARK_BIN=$(CURDIR)/$(BIN) $(GO) test -tags kafka -count=1 -v -timeout 3h -run '^TestFigure$(F)' ./test/perf/

kafka: $(BIN) ## tests against a real Apache Kafka (needs JDK 17 and Maven; jars are cached in .cache)
	test/kafka/fetch-kafka .cache/kafka
	TIDEMARK_KAFKA_LIBS=$(CURDIR)/.cache/kafka/libs TIDEMARK_BIN=$(CURDIR)/$(BIN) $(GO) test -tags kafka -count=1 -timeout 25m ./test/kafka/...

FAULTS := bin/tidemark-faults
$(FAULTS): $(shell find cmd internal -name '*.go' -not -name '*_test.go') go.mod go.sum
	$(GO) build -tags faults -ldflags '$(LDFLAGS)' -o $@ ./cmd/tidemark

chaos: $(FAULTS) ## a cluster killed, cut off and robbed of its disks under load for T (default 60s; 10m, 1h), SEED repeats the schedule, JAVA=1 adds Java's producer (needs JDK 17 and Maven)
	$(if $(JAVA),test/kafka/fetch-kafka .cache/kafka)
	TIDEMARK_BIN=$(CURDIR)/$(FAULTS) TIDEMARK_CHAOS_TIME=$(T) TIDEMARK_CHAOS_SEED=$(SEED) TIDEMARK_CHAOS_NODES=$(NODES) \
	  TIDEMARK_KAFKA_LIBS=$(if $(JAVA),$(CURDIR)/.cache/kafka/libs) \
	  $(GO) test -tags chaos -count=1 -v -timeout 3h ./test/chaos/

chaos-mirror: $(FAULTS) ## mirrored clusters that change sides again and again while they are harmed, for T; SEED repeats rounds and faults, JAVA=1 adds Java's producers, KAFKA=1 has Apache Kafka as the first source (both after make kafka)
	TIDEMARK_BIN=$(CURDIR)/$(FAULTS) TIDEMARK_CHAOS_TIME=$(T) TIDEMARK_CHAOS_SEED=$(SEED) TIDEMARK_CHAOS_JAVA=$(JAVA) TIDEMARK_CHAOS_KAFKA=$(KAFKA) \
	  TIDEMARK_KAFKA_LIBS=$(if $(JAVA)$(KAFKA),$(CURDIR)/.cache/kafka/libs) \
	  $(GO) test -tags 'chaos$(if $(KAFKA), kafka)' -count=1 -v -timeout 3h ./test/chaosmirror/

sim-night: $(BIN) ## the simulator through all profiles and fresh seeds for T (8h, say): failures kept and shrunk in .cache/sim-night, figures, every probe required
	$(BIN) sim --search --profile all --fresh --for $(T) -j 2 --all --out .cache/sim-night --probes require

fmt-check:
	@out=$$(gofmt -l cmd internal test); if [ -n "$$out" ]; then echo "not gofmt-ed:"; echo "$$out"; exit 1; fi

vet:
	$(GO) vet ./...
	$(GO) vet -tags kafka ./test/kafka/... ./test/perf/...
	$(GO) vet -tags chaos ./test/chaos/... ./test/chaosmirror/
	$(GO) vet -tags 'chaos kafka' ./test/chaosmirror/
	$(GO) vet -tags faults ./internal/cli

lint: ## staticcheck, pinned in tools/go.mod
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	$(GO) tool -modfile=tools/go.mod staticcheck -tags kafka ./test/kafka/... ./test/perf/...

ci: fmt-check vet test kafka ## what .ci/run calls
