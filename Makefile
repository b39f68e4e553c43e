# Two commands matter: `make demo` and `make test`. `make help` lists the others.
VENV ?= .venv
PY = $(VENV)/bin/python
READY = $(VENV)/.ready

.PHONY: help demo test lint fmt generate coverage bench scoreboard fuzz mutation soak image image-test venv clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do printf '%-16s %s\n' "$$name" "$$what"; done

demo: $(READY) ## the whole loop on this machine, two minutes; REPLAY=1: a recorded engine beside the truth; PORT=N if 10047 is taken
	@$(PY) -m infscale demo $(if $(REPLAY),--replay) $(if $(PORT),--port $(PORT))

test: $(READY) ## lint, types, import contracts and tests; RECORDINGS=DIR, TRACES=DIR and CRDS=DIR add further data, ARGS=... goes to pytest
	@tools/prometheus.sh
	@tools/kubectl.sh $(VENV)
	@$(PY) tools/check.py --recordings "$(RECORDINGS)" --traces "$(TRACES)" --crds "$(CRDS)" -- $(ARGS)

lint: $(READY) ## all of `make test` but the tests
	@$(PY) tools/check.py --lint-only

fmt: $(READY) ## format the code and mend what ruff can
	@$(VENV)/bin/ruff check --quiet --fix-only .
	@$(VENV)/bin/ruff format .

generate: $(READY) ## write what is made from code: docs/reference, docs/metrics.md, dashboards, rules in k8s/, rules/workload_test.yaml
	@$(PY) tools/reference.py
	@$(PY) tools/metrics_table.py
	@$(PY) tools/prometheus_rule.py
	@$(PY) -m tools.dashboards
	@$(PY) -m tests.rules.generate

coverage: $(READY) ## which branches of core, exposition, engines, drain and retire their own tests take, in minutes; ARGS="core retire"
	@$(PY) tools/branches.py $(ARGS)

bench: $(READY) ## every benchmark, one table; JSON=1 for a list of objects, ARGS="--quick", names, or --markdown for docs/performance.md
	@$(PY) -c 'import simpy' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt -e '.[bench]'
	@$(PY) -m bench $(if $(JSON),--json) $(ARGS)

scoreboard: $(READY) ## policies on the public traces of TRACES=DIR, for minutes; ARGS="--rows 1,4" for some rows
	@$(PY) -m bench.scoreboard --traces "$(TRACES)" $(ARGS)

fuzz: $(READY) ## look for inputs that break a reader: TARGET=exposition, SECONDS_EACH=600
	@$(PY) -c 'import atheris' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check --no-input 'atheris>=3.0'
	@PYTHONPATH=exporter:sim:. $(PY) -m tests.fuzz $(TARGET) --seconds $(or $(SECONDS_EACH),600)

mutation: $(READY) ## which mutants of PACKAGE=core (or drain) no test notices; ARGS="--children 2", or names of functions
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-input mutmut==3.8.1
	@$(PY) -m tools.mutation $(or $(PACKAGE),core) $(ARGS)

soak: $(READY) ## a million scrapes, a day of decisions, 1,000 signals: does anything grow? ARGS="--scrapes 50000" for less
	@$(PY) -m tests.soak $(ARGS)

image: ## build the container image; BASE=IMAGE for another base, IMAGE=NAME:TAG
	@BASE="$(BASE)" VENV="$(VENV)" tools/image.sh $(IMAGE)

image-test: $(READY) ## build the image and run its roles inside it, as root
	@BASE="$(BASE)" VENV="$(VENV)" tools/image_test.sh $(PY) $(ARGS)

venv: $(READY) ## make the virtual environment

$(READY): setup.cfg pyproject.toml constraints.txt tools/venv.sh
	@tools/venv.sh $(VENV)
	@touch $@

clean: ## remove the virtual environment and everything built
	@rm -rf $(VENV) build dist exporter/*.egg-info sim/*.egg-info *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
