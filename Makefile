.PHONY: reproduce test lint docs benchmark clean

PYTHON ?= python3
BIN := .venv/bin

reproduce: .venv/installed
	@echo "aenp is installed; no experiment is shipped yet. 'make test' checks the models."
	@$(BIN)/aenp --version

test: .venv/installed
	$(BIN)/python -m pytest -q -n 2

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: .venv/installed
	$(BIN)/python -m benchmarks

docs: .venv/installed
	$(BIN)/aenp families > docs/models.md

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[all]'
	touch .venv/installed

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
