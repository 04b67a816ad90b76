# Settings, as `make test PYTHON=python3.12 JOBS=4`:
#   PYTHON       the interpreter of the virtual environment (python3)
#   VENV         the folder of the virtual environment (.venv)
#   TORCH        the requirement that installs torch, if the interpreter has none
#   TORCH_INDEX  an additional package index for torch, for example of CPU wheels
#   JOBS         processes that run tests (2)
#   PYTHONS, TORCHS  what `make test-pythons` runs on
#   RESULTS, SCOPE   the JUnit file that the tests write, and the name of what ran, for `make record-results`
#   SEEDS, SECONDS            of the fuzzers: seeds A:B, the time limit of each
#   BACKEND                   the nn.Graph backend of the fuzzers and of families
#   GROUP                     how many programs of fuzz-memory and fuzz-samples compile in one graph
#   SOURCES, SUITES           the folder of checkouts for upstream, and the suites that run (all that are there)
#   SEED                      which tests upstream-sample runs (0)
#   MODE                      what fuzz-guards compares with eager: a backend, or compiled (torch.compile)
PYTHON  ?= python3
VENV    ?= .venv
TORCH   ?= torch==2.13.0
JOBS    ?= 2
PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.14
TORCHS  ?= torch==2.11.* torch==2.13.* torch
RESULTS ?=
SCOPE   ?= the whole suite
SEEDS   ?= 0:20
SECONDS ?= 300
BACKEND ?= inductor
GROUP   ?= 32
MODE    ?= aten
SEED    ?= 0
SOURCES ?=
SUITES  ?=
BIN     := $(VENV)/bin
PIP     := PYTHONUNBUFFERED=1 $(BIN)/python -m pip --disable-pip-version-check
# pip's output as one line that shows the package at work; errors go to stderr.
SHOW    := | awk '/^Collecting/ {printf "\r\033[K  %d: %s", ++n, $$2; fflush()} END {if (n) print ""}'
SHELL   := /bin/bash
.SHELLFLAGS := -eo pipefail -c
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo quick test test-slow test-gpu test-core test-smoke record-results test-no-compiler test-libraries test-pythons test-sanitize lint shape typecheck stubs docs mutants parity \
  check-fake fuzz fuzz-memory fuzz-samples fuzz-guards fuzz-steps fuzz-files fuzz-ops fuzz-ranks fuzz-interrupts third-party families bench bench-gpu cuda-compile-check torch-changes upstream upstream-sample lock clean

help: ## list the targets and settings
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 28
	@echo; sed -n '/^# Settings/,/^PYTHON/s/^# *//p' Makefile

# The tests for a change of the engine. The files left out start many processes, or run hundreds of programs.
QUICK := tests/core tests/graph/guards tests/graph/calls tests/graph/passes tests/graph/capture \
  tests/amp tests/autograd tests/clients/test_graph_surface.py tests/data/test_loader.py tests/docs/test_environment.py \
  tests/embedding/test_one_embedding.py tests/files/test_save_targets.py tests/graph/backends/test_blocks.py \
  tests/graph/saved/test_saved_schedules.py tests/graph/sizes/test_dynamic_dimensions.py \
  tests/graph/training/test_training_semantics.py tests/legacy/test_legacy_equals_graph.py tests/nn/test_nn_callers.py \
  tests/ops/test_ops_registration.py tests/optim/test_lr_scale.py tests/report tests/scan/test_scan_findings.py \
  tests/tools/test_shape.py
QUICK_OUT := $(addprefix --ignore=tests/,core/test_drop_in.py core/test_missing_names.py core/test_mock_torch.py \
  core/test_package.py graph/calls/test_effects.py graph/calls/test_stored_values.py \
  graph/capture/test_failed_capture_memory.py graph/capture/test_interrupted_capture.py graph/passes/test_rewrites_step.py)

quick: $(VENV)/.extras ## run the tests of the engine and a sample of the others, without the C++ compiler (3 minutes on 2 cores)
	CXX=no-compiler $(BIN)/python -m pytest $(QUICK) $(QUICK_OUT) -m "not slow and not gpu and not oracle and not network" \
	  -n $(JOBS)

demo: $(VENV)/.extras ## set everything up and train a model on digits, eager and as one program
	$(BIN)/python docs/examples/train_digits.py

test: $(VENV)/.extras ## set everything up and run the tests
	$(BIN)/python -m pytest -m "not slow and not gpu and not oracle and not network" -n $(JOBS) \
	  $(if $(RESULTS),--junitxml=$(RESULTS))

test-smoke: $(VENV)/.extras ## run what a new torch or Python breaks first: the core tests, the guards of graphs, the first example
	$(BIN)/python docs/examples/first_graph.py
	$(BIN)/python -m pytest tests/core tests/graph/guards -m "not slow and not gpu and not oracle and not network" \
	  -n $(JOBS) $(if $(RESULTS),--junitxml=$(RESULTS))

record-results: $(VENV)/.package ## record what a test run found, from RESULTS; SCOPE names the tests
	$(BIN)/python tests/tools/record_results.py $(RESULTS) --scope "$(SCOPE)"

test-slow: $(VENV)/.extras ## run the slow tests
	$(BIN)/python -m pytest -m "slow and not gpu and not network" -n $(JOBS)

# Works without a network if the interpreter has torch, pytest and hypothesis already.
test-gpu: $(VENV)/.package ## run the tests that need a CUDA device
	$(BIN)/python -c "import pytest, hypothesis" 2>/dev/null || $(PIP) install -q pytest hypothesis
	$(BIN)/python -m pytest -m gpu $$(grep -rl --include='test_*.py' 'mark\.gpu' tests)

test-sanitize: $(VENV)/.extras ## run the tests of the custom operators under the address and undefined-behavior sanitizers
	$(BIN)/python csrc/build.py --sanitize
	$(BIN)/python tests/ops/cuda_on_cpu/translate.py --sanitize
	for library in build/_ext_sanitized.so build/_ext_cuda_on_cpu_sanitized.so; do \
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1 \
	ONEFLOW_EXT_PATH=$$library $(BIN)/python -m pytest tests/ops -k "not opcheck and not compile" || exit 1; done

test-no-compiler: $(VENV)/.extras ## run tests without the custom kernels and without a C++ compiler
	ONEFLOW_EXT=0 CXX=no-compiler $(BIN)/python -m pytest tests/core tests/optim -m "not slow and not gpu and not network" -n $(JOBS)

test-libraries: $(VENV)/.extras ## test NumPy, JAX, MLX and an extension of torch with AutoTest, as the examples do
	$(PIP) install jax "mlx[cpu]" $(SHOW)
	$(BIN)/python -m pytest docs/examples/libraries

test-pythons: ## run all tests on each Python of PYTHONS with each torch of TORCHS, and record them (downloads torch for each)
	for python in $(PYTHONS); do for torch in $(TORCHS); do \
	  for target in test record-results; do \
	    $(MAKE) $$target PYTHON=$$python TORCH="$$torch" VENV=".venv-$$(basename $$python)-$$torch" RESULTS=build/results.xml \
	    || exit 1; done; done; done

test-core: $(VENV)/.extras ## run the core tests and the first example
	$(BIN)/python docs/examples/first_graph.py
	$(BIN)/python -m pytest tests/core tests/optim -m "not slow and not gpu and not network" -n $(JOBS)

lint: $(VENV)/.extras ## check the code with ruff, mypy and import-linter
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check oneflow_compat autotest tests csrc/build.py setup.py
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-cache

shape: $(VENV)/.extras ## print size, complexity, vague names, import rings
	$(BIN)/python tests/tools/shape.py --rings

typecheck: $(VENV)/.extras ## check with Pyright that editors know the public names and accept the examples
	$(BIN)/python -m pytest -m network tests/typing

stubs: $(VENV)/.extras ## write the type stubs (*.pyi) of the public modules
	$(BIN)/python -W ignore tests/tools/make_stubs.py

docs: $(VENV)/.extras ## build the documentation site in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open build/site/index.html"

mutants: $(VENV)/.extras ## plant bugs of fourteen kinds, and count those that a default test of AutoTest finds
	OMP_NUM_THREADS=1 $(BIN)/python tests/autotest/mutants/run.py

parity: $(VENV)/.extras ## compare every documented OneFlow name with torch; writes a page to parity_output/
	$(BIN)/python tests/parity/run.py --out parity_output

check-fake: $(VENV)/.extras ## compare the results that a capture records with those of torch's kernels, for the samples of op_db
	@for dtype in float32 float16 bfloat16; do \
	  echo "$$dtype: "; $(BIN)/python tests/tools/check_fake.py --dtype $$dtype; done

fuzz: $(VENV)/.extras ## train random programs, eager against nn.Graph
	$(BIN)/python tests/fuzz/fuzz.py --seeds $(SEEDS) --backend $(BACKEND)

fuzz-memory: $(VENV)/.extras ## train random programs that write memory in place, GROUP of them in one graph
	$(BIN)/python tests/fuzz/fuzz.py --programs memory --group $(GROUP) --seeds $(SEEDS) --backend $(BACKEND)

fuzz-samples: $(VENV)/.extras ## train on all samples of torch's operators (seeds), GROUP of them in one graph
	$(BIN)/python tests/fuzz/fuzz_samples.py --group $(GROUP) --seeds $(SEEDS) --backend $(BACKEND)

fuzz-guards: $(VENV)/.extras ## change one fact between two calls of random programs, eager against nn.Graph or torch.compile
	$(BIN)/python tests/fuzz/fuzz_guards.py --seeds $(SEEDS) --mode $(MODE)

fuzz-steps: $(VENV)/.extras ## run random training steps through flow.compile_step, and compare all state with eager mode
	$(BIN)/python tests/fuzz/fuzz_steps.py --seeds $(SEEDS) --backend $(BACKEND)

fuzz-files: $(VENV)/.extras ## load hostile and damaged files of every format, each in a child process
	$(BIN)/python tests/fuzz/fuzz_files.py --seeds $(SEEDS) --seconds $(SECONDS)

fuzz-ops: $(VENV)/.extras ## call every custom operator with random arguments, in child processes
	$(BIN)/python tests/fuzz/fuzz_ops.py --seeds $(SEEDS) --seconds $(SECONDS)

fuzz-ranks: $(VENV)/.extras ## let one rank raise, disagree, be late or die in every collective call
	$(BIN)/python tests/fuzz/fuzz_ranks.py --ranks 2 4 --seeds $(SEEDS) --seconds $(SECONDS)

fuzz-interrupts: $(VENV)/.extras ## interrupt calls of graphs at random moments, in child processes
	$(BIN)/python tests/fuzz/fuzz_interrupts.py --seeds $(SEEDS) --backend $(BACKEND) --seconds $(SECONDS)

third-party: $(VENV)/.extras ## run programs of other packages, eager and as graphs, and print a table
	OMP_NUM_THREADS=2 $(BIN)/python tests/clients/third_party.py

families: $(VENV)/.extras ## train families of models at five sizes each, eager and as graphs, and print a table
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore tests/clients/dynamic_families.py --backend $(BACKEND)

bench: $(VENV)/.extras ## run the benchmarks
	OMP_NUM_THREADS=2 $(BIN)/python tests/benchmarks/overhead.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/graph.py
	OMP_NUM_THREADS=2 $(BIN)/python tests/benchmarks/ops.py
	OMP_NUM_THREADS=2 $(BIN)/python tests/benchmarks/legacy.py

bench-gpu: $(VENV)/.package ## run the benchmarks of the custom operators on a GPU
	$(BIN)/python tests/benchmarks/ops.py --device cuda

cuda-compile-check: $(VENV)/.torch ## compile the CUDA kernels on a machine with nvcc but without a GPU
	$(BIN)/python csrc/build.py --cuda-check

torch-changes: ## compare two installed torches in what the package relies on: OLD=interpreter NEW=interpreter
	$(PYTHON) tests/tools/torch_changes.py $(OLD) $(NEW)

upstream: $(VENV)/.extras ## run other projects' tests under the drop-in import, and compare each test with plain torch: SOURCES=folder
	$(BIN)/python tests/upstream/upstream_run.py "$(SOURCES)" --jobs $(JOBS) $(if $(SUITES),--suite $(SUITES))

upstream-sample: $(VENV)/.extras ## compare eager mode and compiled steps with torch on the tables in its wheel: SEED=number SECONDS=600
	$(BIN)/python tests/upstream/upstream_run.py --jobs $(JOBS) --seconds $(SECONDS) --seed $(SEED)

lock: $(VENV)/.torch ## pin the requirements of the tests anew, for all supported Pythons
	$(PIP) install -q uv
	$(BIN)/python -m uv pip compile requirements-test.in --universal --python-version 3.10 -q --no-header --no-annotate -o requirements-test.txt

clean: ## remove everything that the other targets made
	rm -rf $(VENV) build dist *.egg-info demo_output parity_output fuzz_output autotest_failures

# If the interpreter has torch, that torch is used, with the packages beside it. Otherwise the pinned one is installed.
$(VENV)/.torch:
	@echo "setting up $(VENV) (once): torch, then the package, then what the demo and the tests use"
	@if $(PYTHON) -c "import torch" 2>/dev/null; then \
	  $(PYTHON) -m venv --system-site-packages $(VENV) || $(PYTHON) -m venv --system-site-packages --without-pip $(VENV); \
	  $(BIN)/python -c "import torch" 2>/dev/null || \
	    $(PYTHON) -c "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))" \
	    > "$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/of_the_interpreter.pth"; \
	else $(PYTHON) -m venv $(VENV); fi
	@$(BIN)/python -c "import wheel, ninja, numpy; from importlib.metadata import version; \
	  assert int(version('setuptools').split('.')[0]) >= 77" 2>/dev/null \
	  || $(PIP) install "setuptools>=77,<81" wheel ninja numpy $(SHOW)
	@$(BIN)/python -c "import torch" 2>/dev/null \
	  || $(PIP) install $(TORCH) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) $(SHOW)
	@touch $@

$(VENV)/.package: $(VENV)/.torch setup.py pyproject.toml $(wildcard csrc/*.py csrc/*.cpp csrc/*/*.cpp csrc/*/*.h csrc/*.h)
	@echo "building the package"
	-$(BIN)/python csrc/build.py
	@ONEFLOW_BUILD_EXT=0 $(PIP) install -q --no-build-isolation --no-deps -e .
	@touch $@

# flowvision and vit-pytorch name requirements that have no CPU build, so they are installed without any.
$(VENV)/.extras: $(VENV)/.package requirements-test.txt
	@echo "installing what the demo and the tests use"
	@$(PIP) install -r requirements-test.txt $(SHOW)
	@$(PIP) install --no-deps --no-build-isolation flowvision==0.2.2 vit-pytorch==1.26.11 $(SHOW)
	@touch $@
