# Two commands for a new machine: `make run` and `make test`. Both set up .venv first.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
PRESET ?= deployments/presets/demo.yaml
PROFILE ?= sqlite
READY := $(VENV)/.ready

.PHONY: run test lint types serve kernels clean help

help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-8s %s\n", $$1, $$2}'

run: $(READY) ## the main job end to end, on a generated dataset whose right answer is known
	$(BIN)/eyrie pipeline $(PRESET)

test: $(READY) lint types ## lint, types and all tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(READY) ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict
	$(BIN)/mypy

serve: $(READY) ## Prefect, MLflow and a worker on this machine; PROFILE=postgres keeps their records in PostgreSQL
	$(BIN)/eyrie serve --profile $(PROFILE) $(OPTIONS)

kernels: $(READY) ## compile kernels again: numba does not see edits in other modules than a kernel's own
	find xcore benchmarks -name '*.nb[ic]' -delete
	$(BIN)/eyrie kernels

clean: ## remove the environment and all results
	rm -rf $(VENV) work

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,postgres,omikuji,encoder,transformer,memory]'
	$(BIN)/eyrie kernels
	touch $@
