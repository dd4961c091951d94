# SPDX-License-Identifier: MIT
# Thin: each target is a line or two, the work is in meson.build and scripts/. SETUP=true goes without
# installing packages; MESON_FLAGS are added when a build folder is made; PREFIX and DESTDIR are for
# `make install`.

SETUP ?= scripts/setup
PREFIX ?= /usr/local
MESON_FLAGS ?=
# Warnings stop the build where a machine judges it, and only there: other compilers warn of other things.
WERROR = $(if $(CI),--werror)

# What a goal needs beside what building needs; see scripts/setup.
NEEDS_demo = demo
NEEDS_demo-rehearse = demo
NEEDS_demo-torch = demo
NEEDS_test = test
NEEDS_check = test
NEEDS_conformance = test
NEEDS_conformance-cuda = test
NEEDS_torch-newest = test
NEEDS_recorded-engines = test
NEEDS_unharmed-python = test
NEEDS_bare-configs = test
NEEDS_profiles = test
NEEDS_graphs-engines = test
NEEDS_oracle = test
NEEDS_place-proof = test
NEEDS_attached-engines = test
NEEDS_attached-matrix = test
NEEDS_placed-engines = test
NEEDS_budget-stress = test
NEEDS_pool-stress = test
NEEDS_pool-table = test
NEEDS_group-vm = test
NEEDS_oracle-fusion = test
NEEDS_oracle-vllm = test
NEEDS_asan = test
NEEDS_tsan = test
NEEDS_golden = test
NEEDS_wheel = demo
NEEDS_test-python = test
NEEDS_gpu = test
NEEDS_fuzz = fuzz
NEEDS_fuzz-long = fuzz
NEEDS_stress = test
NEEDS_guard-stress = test
NEEDS_containers = containers
NEEDS_by-room = test
NEEDS_lint = lint
NEEDS_fmt = lint
NEEDS_tidy = tidy

.DEFAULT_GOAL := help
# Every target that help lists, and the set-up.
.PHONY: setup $(shell sed -n 's/^\([a-z0-9-]*\):.*\#\#.*/\1/p' Makefile)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 26

demo: setup build/build.ninja ## set up, build, profile a model, show where its memory went
	@ninja -C build command
	@scripts/demo

demo-rehearse: setup build/build.ninja ## the same for PyTorch, on GPUs that are not there (900 MB to fetch, once)
	@ninja -C build command
	@scripts/demo-rehearse

demo-torch: setup build/build.ninja ## record PyTorch on a GPU that is not there and on the CPU (900 MB to fetch, once)
	@ninja -C build command
	@scripts/demo-torch

build: setup build/build.ninja ## set up and build all that is installed into build/
	@ninja -C build product

all: build ## build the tests, examples and benchmarks too
	@ninja -C build

test: all ## set up what the tests need and run all of them
	@scripts/test

check: all ## the tests that need no engine
	@scripts/test --no-suite engine

asan: setup build-asan/build.ninja ## unit tests under the address and undefined sanitizers
	@ninja -C build-asan
	@scripts/test --build build-asan --suite unit

tsan: setup build-tsan/build.ninja ## unit tests under the thread sanitizer
	@ninja -C build-tsan
	@scripts/test --build build-tsan --suite unit --fixed-addresses

fuzz: setup build-fuzz/build.ninja ## fuzz every parser for FUZZ_SECONDS (60) each
	@ninja -C build-fuzz fuzzers
	@scripts/fuzz

fuzz-long: setup build-fuzz/build.ninja ## the same in rounds until 10^8 inputs were tried in all; may be broken off and called again
	@ninja -C build-fuzz fuzzers
	@scripts/fuzz --long

by-room: setup build-cov/build.ninja ## for each room: lines of tests that aim at it, and what the unit, recorder and command-line tests run of it
	@ninja -C build-cov
	@find build-cov -name '*.gcda' -delete
	@scripts/test --build build-cov --suite unit --suite recorder --suite cli || echo "Some tests fail where lines are counted: files of counts stay in containers."
	@scripts/by-room

stress: all ## programs that end at 4,000 random moments, and every n-th call failing (half an hour); STRESS_RUNS=500
	@build/tests/stress/stress_ends build/src/cli/memtally build/tests/stress/ender $(or $(STRESS_RUNS),500)
	@tests/stress/faults.py build/src/cli/memtally build/tests/stress

conformance: all ## estimates against what engines said of themselves: the error boards
	@meson test -C build --suite conformance --no-rebuild --verbose

conformance-cuda: all ## published runs of vLLM, rehearsed with its version of their time (many GB to fetch); ROWS="vl04 vl06"
	@tests/conformance/cuda/board.py build/src/cli/memtally $(ROWS)

bare-configs: all ## models that see, of their config.json alone, in the newest vLLM and SGLang that were tried (many GB to fetch)
	@tests/conformance/cuda/bare_configs.py build/src/cli/memtally

graphs-engines: all ## CUDA graphs of vLLM and SGLang, on pretended devices, against the engines' own logs (many GB to fetch); ENGINES="vllm-0.33.0"
	@tests/conformance/cuda/engine_graphs.py build/src/cli/memtally $(ENGINES)

profiles: all ## profiles in the newest vLLM and SGLang that were tried, on pretended devices (many GB to fetch); ENGINES=vllm-0.33.0
	@tests/conformance/cuda/profiles.py build/src/cli/memtally $(ENGINES)

torch-newest: all ## the tests of PyTorch's memory with the newest PyTorch and transformers that were tried (1.5 GB to fetch)
	@set -e; MEMTALLY_TORCH=$$(scripts/engine torch-2.15.0); export MEMTALLY_TORCH; \
	meson test -C build --no-rebuild --print-errorlogs --timeout-multiplier 4 torch rehearse_torch_model profile_torch recorded_torch recorded_ends

torch-on-host: all ## models of each kind on the CPU, in both types and sizes, held against their own sums (a quarter of an hour)
	@ALL=1 MEMTALLY_TORCH=$$(scripts/engine torch) meson test -C build --no-rebuild --verbose --timeout-multiplier 6 torch_on_host

recorded-engines: all ## vLLM, SGLang, numba and a compiled model recorded on pretended GPUs, held against their driver (many GB to fetch); WAYS="numba"
	@tests/conformance/cuda/recorded.py build $(WAYS)

unharmed-python: all ## the own tests of PyTorch, transformers, accelerate and safetensors under the recorder, as PyPI or SOURCES=FOLDER has them
	@tests/unharmed/python $(if $(SOURCES),--sources $(SOURCES)) build $(ROWS)

oracle: all ## plan points of llama.cpp again and compare; BUILD= (or FROM=, TO=): what changed
	@scripts/oracle $(if $(ALL),--all) $(if $(BUILD),--from $(BUILD)) $(if $(FROM),--from $(FROM)) $(if $(TO),--to $(TO))

oracle-fusion: all ## plan experts again with ggml-cuda's own choice of what fused operations keep, and compare
	@set -e; engine=$$(scripts/engine llama.cpp); library=$$(scripts/engine fusion); \
	BUILD_DIR=$(CURDIR)/build PYTHONDONTWRITEBYTECODE=1 tests/conformance/oracle_fusion.py --compare "$$engine" \
		build/tests/conformance/fusion "$$library"

oracle-vllm: all ## points of vLLM planned again by its newest version that was tried, and compared (7 GB to fetch); POINTS="small", VERSION=
	@scripts/oracle-vllm $(or $(VERSION),0.33.0) --compare $(or $(POINTS),dense-8b-eager small experts-windowed)

place-proof: all ## placements beside accelerate's, llama.cpp's own, equal stages and exllamav3's rule, on some 40 models, and an exact solver's (10 minutes)
	@python3 -m venv build/solver && build/solver/bin/pip install --quiet ortools==9.15.6755
	@BUILD_DIR=$(CURDIR)/build build/solver/bin/python tests/place/proof.py build/src/cli/memtally "$$(scripts/engine torch)" "$$(scripts/engine llama.cpp)/llama-server"

placed-engines: all ## vLLM and SGLang load stages of unequal length as they were placed, on pretended GPUs (many GB to fetch, 5 minutes)
	@BUILD_DIR=$(CURDIR)/build tests/place/engines.py build/src/cli/memtally "$$(scripts/engine vllm-0.33.0)" "$$(scripts/engine sglang-0.5.23)"

attached-engines: all ## attach to vLLM and SGLang that serve on pretended GPUs and are recorded, in and out of a container (many GB to fetch, 20 minutes)
	@BUILD_DIR=$(CURDIR)/build PYTHONPATH=tests/container:tests/support PYTHONDONTWRITEBYTECODE=1 tests/attach/engines.py build/src/cli/memtally vllm "$$(scripts/engine vllm-0.33.0)" sglang "$$(scripts/engine sglang-0.5.23)"

attached-matrix: all ## attach to llama-server, node, PyTorch and Go in and out of a container, as each user (a minute)
	@set -e; MEMTALLY_LLAMA_CPP=$$(scripts/engine llama.cpp); MEMTALLY_NODE=$$(scripts/engine node); MEMTALLY_TORCH=$$(scripts/engine torch); \
	export MEMTALLY_LLAMA_CPP MEMTALLY_NODE MEMTALLY_TORCH; \
	BUILD_DIR=$(CURDIR)/build PYTHONPATH=tests/support PYTHONDONTWRITEBYTECODE=1 tests/container/matrix.py

budget-stress: all ## holders of reservations killed at 1,000 random moments (half a minute)
	@build/tests/unit/test_budget 1000

schedule-proof: all ## made schedules above 1.10 of our own bound, against an exact solver's (8 minutes; pip install ortools); PYTHON=
	@$(or $(PYTHON),python3) tests/budget/schedule_proof.py build/tests/unit/test_schedule

pool-stress: all ## ten million random steps of a pool against a plain model of it (a minute); STEPS=10000000
	@build/tests/unit/test_pool $(or $(STEPS),10000000)

pool-table: all ## PyTorch's allocators beside the pool, on pretended devices, against the table of docs/POOL.md (10 minutes)
	@scripts/pool-table

group-vm: all ## control groups of version 2 in a virtual machine; KERNEL=vmlinuz; needs qemu, busybox, cpio (40 s)
	@KERNEL="$(KERNEL)" tests/vm/groups build

aarch64: build ## build for aarch64, run the unit tests and a recorded program under qemu (some minutes)
	@scripts/aarch64

bench: setup build-bench/build.ninja ## benchmarks, in a release build
	@ninja -C build-bench
	@meson test -C build-bench --benchmark --no-rebuild --verbose

lint: all ## the rules of the house: layers, names, format, lengths, links
	@scripts/lint

tidy: build ## clang-tidy over the sources (slow)
	@scripts/tidy

fmt: setup ## format the C sources
	@scripts/format --in-place

golden: all ## rewrite what the command-line tests expect
	@MEMTALLY_GOLDEN=rewrite scripts/test --suite cli

containers: all ## attach and profile in containers of a real Podman, Docker and containerd, whatever way they end (some minutes)
	@set -e; MEMTALLY_LLAMA_CPP=$$(scripts/engine llama.cpp); export MEMTALLY_LLAMA_CPP; \
	ALL=1 meson test -C build --no-rebuild --verbose container container_sockets; \
	ALL=1 CONTAINER_ENGINE=docker meson test -C build --no-rebuild --verbose container
	@PYTHONPATH=tests/support MEMTALLY=$(CURDIR)/build/src/cli/memtally SERVED=$(CURDIR)/build/tests/container/served tests/container/test_containerd.py

guard-stress: all ## a thousand programs that run out of memory under memtally guard (some minutes); GUARD_TIMES=1000
	@PYTHONPATH=tests/support MEMTALLY=$(CURDIR)/build/src/cli/memtally EATER=$(CURDIR)/build/tests/guard/eater \
	    GUARD_TIMES=$(or $(GUARD_TIMES),1000) tests/guard/test_guard.py
	@PYTHONPATH=tests/support MEMTALLY=$(CURDIR)/build/src/cli/memtally FAKE_NVML=$(CURDIR)/build/tests/budget \
	    GUARD_TIMES=$(or $(GUARD_DEVICE_TIMES),100) tests/budget/test_guard_device.py

leak-live: all ## a leak found by the monitor and the guard with the clock as it is (20 minutes, idle)
	LEAK_LIVE=1 meson test -C build --no-rebuild --verbose --timeout-multiplier 4 leaks

wheel: setup ## the Python package as a wheel, into dist/ (auditwheel from PyPI makes it whole)
	@meson setup build-install $(if $(wildcard build-install/build.ninja),--reconfigure) \
	    --prefix "$(abspath $(PREFIX))" --buildtype release -Dtests=false $(MESON_FLAGS)
	@ninja -C build-install
	@rm -rf dist
	@scripts/wheel --build build-install --output dist --repair

test-python: all ## all tests of the Python package and of its plug-in of pytest, from a wheel in an empty environment, its types by mypy, the table beside pytest-memray
	@ALL=1 MEMTALLY_LOADERS=$$(scripts/engine loaders) scripts/test --suite python
	@scripts/types
	@tests/python/beside_memray "$$(scripts/wheel --build build --output build/wheel)"

test-wheel: ## the tests of the Python package from WHEEL, on this machine as it is, with no build; scripts/bare-wheel has others
	@tests/python/installed "$(WHEEL)"

viewers: all ## our documents in others' viewers: npm's speedscope in Chromium, the declarations of PyPI's perfetto (4 MB to fetch)
	@tests/viewers/speedscope.py build/src/cli/memtally
	@tests/viewers/perfetto.py build/src/cli/memtally

unharmed: all ## programs of the distribution with and without the recorder: nothing may differ; ROWS="redis node"
	@tests/unharmed/run --install $(ROWS)

peaks: all ## recorded peaks of a hundred programs against the kernel's own figure; ROWS="sort node-buffer"
	@tests/unharmed/peaks --install $(ROWS)

recipes: all ## the recipes of docs/HOW-TO-ADD.md, applied to a copy of the tree, built and tried (some minutes)
	@tests/recipes/run

gpu: all ## what a real GPU and a pretended one must answer alike (says so where there is none)
	@tests/gpu/run build/src/cli/memtally
	@tests/gpu/recorded build

install: setup ## install below PREFIX, staged in DESTDIR
	@meson setup build-install $(if $(wildcard build-install/build.ninja),--reconfigure) \
	    --prefix "$(abspath $(PREFIX))" --buildtype release -Dtests=false $(MESON_FLAGS)
	@ninja -C build-install
	@meson install -C build-install --no-rebuild $(if $(DESTDIR),--destdir "$(abspath $(DESTDIR))")

clean: ## remove every build folder
	rm -rf dist build build-aarch64 build-asan build-cov build-tsan build-fuzz build-bench build-install

setup:
	@$(SETUP) --for build $(foreach goal,$(MAKECMDGOALS),$(addprefix --for ,$(NEEDS_$(goal))))

build/build.ninja: | setup
	@meson setup build $(WERROR) $(MESON_FLAGS)

build-asan/build.ninja: | setup
	@meson setup build-asan -Db_sanitize=address,undefined $(MESON_FLAGS)

build-tsan/build.ninja: | setup
	@meson setup build-tsan -Db_sanitize=thread $(MESON_FLAGS)

build-cov/build.ninja: | setup
	@meson setup build-cov -Db_coverage=true --buildtype debug $(MESON_FLAGS)

build-fuzz/build.ninja: | setup
	@CC=clang-14 CXX=clang++-14 meson setup build-fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
	    -Dc_args=-fsanitize=fuzzer-no-link $(MESON_FLAGS)

build-bench/build.ninja: | setup
	@meson setup build-bench --buildtype release $(MESON_FLAGS)
