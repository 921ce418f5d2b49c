# The words of this project, the same at the desk and in continuous integration. `make help` lists them.

BIN := .venv/bin
# Tests run side by side in this many processes; most of their time they wait for others.
JOBS ?= 3
# Parts to leave out, with their tests: cluster (needs etcd and kube-apiserver), sprites (needs Linux namespaces), chart
# (needs helm, kube-score and kube-controller-manager), prometheus (needs Debian's package), image (needs
# buildah and mmdebstrap), browser (needs Chromium; left out with cluster or sprites as well, which its tests need too).
WITHOUT ?=
# Where the bill of materials goes. It names where packages come from, so it is built and not committed.
SBOM ?= build/sbom.json

LEFT_OUT := $(WITHOUT) $(if $(filter cluster sprites,$(WITHOUT)),browser)
PARTS := base $(filter-out $(LEFT_OUT),browser image prometheus sprites)
BLANK := $(subst x,,x x)
KEPT := not $(subst $(BLANK), and not ,$(strip $(WITHOUT)))
UNKNOWN_PARTS := $(filter-out browser chart cluster image prometheus sprites,$(WITHOUT))
ifneq ($(UNKNOWN_PARTS),)
$(error WITHOUT may name browser, chart, cluster, image, prometheus and sprites, not: $(UNKNOWN_PARTS))
endif

.PHONY: help venv check format test cluster crds config matrix picture demo lab bench lock sbom binaries sdks packages world clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## List these words.
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1@\2/p' Makefile | while IFS='@' read -r word line; do \
		printf '%-16s %s\n' "$$word" "$$line"; done

venv: .venv/.ready ## Make the virtual environment .venv, hash-pinned.

.venv/.ready: pyproject.toml requirements/dev.txt requirements/uv.txt .ci/venv .ci/python
	@.ci/packages
	@.ci/venv

check: venv ## Lint, types, floors, the Dockerfile, and that generated files are unchanged.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house.generated --check
	$(BIN)/hadolint Dockerfile

format: venv ## Format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: packages venv binaries sdks ## Run every test, also on the real API server (WITHOUT="cluster sprites" leaves parts out).
	$(BIN)/pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder $(if $(WITHOUT),-m "$(KEPT)")

cluster: packages venv binaries ## Run only the tests on the real API server.
	$(BIN)/pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder -m "cluster$(if $(WITHOUT), and $(KEPT))"

crds: venv ## Write the generated files again: crds/, its copy in charts/, and pages of docs/.
	$(BIN)/python -m tests.house.generated

config: venv ## Write config/base/operator.yaml again, from the chart by helm.
	$(BIN)/python -m tests.chart.base

matrix: packages venv binaries ## Play the fault matrix, and write docs/fault-matrix.md again.
	REWRITE_FAULT_MATRIX=1 $(BIN)/pytest tests/cluster/test_fault_matrix.py

picture: packages venv binaries ## Play the faults of the alerts, and draw the dashboard's pictures in docs/ again.
	@mkdir -p build/picture
	$(BIN)/python -m tests.metrics.picture build/picture/seen.json
	$(BIN)/python -m venv --clear build/picture/venv
	build/picture/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/picture.txt
	build/picture/venv/bin/python -m tests.metrics.drawing build/picture/seen.json \
		charts/agentterminal-operator/files/dashboard.json docs/pictures

demo: world venv ## Watch a terminal live and die, on a real API server and with real processes.
	$(BIN)/agentterminal demo

lab: world venv ## Keep the demo's world running in the foreground.
	$(BIN)/agentterminal lab

bench: world venv ## Measure the operator, and write build/bench.json.
	$(BIN)/agentterminal bench

sbom: venv ## Write the bill of materials of what runs in production: build/sbom.json.
	@mkdir -p $(dir $(SBOM))
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --of JSON --output-reproducible -o $(SBOM) requirements/runtime.txt

lock: venv ## Pin the dependencies again, by hash: requirements/.
	build/bootstrap/bin/uv pip compile -q --generate-hashes --python-version 3.11 --no-header --no-annotate \
		-o requirements/runtime.txt pyproject.toml
	build/bootstrap/bin/uv pip compile -q --generate-hashes --python-version 3.11 --no-header --no-annotate \
		--extra lab --group dev -o requirements/dev.txt pyproject.toml
	build/bootstrap/bin/uv pip compile -q --generate-hashes --python-version 3.11 --no-header --no-annotate \
		--group picture -o requirements/picture.txt
	echo hatchling | build/bootstrap/bin/uv pip compile -q --generate-hashes --python-version 3.11 --no-header \
		--no-annotate -c requirements/dev.txt -o requirements/build.txt -

packages:
	@.ci/packages $(PARTS)

# The demo's world has sprites; what only tests need is not asked of whoever wants to see it.
world:
	@.ci/packages $(filter base sprites,$(PARTS))

binaries: venv
ifeq ($(filter cluster,$(WITHOUT)),)
	@$(BIN)/agentterminal control-plane --fetch
	@$(BIN)/python -m tests.gitops.judges
ifeq ($(filter chart,$(WITHOUT)),)
	@$(BIN)/agentterminal control-plane --fetch --controller-manager
endif
endif
ifeq ($(filter chart,$(WITHOUT)),)
	@$(BIN)/python -m tests.chart.helm
	@$(BIN)/python -m tests.chart.scoring
endif

sdks: venv
ifeq ($(filter sprites,$(WITHOUT)),)
	@.ci/packages sdks
	@$(BIN)/python -m tests.sdk.node
endif

clean: ## Remove the environment and everything that was built.
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
