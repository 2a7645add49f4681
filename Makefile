# Everything that is done often, as one command each; `make help` lists them.

.DEFAULT_GOAL := help
SHELL := /bin/bash

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUNS := $(VENV)/.runs
# The newest of the supported Pythons that works here.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
NAMED := $(if $(NAME),--name $(NAME))
# Clusters behind the first: as many as CLUSTERS says, with it.
WORKERS := $(wordlist 2,$(or $(CLUSTERS),1),manager worker worker-2)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
TAG := kueue-fallback:$(VERSION)

## List the targets.
.PHONY: help
help:
	@awk '/^## /{ text = substr($$0, 4) } /^[a-z0-9-]+:/{ if (text) { sub(/:.*/, "", $$1); \
		printf "  make %-11s %s\n", $$1, text; text = "" } }' $(MAKEFILE_LIST)

## Make the Python environment from the locked dependencies.
.PHONY: setup
setup: $(READY)

$(READY): $(RUNS) requirements/dev.txt
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

# What runs and draws is a third of it, and much of that is never imported, so never compiled.
$(RUNS): pyproject.toml requirements/demo.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed"; exit 1; }
	@echo "making the Python environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements/demo.txt
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

## Start a cluster with this project; NAME=second: another; CLUSTERS=2, 3: GPUs on workers.
.PHONY: up
up: setup
	@$(BIN)/python -m hack.up $(NAMED)
	@$(if $(WORKERS),$(BIN)/python -m hack.multikueue $(WORKERS))

## End the cluster of `make up`, also after a crash; NAME=second for the other.
.PHONY: down
down: setup
	@$(BIN)/python -m hack.down $(NAMED)
	@$(foreach name,$(WORKERS),$(BIN)/python -m hack.down --name $(name);)

## Show what a policy saves: 30 Jobs three ways in a minute, on a cluster played in Python.
.PHONY: demo
demo: $(RUNS)
	@$(BIN)/python -m hack.demo

## Show the same on a real API server and Kueue, whose programs are built if needed.
.PHONY: demo-kueue
demo-kueue: $(RUNS)
	@$(BIN)/python -m hack.demo --kueue

## Check style, types and import contracts, then run all tests that need no control plane.
.PHONY: test
test: lint
	$(BIN)/pytest -n 2 --dist loadgroup --ignore=tests/e2e

## Run the end-to-end tests on a real control plane, whose programs are built if needed.
.PHONY: test-e2e
test-e2e: programs
	$(BIN)/pytest -n 2 --dist loadgroup tests/e2e

## Check style, types and import contracts.
.PHONY: lint
lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## Measure what the webhook costs; BENCH="--quick creates" for less, --help for more.
.PHONY: bench
bench: setup
	@$(BIN)/python -m bench --folder build/bench $(BENCH)

## Run the paper's experiment in real time, all strategies at once; EXPERIMENT=--help for less.
.PHONY: experiment
experiment: setup
	@$(BIN)/python -m bench.experiment --folder build/experiment $(EXPERIMENT)

## Compare Jobs with and without a policy in five worlds; REGRET="--worlds fair --seeds 1,2".
.PHONY: regret
regret: setup
	@$(BIN)/python -m bench.regret --folder build/regret $(REGRET)

## Create 50 Jobs a second for an hour and watch memory; SECONDS=600 for less.
.PHONY: soak
soak: setup
	@$(BIN)/python -m bench.soak --folder build/soak --seconds $(or $(SECONDS),3600)

## Hunt for an hour for objects that harm others; SECONDS=600 for less, SEED=1 to run one again.
.PHONY: fuzz
fuzz: setup
	@$(BIN)/python -m hack.fuzz --seconds $(or $(SECONDS),3600) \
		$(if $(SEED),--seed $(SEED)) $(if $(EXAMPLES),--examples $(EXAMPLES))

## Compare reviews, event loop and plain models in 100,000 random worlds; WORLDS=1000 for less.
.PHONY: worlds
worlds: setup
	HYPOTHESIS_PROFILE=worlds WORLDS=$(or $(WORLDS),100000) \
		$(BIN)/pytest -n 2 --timeout 0 -m agreement tests/kueue

## Take hours: all tests at full length, 300 cases and 200 worlds on Kueue, bench, fuzz.
.PHONY: verify
verify: programs
	FULL=1 HYPOTHESIS_PROFILE=full $(BIN)/pytest -n 2 --dist loadgroup --ignore=tests/e2e
	FULL=1 AGREEMENT_SEEDS=1-300 AGREEMENT_TOPOLOGIES=1-200 AGREEMENT_WORLDS=1-220 $(BIN)/pytest -n 2 --dist loadgroup tests/e2e
	$(MAKE) worlds
	$(BIN)/python -m bench --folder build/bench
	$(BIN)/python -m hack.fuzz

## Build the image with docker, podman or buildah; TAG=mine:1 names it, IMAGE=... adds options.
.PHONY: image
image:
	@for builder in docker podman buildah; do \
		said="$$($$builder info 2>&1)" && BUILDAH_FORMAT=docker exec $$builder build \
			--tag $(TAG) --label org.opencontainers.image.version=$(VERSION) \
			--label org.opencontainers.image.revision="$$(git rev-parse HEAD)" \
			--build-arg PIP_INDEX_URL $(IMAGE) .; \
		echo "$$builder: $${said##*$$'\n'}" >&2; \
	done; echo "No image can be built here; start one of these, or install it." >&2; exit 1

## Make what a release publishes, without credentials: wheel, chart, plugin; RELEASE=v0.1.0.
.PHONY: release
release: setup
	@$(BIN)/python -m hack.artifacts $(or $(RELEASE),v$(VERSION)) \
		$(if $(REPOSITORY),--repository $(REPOSITORY))

## Get the programs that tests run into ~/.cache/kueue-fallback; builds what nobody has ready.
.PHONY: programs
programs: setup
	@$(BIN)/python -m hack.tools
	@$(BIN)/python -m hack.job_programs

## End all clusters and delete what was made in the tree.
.PHONY: clean
clean:
	@test ! -x $(BIN)/python || for folder in .cluster .cluster-*; do \
		name="$${folder#.cluster}"; \
		test ! -d "$$folder" || $(BIN)/python -m hack.down --name "$${name#-}"; done
	rm -rf $(VENV) build dist *.egg-info .*_cache .hypothesis demo.png
