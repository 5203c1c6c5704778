# `make run` answers from the model that ships, `make quick` runs most tests and `make test` all; each
# sets itself up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTHON_FOLDERS := sharpi tests docs bench-scripts models
NATIVE := 'kernels/*.h' 'kernels/*.cpp' 'kernels/*.cu' 'kernels/*.cuh' 'tests/*.h' 'tests/*.cpp'
SOURCES := $(shell find kernels -type f 2>/dev/null) pyproject.toml

.PHONY: run test quick speed check format docs references clean

run: $(VENV)/.installed
	@$(BIN)/sharpi run

# With bytecode kept: else every worker, and every program that a test starts, compiles sharpi anew.
test quick speed: export PYTHONDONTWRITEBYTECODE =

# As many processes as there are cores.
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n auto --dist worksteal

# The inner loop: no emulated GPU, ARM or older x86-64, no browser, nothing that takes many seconds.
quick: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n auto --dist worksteal \
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

# Installed in place; built again only when kernels or the project file change.
$(VENV)/.installed: $(SOURCES)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing sharpi into $(VENV) (once)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[serve]'
	@touch $@

# NVRTC compiles the CUDA kernels in the tests; it needs no GPU.
$(VENV)/.installed-test: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "pytest>=8" "pytest-xdist>=3" "hypothesis>=6" \
	  "nvidia-cuda-nvrtc>=13" "nvidia-cuda-runtime>=13" \
	  "starlette>=0.45" "uvicorn>=0.34" "prometheus-client>=0.21" "llguidance>=1.0" "huggingface_hub>=1.0" \
	  httpx openai anthropic
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-test
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "mypy>=1.13" "ruff>=0.8" "import-linter>=2" \
	  "clang-format==23.1.5"
	@touch $@

REFERENCES := .references-venv

# The small models that transformers is run on, made anew in their own environment.
references: $(REFERENCES)/.installed
	$(REFERENCES)/bin/python tests/references/make_references.py --llama-cpp $(REFERENCES)/llama.cpp

# The converter comes out of a source distribution; nothing of it is built.
$(REFERENCES)/.installed: tests/references/requirements.txt
	$(PYTHON) -m venv $(REFERENCES)
	$(REFERENCES)/bin/pip install --quiet -r $<
	$(REFERENCES)/bin/pip download --quiet --no-deps --no-binary llama-cpp-python -d $(REFERENCES) \
	  llama-cpp-python==0.3.36
	mkdir -p $(REFERENCES)/llama.cpp
	tar -xzf $(REFERENCES)/llama_cpp_python-0.3.36.tar.gz -C $(REFERENCES)/llama.cpp \
	  --strip-components=3 --wildcards '*/vendor/llama.cpp/conversion/*' '*/vendor/llama.cpp/gguf-py/*'
	@touch $@

clean:
	rm -rf $(VENV) build
