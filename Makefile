.PHONY: reproduce test test-slow lint docs families benchmark weights clean

PYTHON ?= python3
BIN := .venv/bin

reproduce: .venv/installed  # with DATA=DIR, as docs/era5.md describes it, the temperatures too
	$(BIN)/aenp reproduce $(if $(DATA),--data $(DATA))

test: .venv/installed
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

test-slow: .venv/installed  # signatures are checked by the quick tests
	JAXTYPING_DISABLE=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m slow

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: .venv/installed
	$(BIN)/python -m benchmarks

docs: .venv/installed  # with TUTORIALS=all, the tutorials that train models are run too
	$(BIN)/python -m sphinx -q -W --keep-going docs docs/_build/html

families: .venv/installed
	$(BIN)/aenp families > docs/models.md

weights: .venv/installed  # with DATA=DIR, as docs/era5.md describes it, the temperature models too
	$(BIN)/aenp data smoke --num 6000 --out smoke.zarr
	$(BIN)/python -m aenp.experiments.shipping $(if $(DATA),--data $(DATA))

.venv/installed: pyproject.toml constraints.txt src/aenp/nn/kernels.c
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[all]'
	touch .venv/installed

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache docs/_build docs/generated
