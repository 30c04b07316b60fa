.PHONY: reproduce test lint docs benchmark weights clean smoke.zarr

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

BOTH := convcnp-exact convcnp-approx relaxedconvcnp-approx equivcnp-exact equivcnp-approx
GP := $(addprefix runs/gp/,tnp-none tnp-exact tnp-approx $(BOTH))
PTTNP := pttnp-none pttnp-exact pttnp-approx
SMOKE := $(addprefix runs/smoke/,$(PTTNP) $(BOTH))
ifdef DATA  # as docs/era5.md describes it
ERA5 := $(addprefix runs/era5-2d/,$(PTTNP) $(BOTH)) $(addprefix runs/era5-4d/,$(PTTNP)) \
	$(addprefix runs/era5-points-2d/,$(PTTNP) convcnp-exact convcnp-approx)
endif

weights: $(GP:%=%/model.json) $(SMOKE:%=%/model.json) $(ERA5:%=%/model.json)
	$(BIN)/python -m aenp.shipping $(GP) $(SMOKE) $(if $(DATA),$(ERA5) --data $(DATA))

$(SMOKE:%=%/model.json): | smoke.zarr
smoke.zarr: | .venv/installed
	$(BIN)/aenp data smoke --num 6000 --out smoke.zarr

.PRECIOUS: runs/%/model.json
runs/%/model.json: | .venv/installed
	$(BIN)/aenp train $(*D) --model $(word 1,$(subst -, ,$(*F))) --symmetry $(word 2,$(subst -, ,$(*F))) \
		$(if $(filter era5%,$*),--data $(DATA)) $(if $(wildcard runs/$*/run.json),--resume,--threads 1)

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[all]'
	touch .venv/installed

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
