# What CI and a newcomer run. `make help` lists the rest.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
CARGO ?= cargo
# The last commit before trustplane.dev/injected-from.
FROM ?= c1291f5
# Thousands of runs of the whole controller: the one test that has to be compiled for speed.
WITH_BUGS := $(CARGO) --config profile.test.package.trustplane.opt-level=2 --config profile.test.package.apiserver.opt-level=2 test --locked --features seeded-bugs
SIMULATION := $(WITH_BUGS) --test simulation

FORMAT := $(CARGO) fmt --all --check
CLIPPY := $(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
# What `make test` compiles beside the unit tests.
IN_PROCESS := --test architecture --test plan_properties --test tls_properties --test spiffe_properties --test demo --test authority --test review --bench sandbox
# Tests that ask the Go libraries of OpenShift's router, and go-spiffe, so they need Go.
ASKS_GO := router::
ASKS_GO_SPIFFE := verdict::
# Tests with real API servers, SPIRE, go-spiffe and client-go.
REAL := real::

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: needs ## For everybody, in minutes: everything that can be shown in one process
	@e2e/run-suite --begin
	@$(MAKE) --no-print-directory suites-in-process
	@e2e/run-suite --table

.PHONY: test-all
test-all: needs-all ## What CI runs: `make test`, and the real parts around the program
	@e2e/run-suite --begin
	@# On a new machine both compile for many minutes, and neither keeps two cores busy.
	@$(MAKE) --no-print-directory -j2 suite-toolbox suites-in-process
	@e2e/run-suite build-all $(CARGO) test --locked --workspace --no-run
	@$(MAKE) --no-print-directory suites-real
	@e2e/run-suite suite-audit $(CARGO) test --locked --test suite_audit -- --show-output
	@e2e/run-suite --table

.PHONY: suite-toolbox
suite-toolbox:
	@e2e/run-suite toolbox e2e/toolbox/build

.PHONY: suites-in-process
suites-in-process:
	@e2e/crates bring
	@e2e/run-suite format $(FORMAT)
	@e2e/run-suite clippy $(CLIPPY)
	@e2e/run-suite build $(CARGO) test --locked --workspace --lib $(IN_PROCESS) --no-run
	@e2e/crates keep
	@e2e/run-suite unit $(CARGO) test --locked --workspace --lib
	@e2e/run-suite architecture $(CARGO) test --locked --test architecture
	@e2e/run-suite plan-properties $(CARGO) test --locked --test plan_properties
	@e2e/run-suite tls-properties $(CARGO) test --locked --test tls_properties -- --skip $(ASKS_GO)
	@e2e/run-suite spiffe-properties $(CARGO) test --locked --test spiffe_properties -- --skip $(ASKS_GO_SPIFFE)
	@e2e/run-suite demo $(CARGO) test --locked --test demo --bench sandbox
	@e2e/run-suite authority $(CARGO) test --locked --test authority -- --skip $(REAL)
	@e2e/run-suite review $(CARGO) test --locked --test review -- --skip $(REAL)
	@e2e/run-suite simulation $(SIMULATION)

.PHONY: suites-real
suites-real:
	@e2e/run-suite router-verdict $(CARGO) test --locked --test tls_properties -- $(ASKS_GO)
	@e2e/run-suite spiffe-verdict $(CARGO) test --locked --test spiffe_properties -- $(ASKS_GO_SPIFFE)
	@e2e/run-suite conformance $(CARGO) test --locked --test conformance
	@e2e/run-suite inject $(CARGO) test --locked --test inject -- --show-output
	@e2e/run-suite cli $(CARGO) test --locked --test cli -- --show-output
	@e2e/run-suite deploy $(CARGO) test --locked --test deploy -- --show-output
	@e2e/run-suite authority-real $(CARGO) test --locked --test authority -- --show-output $(REAL)
	@# Compiled as the simulation is, so that nothing but this test is compiled a second time.
	@e2e/run-suite authority-bugs $(WITH_BUGS) --test authority -- --show-output $(REAL)seeded::
	@# These wait for clocks more than they compute, too.
	@e2e/run-suite review-real $(CARGO) test --locked --test review -- --show-output --test-threads 8 $(REAL)
	@e2e/run-suite federate $(CARGO) test --locked --test federate -- --show-output
	@# Both wait for clocks more than they compute. The suites above keep two cores busy.
	@$(MAKE) --no-print-directory -j2 suite-e2e suite-benches

.PHONY: suite-e2e suite-benches
suite-e2e:
	@e2e/run-suite e2e $(CARGO) test --locked --test e2e
suite-benches:
	@e2e/run-suite benches $(CARGO) test --locked --bench scale --bench federate --bench spiffe

.PHONY: test-long
test-long: ## Soak, stress and long random runs: more crashes, more Routes, other random cases
	TRUSTPLANE_LONG=1 TRUSTPLANE_SEEDS=100000 $(MAKE) test-all

.PHONY: test-upgrade
test-upgrade: needs-all toolbox ## Old and new replicas lead in turn; FROM is the commit of the old ones
	test -d target/upgrade/source || git worktree add --detach target/upgrade/source $(FROM)
	cd target/upgrade/source && $(CARGO) build --locked --target-dir ../build
	TRUSTPLANE_OLD=target/upgrade/build/debug/trustplane $(CARGO) test --locked --test upgrade

.PHONY: e2e
e2e: needs-all toolbox ## What a TLS client is served: the suite on a stack of its own (docs/e2e.md)
	$(CARGO) test --locked --test e2e

.PHONY: e2e-cluster
e2e-cluster: ## The same suite against the cluster that KUBECONFIG names
	$(CARGO) test --locked --test e2e -- --cluster

.PHONY: simulate
simulate: ## The fault simulator: every plan, and 10,000 random runs (or TRUSTPLANE_SEEDS)
	TRUSTPLANE_SEEDS=$${TRUSTPLANE_SEEDS:-10000} $(SIMULATION)

.PHONY: mutants
mutants: ## Change about 200 lines of the decisions one by one; lists what no test notices (needs cargo-mutants)
	e2e/mutants

.PHONY: stack
stack: needs-all toolbox ## Start the product with real parts around it, to try; Ctrl-C ends it
	@$(CARGO) test --locked --test e2e -- --stack

.PHONY: lint
lint: needs ## Format and clippy, warnings denied
	@e2e/crates bring
	$(FORMAT)
	$(CLIPPY)

.PHONY: build
build: ## The optimised binary, target/release/trustplane
	$(CARGO) build --locked --release

.PHONY: bench
bench: needs-all toolbox ## Figures of the controller with 10,000 Routes, table and plots into docs/performance.md
	mkdir -p target
	$(CARGO) bench --locked --bench scale -- --json target/bench-scale.json --docs docs $(BENCH)

.PHONY: bench-sandbox
bench-sandbox: ## Figures of a sandbox with 10,000 Routes, for docs/performance.md
	mkdir -p target
	$(CARGO) bench --locked --bench sandbox -- --json target/bench-sandbox.json

.PHONY: bench-federate
bench-federate: needs-all toolbox ## Figures of federation with 1, 10 and 50 peers, tables into docs/performance.md
	mkdir -p target
	$(CARGO) bench --locked --bench federate -- --json target/bench-federate.json --docs docs $(BENCH)

.PHONY: bench-spiffe
bench-spiffe: needs-all toolbox ## Figures of the SPIFFE authority with 1,000 federations, tables into docs/performance.md
	mkdir -p target
	$(CARGO) bench --locked --bench spiffe -- --json target/bench-spiffe.json --docs docs $(BENCH)

.PHONY: toolbox
toolbox: ## Build the real components for the tests (kube-apiserver, cert-manager, helm, SPIRE ...), once
	@e2e/toolbox/build >/dev/null

.PHONY: toolbox-path
toolbox-path: ## Print the folder with those binaries
	@e2e/toolbox/build --path

.PHONY: needs
needs: ## Check that everything is here that `make test` needs, and install what Debian has
	@e2e/needs

.PHONY: needs-all
needs-all: ## The same for `make test-all` and the real parts
	@e2e/needs --all
