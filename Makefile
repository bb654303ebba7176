# Everything runs in virtual environments of its own under build/, with ROS 2 itself from wheels; a sourced ROS stays out.
# On a robot with ROS installed none of this is needed: colcon build, colcon test.

ROS_DISTRO ?= jazzy
PYTHON ?= python3
PARITY ?= 1
SEQUENCE ?=
IMAGE_TOPIC ?=
PYTEST_ARGS ?=
# More than the two cores of a small machine: tests of ROS wait more than they compute.
WORKERS ?= 3
COVERAGE ?= 1
MUTANTS ?=
# An extra of setup.py: pytest is enough for the tests of ROS.
TOOLS ?= test

export ROS_DISTRO
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONPATH PYTHONHOME AMENT_PREFIX_PATH COLCON_PREFIX_PATH CMAKE_PREFIX_PATH LD_LIBRARY_PATH VIRTUAL_ENV
unexport _ROS_WHEELS_BOOTSTRAP_COMPLETE RMW_IMPLEMENTATION ROS_LOCALHOST_ONLY ROS_STATIC_PEERS ROS_DISCOVERY_SERVER
# The tests start a hundred processes: each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON_TAG := $(shell $(PYTHON) -c 'import sys; print("py%d%d" % sys.version_info[:2])' 2>/dev/null)
VENV := build/venv-$(ROS_DISTRO)-$(PYTHON_TAG)
PY := $(VENV)/bin/python
# What is imported is compiled then, and most files never are.
INSTALL := $(PY) -m pip install -qq --no-compile
# An editable install names this folder, so a moved clone installs anew, as changed requirements do.
KEY := $(shell { cat setup.py; pwd; } | cksum | cut -d' ' -f1)
RUN := $(VENV)/.run-$(KEY)
DOCS := $(VENV)/.docs-$(KEY)
TEST := $(VENV)/.$(TOOLS)-$(KEY)
PARITY_DONE := $(VENV)/.parity-$(KEY)
COLCON := $(VENV)/bin/colcon --log-base build/colcon/log
COLCON_BASES := --paths . --build-base build/colcon/build --install-base build/colcon/install

.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo docs check install test lint pytest params schemas figures parity colcon-test gpu-test kernels mutants robot clean

help:
	@echo 'make demo         render a flight, evaluate it offline and in the real node: build/demo/report.html'
	@echo '                  SEQUENCE=path takes a folder of images or a rosbag2 instead,'
	@echo '                  IMAGE_TOPIC=/topic one of several of its cameras'
	@echo 'make check        lint, types, and the tests that need neither ROS nor the networks: a minute'
	@echo 'make test         lint, types, and every test with coverage; PYTEST_ARGS="test/core/test_geometry.py -x" narrows it,'
	@echo '                  WORKERS=1 takes one process instead of three, COVERAGE=0 measures none and is faster'
	@echo 'make pytest       every test with coverage, without lint and types; takes the same PYTEST_ARGS, WORKERS, COVERAGE'
	@echo 'make params       config/matcher.yaml and the parameter table of docs/parameters.md, from the fields of the settings'
	@echo 'make schemas      report.schema.json and fleet.schema.json, from the classes that describe their keys'
	@echo 'make figures      the tables, numbers and charts of README and docs/, from the files in docs/figures/'
	@echo 'make docs         the documentation as a site, all links checked: build/docs/'
	@echo 'make lint         ruff and mypy alone'
	@echo 'make install      what make test needs, without running anything'
	@echo 'make parity       PyTorch (CPU) and transformers, which the parity tests compare with; try again after a failure'
	@echo 'make colcon-test  colcon build and colcon test, of the packaging tests where PYTEST_ARGS names no others'
	@echo 'make gpu-test     on a machine with a GPU, TensorRT and PyCUDA, with its own Python: engines, parity, node, memory'
	@echo 'make kernels      after a change of a .cu file, with the CUDA toolkit: its .ptx, which is what runs'
	@echo 'make mutants      plant the faults of test/mutants.yaml one at a time, and see the tests fail: 15 minutes;'
	@echo '                  MUTANTS="images stereo" takes those whose file or description has one of these words'
	@echo 'make robot        with the Python, NumPy and OpenCV of RELEASE=humble (or jazzy, kilted): all starts, and matches the same'
	@echo 'make clean        remove everything made here, virtual environments too'
	@echo 'ROS_DISTRO=kilted make ... takes ROS 2 Kilted instead of Jazzy; PYTHON=python3.12 make ... another Python'

demo: $(RUN)
	@$(PY) -m lightglue_trt_eval.cli.demo --out build/demo $(if $(SEQUENCE),--sequence '$(SEQUENCE)') \
	  $(if $(IMAGE_TOPIC),--image-topic '$(IMAGE_TOPIC)')

docs: $(DOCS)
	@$(PY) -m zensical build --strict

lint: $(TEST)
	$(PY) -m ruff check .
	$(PY) -m mypy

check: lint
	$(PY) -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not ros and not networks and not slow and not gpu' \
	  $(foreach folder,networks quantization training,--ignore=test/$(folder)) $(PYTEST_ARGS)

install: $(TEST) $(if $(filter 1,$(PARITY)),$(PARITY_DONE))

test: lint pytest

pytest: $(TEST) $(if $(filter 1,$(PARITY)),$(PARITY_DONE))
	@grep -sh . $(PARITY_DONE) || true
	$(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=10 \
	  $(if $(filter 1,$(COVERAGE)),--cov=lightglue_trt_ros --cov=lightglue_trt_eval --cov-report=term-missing:skip-covered) $(PYTEST_ARGS)

params: $(RUN)
	@$(PY) -m tools.params

schemas: $(RUN)
	@$(PY) -m tools.schemas

figures: $(RUN)
	@$(PY) -m tools.figures

parity:
	@rm -f $(PARITY_DONE)
	@$(MAKE) --no-print-directory $(PARITY_DONE)
	@! grep . $(PARITY_DONE)
	@echo 'PyTorch and transformers are installed: make test runs the parity tests.'

colcon-test: $(TEST)
	$(COLCON) build $(COLCON_BASES)
	$(COLCON) test $(COLCON_BASES) --pytest-args $(or $(PYTEST_ARGS),test/package/test_packaging.py)
	$(COLCON) test-result --test-result-base build/colcon/build --verbose

# Not in a virtual environment: TensorRT and PyCUDA are the machine's. Threads are for ONNX Runtime, the reference.
gpu-test:
	LIGHTGLUE_TRT_THREADS=$${LIGHTGLUE_TRT_THREADS:-4} $(PYTHON) -m pytest -rs --durations=15 test/backends/test_gpu.py test/engines/test_gpu_info.py $(PYTEST_ARGS)

# A driver takes PTX of its own version and older ones; 7.0 is CUDA 11's.
KERNELS := lightglue_trt_ros/backends/kernels
kernels: $(patsubst %.cu,%.ptx,$(wildcard $(KERNELS)/*.cu))

ARCH := compute_75
$(KERNELS)/attention.ptx: ARCH := compute_80

$(KERNELS)/%.ptx: $(KERNELS)/%.cu $(wildcard $(KERNELS)/*.h)
	@mkdir -p build
	nvcc -ptx -arch=$(ARCH) -I$(KERNELS) -O3 -o build/$*.ptx $<
	sed -i 's/^\.version .*/.version 7.0/' build/$*.ptx
	ptxas -arch=sm_87 -o build/$*.cubin build/$*.ptx
	@printf '// made by make kernels of $*.cu and the headers, sha256 %s\n' \
	  "$$(cat $(KERNELS)/*.h $< | sha256sum | cut -d' ' -f1)" | cat - build/$*.ptx > $@

mutants: $(TEST)
	@$(PY) test/mutants.py $(MUTANTS)

RELEASE ?= humble
robot: $(RUN)
	@.ci/robot $(RELEASE) $(PY)

clean:
	rm -rf build install log *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@case '$(ROS_DISTRO)' in jazzy|kilted) ;; *) \
	  echo 'ROS_DISTRO is $(ROS_DISTRO): make installs ROS 2 from wheels, which exist for jazzy and kilted.'; \
	  echo 'Use: ROS_DISTRO=jazzy make $(MAKECMDGOALS)    (with a ROS of your own: colcon build, colcon test)'; exit 1;; esac
	@case "$$(uname -sm)" in 'Linux x86_64') ;; *) \
	  echo "This is $$(uname -sm): ROS 2 wheels exist for Linux x86_64 alone. With a ROS of your own: colcon build, colcon test."; exit 1;; esac
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo '$(PYTHON) is not a Python >= 3.10: install one, or name it, as in PYTHON=python3.12 make $(MAKECMDGOALS)'; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo '$(PYTHON) cannot make virtual environments: install its venv module (Debian, Ubuntu: sudo apt install python3-venv)'; exit 1; }
	@mkdir -p build
	@$(PYTHON) -m venv --clear $(VENV)

$(RUN): | $(PY)
	@echo 'Installing ROS 2 $(ROS_DISTRO) and the networks'\'' runtime into $(VENV): a minute or two, once.'
	@$(INSTALL) -e '.[$(ROS_DISTRO),run,demo]'
	@touch $@

$(TEST): | $(RUN)
	@echo 'Installing the test tools into $(VENV): once.'
	@$(INSTALL) -e '.[$(TOOLS)]'
	@touch $@

$(DOCS): | $(TEST)
	@echo 'Installing Zensical into $(VENV): once.'
	@$(INSTALL) -e '.[docs]'
	@touch $@

# An empty file when PyTorch is there; else the reason why not, which every run prints.
$(PARITY_DONE): | $(TEST)
	@echo 'Installing PyTorch (CPU) and transformers into $(VENV) for the parity tests: once.'
	@if $(INSTALL) --retries 1 -e '.[parity]' 2>build/parity.log; then : >$@; else \
	  echo 'Parity tests skip: no CPU build of PyTorch for this Python from pip (build/parity.log; make parity tries again).' >$@; fi
