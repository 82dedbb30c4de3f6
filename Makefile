# One word for each thing to do; every target sets up what it needs and is quick the second time.
.DEFAULT_GOAL := help
.PHONY: help demo test system-test browser-test screenshots training-test elastic-test cluster-test oldest-test matrix e2e image-test kubeedge docs fuzz simulate mutate decode nightly soak lint types crds bench figures dist release-check caches clean lock

PYTHON ?= python3
# Tests start hundreds of Python programs. Without bytecode files each one compiles its modules anew.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
USE := $(VENV)/.runtime
DEVELOP := $(VENV)/.develop

help: ## Show this
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 24

demo: $(USE) ## Watch joint inference at work: a cloud, two edge nodes, real data
	@$(BIN)/edgeai demo joint-inference

# Tests mostly wait, so there are more of them at a time than the least number of cores.
AT_A_TIME := --numprocesses 3 --dist loadfile
RUNTIMES := pytorch tensorflow kubeflow-training sedna-client
OLDEST := $(notdir $(firstword $(sort $(wildcard tests/kubernetes/1.*))))

# None of these tests leaves the machine. Every program that imports aiohttp reads the certificates of
# the machine, which takes a tenth of a second, a quarter of what most programs here need to start.
test system-test browser-test: export SSL_CERT_FILE := /dev/null
# With a thread for each core, numpy takes half as long again to import, and threads wait for each other.
test system-test browser-test: export OMP_NUM_THREADS := 1
test system-test browser-test: export OPENBLAS_NUM_THREADS := 1
test system-test browser-test: export LOCALCLUSTER_POD_ENV := SSL_CERT_FILE=/dev/null,OMP_NUM_THREADS=1,OPENBLAS_NUM_THREADS=1
test: $(DEVELOP) ## Run the tests
	@# What cannot be had here is said, and its tests are skipped.
	@$(BIN)/python -m tests.monitoring.prometheus || true
	@$(BIN)/python -m edgeai.cli.runtimes docs || true
	@# In their order: else the files with few tests, which take longest, would come last.
	@$(BIN)/pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder

system-test: $(DEVELOP) ## Run the tests of a whole edgeai: the demo, faults, bad input, two versions side by side
	@$(BIN)/python -m tests.monitoring.prometheus || true
	@$(BIN)/pytest tests/system $(AT_A_TIME)

training-test: $(DEVELOP) ## Run the longer tests of training, with real PyTorch, TensorFlow and the SDK of Kubeflow
	@# Installs them once. What cannot be installed here is said, and its tests are skipped.
	@$(BIN)/python -m edgeai.cli.runtimes $(RUNTIMES) || true
	@$(BIN)/pytest tests/training tests/clients -rs --numprocesses 2 --dist loadfile

elastic-test: $(DEVELOP) ## Run the tests with real Horovod; builds it once, which takes ten minutes
	@# What cannot be built here is said, and its tests are skipped.
	@$(BIN)/python -m tests.elastic.horovod || true
	@$(BIN)/pytest tests/elastic -rs

cluster-test: $(DEVELOP) ## Run the tests that need a genuine Kubernetes; makes one, the first time in minutes
	@$(BIN)/pytest tests/cluster $(AT_A_TIME)
	@$(BIN)/pytest tests/conformance --cluster=real $(AT_A_TIME)
	@$(BIN)/pytest tests/clients --cluster=real $(AT_A_TIME)

oldest-test: $(DEVELOP) ## Run the tests that watch the API on the oldest Kubernetes that edgeai supports
	@$(BIN)/python -m tests.cluster.matrix $(OLDEST) --suites=watching

matrix: $(DEVELOP) ## Run cluster-test and e2e on each version of Kubernetes that edgeai supports; takes hours
	@$(BIN)/python -m tests.cluster.matrix $(MINORS)

browser-test: $(DEVELOP) ## Walk through the console in Chromium; installs Playwright, and as root Chromium
	@# What cannot be installed here is said, and its tests are skipped.
	@$(BIN)/python -m tests.browser.chromium || true
	@$(BIN)/pytest tests/browser -rs

screenshots: export RENEW_SCREENSHOTS := 1
screenshots: $(DEVELOP) ## Make the pictures of the console in docs/ anew, by Chromium, and the recording of the demo
	@$(BIN)/python -m tests.browser.chromium
	@$(BIN)/pytest tests/browser/test_screenshots.py tests/training/test_demo_federated.py -k "picture or recording" -rs

e2e: $(DEVELOP) ## Install by docs/install.md, on nodes with real containers, and try it (as root)
	@# Before the nodes start: containers mount these directories.
	@$(BIN)/python -m edgeai.cli.runtimes $(RUNTIMES) || true
	@$(BIN)/pytest tests/e2e -rs

image-test: $(DEVELOP) ## Build the images for amd64 and arm64, and start each; arm64 under qemu (as root)
	@$(BIN)/pytest tests/images -rs

kubeedge: export KUBERNETES ?= $(OLDEST)
kubeedge: $(DEVELOP) ## Install by docs/kubeedge.md on KubeEdge, and break it; builds KubeEdge once (as root)
	@$(BIN)/pytest tests/kubeedge -rs

caches: $(DEVELOP) ## Download and build beforehand what the tests need; from nothing, takes half an hour
	@# Each says what it lacks, and so does the test that needs it.
	@failed=; for each in tests.monitoring.prometheus tests.cluster.binaries "edgeai.cli.runtimes docs $(RUNTIMES)" \
	  tests.browser.chromium tests.cluster.decoder tests.cluster.helm tests.cluster.kueue tests.e2e.images tests.elastic.horovod; \
	do $(BIN)/python -m $$each || failed=yes; done; \
	KUBERNETES=$(OLDEST) $(BIN)/python -m tests.cluster.binaries || failed=yes; test -z "$$failed"

docs: $(USE) ## Write the documentation as a site into build/site; the first time installs MkDocs
	@$(BIN)/python docs/build.py

fuzz: $(DEVELOP) ## Look for input that breaks something, FUZZ_TIMES (50) as much as in a test run
	@FUZZ_TIMES=$(or $(FUZZ_TIMES),50) $(BIN)/pytest tests/fuzz --timeout=0

simulate: $(DEVELOP) ## Simulate 200 runs of cloud and edge with faults; one again: SEED=… STEPS=…
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed=$(SEED)) $(if $(STEPS),--steps=$(STEPS))

mutate: $(DEVELOP) ## Break promises in copies of the code, and see that the simulation finds each
	@$(BIN)/python -m tests.simulation.mutations

decode: $(DEVELOP) ## Let Go clients decode what the definitions accept, OBJECTS (10000) of each kind
	@OBJECTS=$(or $(OBJECTS),10000) $(BIN)/pytest tests/cluster/test_go_clients.py

nightly: $(DEVELOP) ## Run what takes too long for each change: simulate, mutate, fuzz, decode, soak, kubeedge, image-test
	@# All of them, also after one has failed.
	@$(MAKE) --keep-going simulate mutate fuzz decode soak kubeedge image-test

soak: $(DEVELOP) ## Three replicas under churn and kills for SECONDS (1800); prints one JSON object
	@$(BIN)/python -m tests.soak $(SECONDS)

lint: $(DEVELOP) ## Check style and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

types: $(DEVELOP) ## Check types, strictly
	@$(BIN)/mypy

crds: $(DEVELOP) ## Write the definitions and rights of the chart from the types, and deploy/edgeai.yaml
	@$(BIN)/python -m globalmanager.manifests.crds deploy/chart/definitions
	@$(BIN)/python -m globalmanager.manifests.rbac deploy/chart/rules
	@$(BIN)/python -m tests.cluster.helm deploy/edgeai.yaml >/dev/null

dist: $(USE) ## Build what a release publishes into dist/: wheel, sdist, chart, plugin of kubectl; at URL for krew
	@rm -rf dist
	@$(BIN)/python deploy/dist.py dist $(URL)

release-check: $(DEVELOP) ## Run the checklist of a release
	@$(BIN)/pytest -v --durations=0 tests/deploy tests/docs/test_generated.py
	@$(BIN)/pytest -v tests/release

figures: $(USE) ## Print sizes, comments, callables and names of the source, as a table
	@$(BIN)/python tests/figures.py

bench: $(USE) ## Measure; prints one JSON object
	@$(BIN)/python -m tests.bench

clean: ## Remove what the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .edgeai build dist

# Every lock has the versions of dev.lock, which has them all; --upgrade in UV_FLAGS takes newer ones.
COMPILE = uv pip compile pyproject.toml -q --python-version 3.11 --universal --generate-hashes \
  --no-emit-index-url --no-header $(UV_FLAGS)

# The runtimes of tests and demos stand alone. Where the package index has no CPU build of torch, name
# one that has: UV_FIND_LINKS, UV_EXTRA_INDEX_URL.
COMPILE_GROUP = uv pip compile -q --python-version 3.11 --universal --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header $(UV_FLAGS)

lock: ## Resolve the dependencies anew (needs uv)
	$(COMPILE) --extra cli --extra demo --extra build --extra dev -o requirements/dev.lock
	$(COMPILE) --extra cli --extra demo --extra build -c requirements/dev.lock -o requirements/cli.lock
	$(COMPILE) --extra manager -c requirements/dev.lock -o requirements/manager.lock
	$(COMPILE) --extra edge -c requirements/dev.lock -o requirements/edge.lock
	@# A worker's image needs its extra alone, not the client.
	printf '%s\n' aiohttp pyyaml | $(COMPILE) --excludes /dev/stdin --extra worker -c requirements/dev.lock -o requirements/worker.lock
	for each in pytorch tensorflow kubeflow-training sedna-client horovod-driver browser docs go; do \
	  $(COMPILE_GROUP) --group $$each -o requirements/$$each.lock || exit; done

$(USE): requirements/cli.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit("edgeai needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=…" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing what requirements/cli.lock names into $(VENV) …"
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/cli.lock
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(DEVELOP): requirements/dev.lock $(USE)
	@echo "Installing what requirements/dev.lock names into $(VENV) …"
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@
