# make demo        sets everything up and runs the main job
# make test        sets everything up and passes the tests; test-slow, test-gpu: the slow ones, those that need a GPU
# make lint        ruff and mypy
# make parity      every documented name of OneFlow against torch, as a page in parity_output/
# make fuzz        random training programs, eager against nn.Graph: SEEDS=0:100 BACKEND=inductor
# make bench       the benchmarks; bench-gpu: of the custom operators on a GPU
# make clean       removes what the others made
# PYTHON=python3.12 chooses the interpreter; TORCH_INDEX=URL an index of CPU wheels of torch.
PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
JOBS    ?= 2
SEEDS   ?= 0:20
BACKEND ?= inductor
export OMP_NUM_THREADS ?= 1

.PHONY: demo help test test-slow test-gpu lint parity fuzz bench clean cuda-compile-check test-sanitize bench-gpu

demo: $(VENV)/.extras
	OMP_NUM_THREADS=2 $(BIN)/python docs/examples/train_digits.py

help:
	@sed -n 's/^# //p; /^PYTHON/q' Makefile

test: $(VENV)/.extras
	$(BIN)/python -m pytest -m "not slow and not gpu and not oracle and not network" -n $(JOBS)

test-slow: $(VENV)/.extras
	$(BIN)/python -m pytest -m "slow and not gpu and not network" -n $(JOBS)

# Works without a network where the interpreter has torch, pytest and hypothesis already.
test-gpu: $(VENV)/.package
	$(BIN)/python -c "import pytest, hypothesis" 2>/dev/null || $(PIP) install pytest hypothesis
	$(BIN)/python -m pytest -m gpu $$(grep -rl --include='test_*.py' 'mark\.gpu' tests)

lint: $(VENV)/.extras
	$(PIP) install ruff mypy
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

parity: $(VENV)/.extras
	$(BIN)/python tests/parity/run.py --out parity_output

fuzz: $(VENV)/.extras
	$(BIN)/python tests/fuzz/fuzz.py --seeds $(SEEDS) --backend $(BACKEND)

bench: $(VENV)/.extras
	OMP_NUM_THREADS=2 $(BIN)/python tests/benchmarks/overhead.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/graph.py
	OMP_NUM_THREADS=2 $(BIN)/python tests/benchmarks/ops.py
	OMP_NUM_THREADS=2 $(BIN)/python tests/benchmarks/legacy.py

# A torch that the interpreter has already is used as it is, with the packages beside it; otherwise the pinned one is installed.
$(VENV)/.torch:
	@echo "setting up $(VENV) (once)"
	if $(PYTHON) -c "import torch" 2>/dev/null; then \
	  $(PYTHON) -m venv --system-site-packages $(VENV) || $(PYTHON) -m venv --system-site-packages --without-pip $(VENV); \
	  $(BIN)/python -c "import torch" 2>/dev/null || $(PYTHON) -c "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))" \
	    > "$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/of_the_interpreter.pth"; \
	else $(PYTHON) -m venv $(VENV); fi
	$(BIN)/python -c "import wheel, ninja, numpy; from importlib.metadata import version; assert int(version('setuptools').split('.')[0]) >= 68" 2>/dev/null \
	  || $(PIP) install "setuptools>=68,<81" wheel ninja numpy
	$(BIN)/python -c "import torch" 2>/dev/null || $(PIP) install $(TORCH) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	touch $@

$(VENV)/.package: $(VENV)/.torch setup.py pyproject.toml $(wildcard csrc/*.py csrc/*.cpp csrc/*/*.cpp csrc/*/*.h csrc/*.h)
	@echo "building the package"
	-$(BIN)/python csrc/build.py
	ONEFLOW_BUILD_EXT=0 $(PIP) install --no-build-isolation --no-deps -e .
	touch $@

# flowvision and vit-pytorch name requirements that have no CPU build; what they use of them is listed here.
$(VENV)/.extras: $(VENV)/.package requirements-test.txt
	@echo "installing what the demo and the tests use"
	$(PIP) install -r requirements-test.txt
	$(PIP) install --no-deps --no-build-isolation flowvision==0.2.2 vit-pytorch
	touch $@

# The custom operators: compile the CUDA kernels where nvcc is but no GPU; run their tests under the address and undefined-behaviour sanitizers.
cuda-compile-check: $(VENV)/.torch
	$(BIN)/python csrc/build.py --cuda-check

test-sanitize: $(VENV)/.extras
	$(BIN)/python csrc/build.py --sanitize
	$(BIN)/python tests/ops/cuda_on_cpu/translate.py --sanitize
	for library in build/_ext_sanitized.so build/_ext_cuda_on_cpu_sanitized.so; do \
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1 \
	ONEFLOW_EXT_PATH=$$library $(BIN)/python -m pytest tests/ops -k "not opcheck and not compile" || exit 1; done

bench-gpu: $(VENV)/.package
	$(BIN)/python tests/benchmarks/ops.py --device cuda

clean:
	rm -rf $(VENV) build dist *.egg-info demo_output parity_output fuzz_output
