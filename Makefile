# What CI and a newcomer run. `make help` lists the rest.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
CARGO ?= cargo
SUITE := target/suite
# The last commit before trustplane.dev/injected-from.
FROM ?= c1291f5
# Thousands of runs of the whole controller: the one test that has to be compiled for speed.
SIMULATION := $(CARGO) --config profile.dev.package.trustplane.opt-level=2 --config profile.dev.package.apiserver.opt-level=2 test --locked --features seeded-bugs --test simulation

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: needs lint toolbox ## Everything that must hold: format, clippy, all tests
	rm -rf $(SUITE)
	mkdir -p $(SUITE) && chmod 700 $(SUITE)
	$(CARGO) test --locked --no-run
	@e2e/crates keep
	$(CARGO) test --locked -- --show-output 2>&1 | tee $(SUITE)/cargo-test.log
	$(SIMULATION)
	$(CARGO) test --locked --test suite_audit -- --show-output

.PHONY: test-long
test-long: ## The long variants: more crashes, more Routes, more random cases
	TRUSTPLANE_LONG=1 TRUSTPLANE_SEEDS=100000 $(MAKE) test

.PHONY: test-upgrade
test-upgrade: needs toolbox ## Old and new replicas lead in turn; FROM is the commit of the old ones
	test -d target/upgrade/source || git worktree add --detach target/upgrade/source $(FROM)
	cd target/upgrade/source && $(CARGO) build --locked --target-dir ../build
	TRUSTPLANE_OLD=target/upgrade/build/debug/trustplane $(CARGO) test --locked --test upgrade

.PHONY: e2e
e2e: needs toolbox ## What a TLS client is served: the suite on a stack of its own (docs/e2e.md)
	$(CARGO) test --locked --test e2e

.PHONY: e2e-cluster
e2e-cluster: ## The same suite against the cluster that KUBECONFIG names
	$(CARGO) test --locked --test e2e -- --cluster

.PHONY: simulate
simulate: ## The fault simulator: every plan, and 10,000 random runs (or TRUSTPLANE_SEEDS)
	TRUSTPLANE_SEEDS=$${TRUSTPLANE_SEEDS:-10000} $(SIMULATION)

.PHONY: stack
stack: needs toolbox ## Start the product with real parts around it, to try; Ctrl-C ends it
	@$(CARGO) test --locked --test e2e -- --stack

.PHONY: lint
lint: needs ## Format and clippy, warnings denied
	@e2e/crates bring
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings

.PHONY: build
build: ## The optimised binary, target/release/trustplane
	$(CARGO) build --locked --release

.PHONY: bench
bench: needs toolbox ## Figures of the controller with 10,000 Routes, table and plots into docs/performance.md
	mkdir -p target
	$(CARGO) bench --locked --bench scale -- --json target/bench-scale.json --docs docs $(BENCH)

.PHONY: bench-sandbox
bench-sandbox: ## Figures of a sandbox with 10,000 Routes, for docs/performance.md
	mkdir -p target
	$(CARGO) bench --locked --bench sandbox -- --json target/bench-sandbox.json

.PHONY: bench-federate
bench-federate: needs toolbox ## Figures of federation with 1, 10 and 50 peers, tables into docs/performance.md
	mkdir -p target
	$(CARGO) bench --locked --bench federate -- --json target/bench-federate.json --docs docs $(BENCH)

.PHONY: toolbox
toolbox: ## Build the real components for the tests (kube-apiserver, cert-manager, helm, SPIRE ...), once
	@e2e/toolbox/build >/dev/null

.PHONY: toolbox-path
toolbox-path: ## Print the folder with those binaries
	@e2e/toolbox/build --path

.PHONY: needs
needs: ## Check that everything is here that the tests need, and install what Debian has
	@e2e/needs
