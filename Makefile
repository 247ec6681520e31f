# What people use every day; .ci/run calls the same targets.
PYTHON ?= python
SECONDS ?= 60
# Tests wait more than they compute: four workers for each core of a small machine.
WORKERS ?= 8
# By name. The native engine runs the same Python lines; crowds, storms, models, what is large, simulation and
# chaos would only wait for the tracer, which takes as long as the lines themselves. And children of fork hang
# under it: coverage has a lock that another thread of the parent may hold at that moment, and that the child
# waits for without end. A signal handler that raises while its own thread has that lock has the same effect.
UNTRACED = native or fork or child or test_helper_thread or test_rule_10_loop_mixed \
    or test_rule_10_threads or test_rule_14 or simulation or chaos or storm or large or thousand or memory \
    or leaks or task_queues or hostile or model or demo_passes or engines_agree
RUNS ?= 200000
STEPS ?= 50

.PHONY: build test test-full lint docs coverage coverage-native simulate proof mutants chaos soak fuzz fuzz-guided asan tsan thread-safety bench bench-quick wheel others matrix matrix-roots nightly clean

build:  ## the native engine, in place
	REDLOCK_FAST_BUILD_NATIVE=yes $(PYTHON) -m pip install -e '.[test,types]'

test:  ## every test; those on real servers in one combination of engine, server and client each, by turns
	$(PYTHON) -m pytest -n $(WORKERS)

test-full:  ## the same in every combination of engine, server and client, with longer runs
	REDLOCK_FAST_TEST_FULL=1 $(PYTHON) -m pytest -n $(WORKERS)

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -m mypy.stubtest redlock_fast.engine._native
	@if $(PYTHON) -c 'import pyright' 2>/dev/null; then \
	    found=$$(PYTHONPATH=. $(PYTHON) -m pyright --verifytypes redlock_fast --ignoreexternal) \
	        && echo "pyright: every public type is known" || { echo "$$found"; exit 1; }; \
	else echo "pyright is not installed: pip install -e '.[types]'"; fi

docs:  ## the site, in site/: a link, a name or a reference that leads nowhere fails
	PYTHONPATH=docs $(PYTHON) -m zensical build --clean --strict

coverage: export REDLOCK_FAST_TEST_ENGINES = native,python
coverage: export REDLOCK_FAST_TEST_TWICE = 1
# From Python 3.12 on, coverage sees lines by sys.monitoring, which takes half the time.
coverage: export COVERAGE_CORE = $(shell $(PYTHON) -c "import sys; print('sysmon' if sys.version_info >= (3, 12) else 'ctrace')")
coverage:  ## every test in two combinations, in two parts; the first tells the lines of redlock_fast/, with nothing compiled
	$(PYTHON) tests/uncompiled.py -m pytest -n $(WORKERS) \
	    --cov --cov-report=term-missing:skip-covered --cov-fail-under=95 -k 'not ($(UNTRACED))'
	$(PYTHON) -m pytest -n $(WORKERS) -k '$(UNTRACED)'

coverage-native:  ## lines of the .pyx: a traced build in a copy of this tree
	$(PYTHON) tests/coverage_native.py

fuzz:  ## random and damaged replies, SECONDS=60 in all, SEED= to repeat a run
	$(PYTHON) tests/fuzz/fuzz.py $(SECONDS) $(SEED)

fuzz-guided:  ## one of reply, hub (clang), resp, url, toml (atheris), guided by coverage. TARGET=hub SECONDS=1800
	$(PYTHON) fuzz/guided.py "$(TARGET)" $(SECONDS) $(ARGS)

asan:  ## the native engine's tests with the address and undefined behaviour sanitizers, and its leaks
	$(PYTHON) tests/fuzz/asan.py $(ARGS)

tsan:  ## the hub's threads under the thread sanitizer, without Python
	$(PYTHON) tests/fuzz/fuzz.py stress $(SECONDS)

thread-safety:  ## whether every function of src/ that needs the hub's mutex is called with it; needs clang
	clang -std=c11 -D_GNU_SOURCE -Wthread-safety -Werror -fsyntax-only $(filter-out src/_native.c,$(wildcard src/*.c))

simulate:  ## RUNS runs of the real procedures in virtual time under every fault, on all cores
	$(PYTHON) -m tests.simulation $(RUNS)

proof:  ## the models of the protocols, on all cores: 20 minutes, into proof/proved.json; ARGS=guard for one, QUICK=1 for those of a moment
	$(PYTHON) -m proof $(if $(QUICK),--quick) $(ARGS)

mutants:  ## small wrong changes, each of which a test must convict. ARGS='--only NAME', '--area masters'
	PYTHONPATH=tests:. $(PYTHON) -m mutants $(ARGS)

chaos:  ## faults of every kind for so many seconds. ARGS='--schedule amnesia --engine native --mode asyncio'
	PYTHONPATH=tests:. $(PYTHON) -m chaos --seconds $(SECONDS) $(ARGS)

soak:  ## every kind of lock against its model, STEPS times as many steps as in the tests
	REDLOCK_FAST_SOAK_STEPS=$(STEPS) $(PYTHON) -m pytest -n $(WORKERS) tests/real -k 'as_the_model_says or kinds_model'

others:  ## the lock tests of other libraries against the drop-ins. FOLDER=their source archives, ARGS='--download'
	$(PYTHON) -m tests.others "$(FOLDER)" $(ARGS)

matrix:  ## tests and demo on each version at hand, into docs/. ROOTS=FOLDER of matrix-roots, ARGS='--list', '--only NAME'
	$(PYTHON) -m tests.versions $(if $(ROOTS),--roots "$(ROOTS)") $(ARGS)

matrix-roots:  ## Debian systems with more versions, below ROOTS=FOLDER: as root, needs debootstrap
	$(PYTHON) -m tests.versions.roots "$(ROOTS)"

nightly:  ## all that takes a night, into docs/. PARTS='fuzz soak SECONDS=600 STEPS=10' for some of it; ROOTS= for the matrix
	$(PYTHON) -m tests.nightly $(PARTS) $(if $(ROOTS),"ROOTS=$(ROOTS)")

bench:  ## against the C floor and the peers, into docs/; some 20 minutes. ARGS='--only threads' for a part
	$(PYTHON) benchmarks/compare.py $(ARGS)

bench-quick:  ## the same, small: does it run?
	$(PYTHON) benchmarks/compare.py --quick

wheel:  ## the source archive and this platform's wheel, into dist/, tried where no compiler is; a minute
	$(PYTHON) -m tests.shipping $(ARGS)

clean:
	rm -rf build dist *.egg-info src/_native.c
	find redlock_fast -name "*.so" -delete
