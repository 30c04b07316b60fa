.PHONY: reproduce test lint docs benchmark weights clean

PYTHON ?= python3
BIN := .venv/bin

reproduce: .venv/installed
	$(BIN)/aenp reproduce gp

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

GP := tnp-none tnp-exact tnp-approx convcnp-exact convcnp-approx relaxedconvcnp-approx equivcnp-exact equivcnp-approx

weights: $(GP:%=runs/gp/%/model.json)
	$(BIN)/python -m aenp.shipping $(GP:%=runs/gp/%)

.PRECIOUS: runs/gp/%/model.json
runs/gp/%/model.json: | .venv/installed
	$(BIN)/aenp train gp --model $(word 1,$(subst -, ,$*)) --symmetry $(word 2,$(subst -, ,$*)) \
		$(if $(wildcard runs/gp/$*/run.json),--resume,--threads 1)

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[all]'
	touch .venv/installed

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
