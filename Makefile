# The targets call `python -m grader`; for all of its options: .venv/bin/python -m grader --help
# Variables: LAB=2 (or capstone)  FROM=solutions  TIER=cpu  K=backward  SEED=1  MIN=60  OP=matmul  QUICK=1
# SUBMISSIONS=dir  ROSTER=roster.csv  OUT=dir  SITE=slurm.toml  ONLY=id  HIDDEN=cases.toml  RECEIPT=path
# SHARD=1/4  JOBS=6  ARCH=sm_90  EXTRA=dev  STEP="what you expect"  FILE=path  SIZE=n=1024  REDRAW=1
# POLICY=late.toml  RUBRIC=rubric.csv  BOARD=1  TO=gradescope  GPU=path
# REST=1  OPEN=1  RESULTS=folder  SCREENSHOTS=1  AGAIN=1  ALL=1  RESTORE=1 (or the name of a copy)  YES=1

# What is given is text and no command. make keeps it as it was typed, `$` and all, and a recipe writes "$$LAB"
# for it: the shell then takes it from the environment and reads no quote or backtick in it.
# Those of OPTIONS are options of the grader's commands. A command is handed all that are given, with their names,
# in this order, and takes those that it has an option for (`make=` in grader/cli and grader/grading/options.py).
OPTIONS := OP LAB QUICK REDRAW SIZE WIDE FILE FROM TIER K SEED MIN ROSTER OUT SITE JOBS ONLY AGAIN ALL YES RESTORE \
	HIDDEN ARCH POLICY RUBRIC BOARD GPU RESULTS OPEN SCREENSHOTS
TEXTS := $(OPTIONS) SUBMISSIONS RECEIPT STEP TO SHARD REST EXTRA TORCH CUDA_HOME
$(foreach name,$(TEXTS),$(if $(value $(name)),$(eval override $(name) := $$(value $(name)))$(eval export $(name))))

PYTHON ?= python3
RUN := .venv/bin/python -m
GRADER = $(RUN) grader $(foreach name,$(OPTIONS),$(if $($(name)),--variable $(name)="$$$(name)"))
SETUP := $(if $(TORCH),GRADER_TORCH="$$TORCH") $(PYTHON) grader/setup/environment.py
# The capstone's CUDA files need a compiler: NVIDIA's wheels of it where no toolkit is installed.
NVCC := $(or $(shell command -v nvcc),$(wildcard $(CUDA_HOME)/bin/nvcc /usr/local/cuda/bin/nvcc))
WITH_NVCC := $(if $(NVCC),,--extra nvcc)

.DEFAULT_GOAL := help
.PHONY: help setup grade watch hint reset report bench profile tuning survey log check-log class verify gradebook export autograder release notebooks check-notebooks figures architecture picture coverage test test-gpu test-class test-figures test-slurm skeletons tables list todo doctor inspect sanitize lint clean types test-all

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup:  ## make .venv ready; every other target does this by itself (EXTRA=dev, TORCH=cuda)
	@$(SETUP) $(foreach one,$(EXTRA),--extra '$(subst ','\'',$(one))')
	@echo "setup: .venv is ready"

grade:  ## grade your kernels: LAB=2, K=backward, TIER=cpu, FROM=solutions, SEED=1, MIN=60
	@$(SETUP) $(if $(filter capstone,$(LAB)),$(WITH_NVCC))
	@$(GRADER) grade

report:  ## write results/report.html, a page on your last graded run: OPEN=1, RESULTS=folder
	@$(SETUP)
	@$(GRADER) report

watch:  ## grade again at every save, and keep the last result on screen: LAB=2, K=backward, TIER=cpu
	@$(SETUP) $(if $(filter capstone,$(LAB)),$(WITH_NVCC))
	@$(GRADER) watch

hint:  ## the next level of the hint you need: LAB=2, K=softmax or a hint's number, AGAIN=1, ALL=1
	@$(SETUP)
	@$(GRADER) hint

reset:  ## put a skeleton back and keep your work: LAB=2, K=file, RESTORE=1 brings the work back, YES=1
	@$(SETUP)
	@$(GRADER) reset

class:  ## grade a class: SUBMISSIONS=dir ROSTER=roster.csv LAB=2 OUT=dir JOBS=4 SITE=slurm.toml ONLY=id (course staff)
	@$(SETUP) --extra class $(if $(findstring capstone,$(LAB)),$(WITH_NVCC))
	@$(GRADER) class "$$SUBMISSIONS"

verify:  ## grade again what a receipt is of, and say whether it agrees: RECEIPT=path (course staff)
	@$(SETUP)
	@$(GRADER) verify "$$RECEIPT"

bench:  ## time kernels beside their peers on a GPU: OP=matmul, LAB=capstone, QUICK=1, FROM=solutions
	@$(SETUP) --extra bench $(if $(filter capstone,$(LAB)),$(WITH_NVCC))
	@$(GRADER) bench

profile:  ## count what kernels do, with Nsight Compute: OP=matmul SIZE=m=4096,n=4096,k=4096 FILE=path
	@$(SETUP) $(WITH_NVCC)
	@$(GRADER) profile

tuning:  ## time every config of an autotuned product on a GPU: OP=matmul SIZE=m=4096,n=4096,k=4096 WIDE=1
	@$(SETUP) --extra bench
	@$(GRADER) tuning

survey:  ## measure the GPU for the capstone: QUICK=1, REDRAW=1, FROM=solutions
	@$(SETUP) --extra bench
	@$(GRADER) survey

log:  ## measure a step of a kernel and log it: STEP="what you expect, and why" FILE=path SIZE=n=1024
	@$(SETUP) --extra bench $(WITH_NVCC)
	@$(GRADER) log --step "$$STEP"

check-log:  ## whether every number in KERNEL_LOG.md is a recorded one
	@$(SETUP)
	@$(GRADER) check-log

notebooks:  ## build the notebooks: run every cell, keep the outputs: K=02 (course staff)
	@$(SETUP) --extra notebooks
	@$(GRADER) notebooks

check-notebooks:  ## whether all notebooks run, and are those of their sources: K=02 (course staff)
	@$(SETUP) --extra notebooks
	@$(GRADER) notebooks --check

gradebook:  ## grades, files for Canvas and Moodle, and pages of a class run: OUT=folder POLICY=toml RUBRIC=csv ROSTER=csv BOARD=1 (course staff)
	@$(SETUP)
	@$(GRADER) gradebook "$${OUT:-results/class}"

export:  ## results for another platform: TO=gradescope, classroom50, summary or jplag; RESULTS=folder GPU=file OUT=path
	@$(SETUP)
	@$(GRADER) export --to "$$TO" "$${RESULTS:-$(if $(filter jplag,$(TO)),results/class,results)}"

autograder:  ## the zip for Gradescope: OUT=autograder.zip LAB=2 HIDDEN=toml GPU=folder of a class run on a GPU (course staff)
	@$(SETUP)
	@$(GRADER) autograder "$${OUT:-autograder.zip}"

# Two processes: one that has done its half takes tests of the other's, so both end together.
PYTEST := $(RUN) pytest -q -n 2 --dist worksteal
HERE := not gpu and not browser and not slurm
SLOW := (slow or slow_class)

architecture:  ## write the drawing and the tables of grader/README.md from the code (course staff)
	@$(SETUP) --extra dev
	@$(RUN) grader architecture

picture:  ## grade the half-finished lab of the picture in README.md, and draw it (course staff)
	@$(SETUP)
	@$(RUN) grader picture

coverage:  ## measure which statements the tests of `make test` run, and keep the record; K=setup only shows it (course staff)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@mkdir -p results/coverage
	@$(RUN) coverage erase
	@$(RUN) coverage run -m pytest -q -n 2 --dist worksteal -m "$(HERE) and not $(SLOW)" $(if $(K),-k "$$K")
	@$(RUN) coverage combine -q
	@$(RUN) coverage json -q -o results/coverage/counted.json
	@$(if $(K),$(RUN) coverage report,$(RUN) grader record-coverage results/coverage/counted.json --tests '-m "$(HERE) and not $(SLOW)"')

test:  ## test the grader itself: every test that is quick, and some specimens of each kind; needs no GPU (K=setup)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@$(PYTEST) -m "$(HERE) and not $(SLOW)" $(if $(K),-k "$$K")

test-all:  ## all tests and specimens that need no GPU, browser or Slurm; REST=1 leaves out those of make test (course staff)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@$(PYTEST) -m "$(HERE)$(if $(REST), and $(SLOW))" $(if $(K),-k "$$K")

test-gpu:  ## test what needs a GPU: SHARD=1/4, the first of four parts, JOBS=6, six at a time (course staff)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@$(RUN) pytest -q -m gpu -n "$${JOBS:-0}" --resume results/gpu-tests-passed $(if $(K),-k "$$K") \
		$(if $(SHARD),--shard "$$SHARD"); code=$$?; \
		test $$code -eq 5 && echo "all of them have passed on this code; make clean forgets that" || exit $$code

test-figures:  ## drive the interactive figures in a headless Chromium: K=tile_order (course staff)
	@$(SETUP) --extra dev --extra browser
	@$(RUN) pytest -q -n 2 -m browser $(if $(K),-k "$$K")

figures:  ## write the interactive figures from their data; SCREENSHOTS=1 takes pictures of them, too (course staff)
	@$(SETUP) $(if $(SCREENSHOTS),--extra browser)
	@$(GRADER) figures

test-class:  ## test the grading of a whole class, for some minutes; needs no GPU (course staff)
	@$(SETUP) --extra dev
	@$(RUN) pytest -q -m slow_class

test-slurm:  ## grade a few submissions through Slurm, started here for it and stopped after (course staff)
	@$(SETUP) --extra dev
	@PYTHONPATH=. .venv/bin/python grader/tests/classroom/slurm_cluster.py \
		.venv/bin/python -m pytest -q -m slurm grader/tests/classroom/test_slurm.py

skeletons:  ## write the student files of labs/ and the capstone from solutions/ (course staff)
	@$(SETUP)
	@$(GRADER) skeletons

release:  ## write the tree that students get to OUT=folder, without any answer (course staff)
	@$(SETUP)
	@$(GRADER) release "$$OUT"

list:  ## the labs with their exercises, points and files
	@$(SETUP)
	@$(GRADER) list

todo:  ## list the TODOs that nobody has touched yet
	@$(SETUP)
	@$(GRADER) todo

tables:  ## write the figures in the READMEs and the plots from the records (course staff)
	@$(SETUP) --extra bench
	@$(GRADER) tables

doctor:  ## say what this machine can grade, and what is in the way
	@$(SETUP)
	@$(GRADER) doctor

inspect:  ## compile your kernels for a GPU that need not be here: LAB=3 ARCH=sm_90
	@$(SETUP)
	@$(GRADER) inspect

sanitize:  ## the capstone's CUDA files under compute-sanitizer, on a GPU: K=reduction FROM=solutions
	@$(SETUP) $(WITH_NVCC)
	@$(GRADER) sanitize

lint:  ## check the style of the Python files, and who imports whom
	@$(SETUP) --extra dev
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@.venv/bin/python -c "from importlinter.cli import lint_imports_command as main; main()" --no-cache

types:  ## check the types of the rooms that a submission passes through
	@$(SETUP) --extra dev
	@$(RUN) mypy

clean:  ## remove .venv, results/ and all caches; results/kept has work of yours, and stays
# In the devcontainer .venv is a volume, which can be emptied and not removed.
	@if mountpoint -q .venv 2> /dev/null; then find .venv -mindepth 1 -delete; else rm -rf .venv; fi
	@rm -rf .venv.lock .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info
	@if [ -d results ]; then find results -mindepth 1 -maxdepth 1 ! -name kept -exec rm -rf {} +; fi
	@rmdir results 2> /dev/null || true
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
