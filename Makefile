# Every target sets up what it needs, so each of them can be the first command in a fresh clone.
#
#   make demo     train a small network on the PJRT device      make lint     formatters, linters, layer checks
#   make test     test-cpp, test-py and test-ops                make format   rewrite sources in the agreed format
#   make test-chips  every operator's programs for chips that are not here
#   make test-full  every sample of the operator board (hours)  make board    write down what the board finds
#   make build    compile into python/torch_pjrt                make clean    remove what was built
#   make bench    benchmarks                                    make wheel    build dist/*.whl
#
# Variables: PYTHON (interpreter for .venv), BUILD (build folder), CMAKE_FLAGS (only read when BUILD is configured), JOBS,
# ARGS (passed to the demo, the benchmarks or pytest).

PYTHON ?= python3
BUILD ?= build
CMAKE_FLAGS ?=
JOBS ?= $(shell nproc)
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
CXX_FILES = $(shell find csrc tests/cpp benchmarks -name '*.h' -o -name '*.cpp')

# The first plugin is the default one; the C++ tests run on both.
PLUGIN_PACKAGES := lammps_jax_pjrt_cpu fastatomstruct_xla_cpu

# The operator board in parts: a process has room for about 20,000 programs of a CPU plugin (vm.max_map_count).
define run_board
@failed=; for part in 0 1 2; do \
  $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q --durations 12 tests/ops --board-part $$part $(1) || failed=1; \
done; [ -z "$$failed" ]
endef

.PHONY: demo test test-cpp test-py test-ops test-chips test-full board bench build configure setup lint format wheel lock clean
.DELETE_ON_ERROR:

demo: build
	$(BIN)/python examples/digits.py $(ARGS)

test: build
	@failed=; \
	for part in test-cpp test-py test-ops; do $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	if [ -n "$$failed" ]; then echo "make test: FAILED:$$failed"; exit 1; fi; \
	echo "make test: all passed"

test-cpp: build
	@if [ ! -x $(BUILD)/tests/cpp/tpj_tests ]; then \
	  echo "The C++ tests were not built. They need GoogleTest (Debian: apt-get install libgtest-dev; make configure)."; exit 1; fi
	@for package in $(PLUGIN_PACKAGES); do \
	  plugin=$$($(BIN)/python tools/find_plugin.py $$package) || exit 1; \
	  echo "C++ tests with $$plugin"; \
	  TORCH_PJRT_TEST_PLUGIN=$$plugin $(BIN)/ctest --test-dir $(BUILD) --output-on-failure --no-tests=error || exit 1; \
	done

# The fuzz tests by themselves: a process has room for about 20,000 programs. 5: ARGS left nothing of a part.
test-py: build
	@failed=; for part in "--ignore-glob=*_fuzz.py" "tests/python/test_operator_fuzz.py tests/python/test_view_fuzz.py"; do \
	  $(BIN)/python -m pytest -n $(JOBS) $$part $(ARGS) || [ $$? -eq 5 ] || failed=1; \
	done; [ -z "$$failed" ]

# Its processes share what they compile; nothing stays for the next run.
test-ops: build
	@rm -rf $(BUILD)/board-programs
	$(call run_board,)
	@rm -rf $(BUILD)/board-programs
test-ops: export TORCH_PJRT_CACHE := $(abspath $(BUILD))/board-programs

# The whole operator board, not a subset of its samples. A run that was stopped, or failed, goes on with what is left.
test-full: build
	$(call run_board,--board full --board-resume $(BUILD)/board-passed.txt)
	rm $(BUILD)/board-passed.txt

# For chips that are not here: which plugins load, whole training steps, and every operator's programs, which first run on
# the CPU plugin with the chip's limits.
test-chips: build $(BUILD)/plugins/.installed
	$(BIN)/python tests/chips/load.py $(BUILD)/plugins
	PYTHONPATH=$(BUILD)/plugins $(BIN)/python tests/chips/steps.py tpu:v5e:1x1 tpu:v6e:1x1 tpu:tpu7x cuda:h100
	rm -rf $(BUILD)/chips
	$(BIN)/python tests/chips/collect.py $(BUILD)/chips --plugin tpu --processes $(JOBS)
	@failed=; for target in tpu:v5e tpu:v6e; do \
	  $(BIN)/python tests/chips/programs.py --target $$target $(BUILD)/chips || failed=1; \
	done; \
	for profile in tpu neuron slim; do $(BIN)/python tests/chips/suite.py $$profile || failed=1; done; [ -z "$$failed" ]

$(BUILD)/plugins/.installed: requirements-chips.txt $(VENV)/.installed
	rm -rf $(BUILD)/plugins
	$(BIN)/python -m pip install --quiet --no-deps --target $(BUILD)/plugins -r requirements-chips.txt
	@touch $@

# tests/ops/expected.tsv and the reference page, from a fresh run; look at the difference before you commit it.
board: build
	rm -rf $(BUILD)/board && mkdir -p $(BUILD)/board
	$(call run_board,--board-results $(BUILD)/board)
	$(BIN)/python tests/ops/expected.py $(BUILD)/board/*.jsonl
	$(BIN)/python tools/operators_page.py

bench: build
	$(BIN)/python -m benchmarks $(ARGS)

lint: $(VENV)/.installed
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy tools python/torch_pjrt
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_vendor_words.py
	$(BIN)/python tools/operators_page.py --check

format: $(VENV)/.installed
	$(BIN)/clang-format -i $(CXX_FILES)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

build: $(VENV)/.editable $(BUILD)/build.ninja
	$(BIN)/ninja -C $(BUILD) -j $(JOBS)

configure: $(VENV)/.installed
	$(BIN)/cmake -G Ninja -S . -B $(BUILD) -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DPython3_EXECUTABLE=$(CURDIR)/$(BIN)/python $(CMAKE_FLAGS)

$(BUILD)/build.ninja: $(VENV)/.installed
	$(MAKE) --no-print-directory configure

# Like `pip wheel .`, but with the torch and the build tools of .venv instead of a fresh download of them.
wheel: $(VENV)/.installed
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .

# System packages, then the virtual environment. The stamp makes it free when nothing changed.
setup: $(VENV)/.installed
$(VENV)/.installed: requirements.txt requirements-dev.txt requirements-plugins.txt requirements-lock.txt
	@PYTHON="$(PYTHON)" bash tools/system_packages.sh
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c requirements-lock.txt -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-plugins.txt
	@touch $@

# An editable install without a build: entry points, and a path to python/. `make build` puts the module there.
$(VENV)/.editable: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --config-settings wheel.cmake=false --editable .
	@touch $@

lock: $(VENV)/.installed
	(head -1 requirements-lock.txt; $(BIN)/python -m pip list --format=freeze --exclude pip --exclude torch_pjrt \
	  --exclude lammps-jax-pjrt-cpu --exclude fastatomstruct-xla-cpu --exclude libtpu --exclude-editable | sed 's/+cpu$$//') > $(VENV)/lock.txt
	mv $(VENV)/lock.txt requirements-lock.txt

clean:
	rm -rf $(BUILD) dist python/torch_pjrt/_C.*.so
