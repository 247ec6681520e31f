# What people use every day; .ci/run calls the same targets.
PYTHON ?= python
SECONDS ?= 60
UNTRACED = tests/contract/test_helper.py tests/contract/test_loop_mixed.py tests/contract/test_threads.py \
    tests/simulation tests/chaos
RUNS ?= 200000

.PHONY: build test lint coverage coverage-native simulate chaos fuzz asan tsan bench bench-quick clean

build:  ## the native engine, in place
	REDLOCK_FAST_BUILD_NATIVE=yes $(PYTHON) -m pip install -e '.[test]'

test:  ## everything, on every engine that is built
	$(PYTHON) -m pytest -n 4 --dist worksteal

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -m mypy.stubtest redlock_fast._native

coverage:  ## lines of redlock_fast/, the whole suite; crowds, simulation and chaos go without the tracer
	$(PYTHON) -m pytest -n 4 --dist worksteal --cov --cov-report=term-missing:skip-covered --cov-fail-under=95 \
	    $(addprefix --ignore=,$(UNTRACED))
	$(PYTHON) -m pytest -n 4 --dist worksteal $(UNTRACED)

coverage-native:  ## lines of the .pyx: a traced build in a copy of this tree
	$(PYTHON) tests/coverage_native.py

fuzz:  ## random and damaged replies, SECONDS=60 in all, SEED= to repeat a run
	$(PYTHON) tests/fuzz/fuzz.py $(SECONDS) $(SEED)

asan:  ## the native engine's tests with the address and undefined behaviour sanitizers, and its leaks
	$(PYTHON) tests/fuzz/asan.py $(ARGS)

tsan:  ## the hub's threads under the thread sanitizer, without Python
	$(PYTHON) tests/fuzz/fuzz.py stress $(SECONDS)

simulate:  ## RUNS runs of the real procedures in virtual time under every fault, on all cores
	$(PYTHON) -m tests.simulation $(RUNS)

chaos:  ## faults of every kind for so many seconds. ARGS='--schedule amnesia --engine native --mode asyncio'
	PYTHONPATH=tests:. $(PYTHON) -m chaos --seconds $(SECONDS) $(ARGS)

bench:  ## against the C floor and the peers, into docs/; some 12 minutes. ARGS='--only threads' for a part
	$(PYTHON) benchmarks/compare.py $(ARGS)

bench-quick:  ## the same, small: does it run?
	$(PYTHON) benchmarks/compare.py --quick

clean:
	rm -rf build dist *.egg-info src/_native.c redlock_fast/*.so
