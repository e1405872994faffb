# The targets call `python -m grader`; for all of its options: .venv/bin/python -m grader --help
# Variables: LAB=2 (or capstone)  FROM=solutions  TIER=cpu  K=backward  SEED=1  MIN=60  OP=matmul  QUICK=1
# SUBMISSIONS=dir  ROSTER=roster.csv  OUT=dir  SITE=slurm.toml  ONLY=id  HIDDEN=cases.toml  RECEIPT=path
# SHARD=1/4  JOBS=6  ARCH=sm_90  EXTRA=dev  STEP="what you expect"  FILE=path  SIZE=n=1024  REDRAW=1
# POLICY=late.toml  RUBRIC=rubric.csv  BOARD=1  TO=gradescope  GPU=path
# OPEN=1  RESULTS=folder  SCREENSHOTS=1  AGAIN=1  ALL=1  RESTORE=1 (or the name of a copy)  YES=1

PYTHON ?= python3
RUN := .venv/bin/python -m
SETUP := $(if $(TORCH),GRADER_TORCH="$(TORCH)") $(PYTHON) grader/setup_env.py
# The capstone's CUDA files need a compiler: NVIDIA's wheels of it where no toolkit is installed.
NVCC := $(or $(shell command -v nvcc),$(wildcard $(CUDA_HOME)/bin/nvcc /usr/local/cuda/bin/nvcc))
WITH_NVCC := $(if $(NVCC),,--extra nvcc)

.DEFAULT_GOAL := help
.PHONY: help setup grade watch hint reset report bench profile tuning survey log check-log class verify gradebook export autograder release notebooks check-notebooks figures test test-gpu test-class test-figures test-slurm skeletons tables list todo doctor inspect sanitize lint clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup:  ## make .venv ready; every other target does this by itself (EXTRA=dev, TORCH=cuda)
	@$(SETUP) $(if $(EXTRA),--extra $(EXTRA))
	@echo "setup: .venv is ready"

grade:  ## grade your kernels: LAB=2, K=backward, TIER=cpu, FROM=solutions, SEED=1, MIN=60
	@$(SETUP) $(if $(filter capstone,$(LAB)),$(WITH_NVCC))
	@$(RUN) grader grade $(if $(LAB),--lab "$(LAB)") $(if $(FROM),--from "$(FROM)") \
		$(if $(TIER),--tier "$(TIER)") $(if $(K),-k "$(K)") $(if $(SEED),--seed "$(SEED)") \
		$(if $(MIN),--min "$(MIN)")

report:  ## write results/report.html, a page on your last graded run: OPEN=1, RESULTS=folder
	@$(SETUP)
	@$(RUN) grader report $(if $(RESULTS),--results "$(RESULTS)") $(if $(OPEN),--open)

watch:  ## grade again at every save, and keep the last result on screen: LAB=2, K=backward, TIER=cpu
	@$(SETUP) $(if $(filter capstone,$(LAB)),$(WITH_NVCC))
	@$(RUN) grader watch $(if $(LAB),--lab "$(LAB)") $(if $(FROM),--from "$(FROM)") \
		$(if $(TIER),--tier "$(TIER)") $(if $(K),-k "$(K)")

hint:  ## the next level of the hint you need: LAB=2, K=softmax or a hint's number, AGAIN=1, ALL=1
	@$(SETUP)
	@$(RUN) grader hint $(if $(LAB),--lab "$(LAB)") $(if $(K),-k "$(K)") $(if $(AGAIN),--again) \
		$(if $(ALL),--all)

reset:  ## put a skeleton back and keep your work: LAB=2, K=file, RESTORE=1 brings the work back, YES=1
	@$(SETUP)
	@$(RUN) grader reset $(if $(LAB),--lab "$(LAB)") $(if $(K),-k "$(K)") $(if $(YES),--yes) \
		$(if $(RESTORE),--restore $(if $(filter-out 1,$(RESTORE)),"$(RESTORE)"))

class:  ## grade a class: SUBMISSIONS=dir ROSTER=roster.csv LAB=2 OUT=dir JOBS=4 SITE=slurm.toml ONLY=id (course staff)
	@$(SETUP) --extra class $(if $(findstring capstone,$(LAB)),$(WITH_NVCC))
	@$(RUN) grader class "$(SUBMISSIONS)" $(if $(ROSTER),--roster "$(ROSTER)") $(if $(LAB),--lab "$(LAB)") \
		$(if $(TIER),--tier "$(TIER)") $(if $(OUT),--out "$(OUT)") $(if $(SITE),--site "$(SITE)") \
		$(if $(JOBS),--jobs "$(JOBS)") $(foreach one,$(ONLY),--only "$(one)") $(if $(AGAIN),--again) \
		$(if $(K),-k "$(K)") $(if $(HIDDEN),--hidden "$(HIDDEN)")

verify:  ## grade again what a receipt is of, and say whether it agrees: RECEIPT=path (course staff)
	@$(SETUP)
	@$(RUN) grader verify "$(RECEIPT)" $(if $(HIDDEN),--hidden "$(HIDDEN)")

bench:  ## time kernels beside their peers on a GPU: OP=matmul, LAB=capstone, QUICK=1, FROM=solutions
	@$(SETUP) --extra bench $(if $(filter capstone,$(LAB)),$(WITH_NVCC))
	@$(RUN) grader bench $(foreach op,$(OP),--op "$(op)") $(if $(LAB),--lab "$(LAB)") $(if $(QUICK),--quick) \
		$(if $(FROM),--from "$(FROM)")

profile:  ## count what kernels do, with Nsight Compute: OP=matmul SIZE=m=4096,n=4096,k=4096 FILE=path
	@$(SETUP) $(WITH_NVCC)
	@$(RUN) grader profile $(foreach op,$(OP),--op "$(op)") $(foreach size,$(SIZE),--size "$(size)") \
		$(if $(FILE),--file "$(FILE)") $(if $(FROM),--from "$(FROM)")

tuning:  ## time every config of an autotuned product on a GPU: OP=matmul SIZE=m=4096,n=4096,k=4096 WIDE=1
	@$(SETUP) --extra bench
	@$(RUN) grader tuning $(foreach op,$(OP),--op "$(op)") $(foreach size,$(SIZE),--size "$(size)") \
		$(if $(WIDE),--wide) $(if $(FILE),--file "$(FILE)") $(if $(FROM),--from "$(FROM)")

survey:  ## measure the GPU for the capstone: QUICK=1, REDRAW=1, FROM=solutions
	@$(SETUP) --extra bench
	@$(RUN) grader survey $(if $(QUICK),--quick) $(if $(REDRAW),--redraw) $(if $(FROM),--from "$(FROM)")

log:  ## measure a step of a kernel and log it: STEP="what you expect, and why" FILE=path SIZE=n=1024
	@$(SETUP) --extra bench $(WITH_NVCC)
	@$(RUN) grader log --step "$$STEP" $(if $(FILE),--file "$(FILE)") $(if $(SIZE),--size "$(SIZE)") \
		$(if $(FROM),--from "$(FROM)")

check-log:  ## whether every number in KERNEL_LOG.md is a recorded one
	@$(SETUP)
	@$(RUN) grader check-log $(if $(FROM),--from "$(FROM)")

notebooks:  ## build the notebooks: run every cell, keep the outputs: K=02 (course staff)
	@$(SETUP) --extra notebooks
	@$(RUN) grader notebooks $(if $(K),-k "$(K)")

check-notebooks:  ## whether all notebooks run, and are those of their sources: K=02 (course staff)
	@$(SETUP) --extra notebooks
	@$(RUN) grader notebooks --check $(if $(K),-k "$(K)")

gradebook:  ## grades, files for Canvas and Moodle, and pages of a class run: OUT=folder POLICY=toml RUBRIC=csv ROSTER=csv BOARD=1 (course staff)
	@$(SETUP)
	@$(RUN) grader gradebook "$(or $(OUT),results/class)" $(if $(POLICY),--policy "$(POLICY)") \
		$(if $(RUBRIC),--rubric "$(RUBRIC)") $(if $(ROSTER),--roster "$(ROSTER)") $(if $(BOARD),--leaderboard)

export:  ## results for another platform: TO=gradescope, classroom50, summary or jplag; RESULTS=folder GPU=file OUT=path
	@$(SETUP)
	@$(RUN) grader export --to "$(TO)" $(if $(GPU),--gpu "$(GPU)") $(if $(OUT),--out "$(OUT)") \
		"$(or $(RESULTS),$(if $(filter jplag,$(TO)),results/class,results))"

autograder:  ## the zip for Gradescope: OUT=autograder.zip LAB=2 HIDDEN=toml GPU=folder of a class run on a GPU (course staff)
	@$(SETUP)
	@$(RUN) grader autograder "$(or $(OUT),autograder.zip)" $(if $(LAB),--lab "$(LAB)") \
		$(if $(HIDDEN),--hidden "$(HIDDEN)") $(if $(GPU),--gpu "$(GPU)")

test:  ## test the grader itself; needs no GPU (K=setup)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@$(RUN) pytest -q -n 2 -m "not gpu and not browser and not slow_class and not slurm" $(if $(K),-k "$(K)")

test-gpu:  ## test what needs a GPU: SHARD=1/4, the first of four parts, JOBS=6, six at a time (course staff)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@$(RUN) pytest -q -m gpu -n $(or $(JOBS),0) --resume results/gpu-tests-passed $(if $(K),-k "$(K)") \
		$(if $(SHARD),--shard "$(SHARD)"); code=$$?; \
		test $$code -eq 5 && echo "all of them have passed on this code; make clean forgets that" || exit $$code

test-figures:  ## drive the interactive figures in a headless Chromium: K=tile_order (course staff)
	@$(SETUP) --extra dev --extra browser
	@$(RUN) pytest -q -n 2 -m browser $(if $(K),-k "$(K)")

figures:  ## write the interactive figures from their data; SCREENSHOTS=1 takes pictures of them, too (course staff)
	@$(SETUP) $(if $(SCREENSHOTS),--extra browser)
	@$(RUN) grader figures $(if $(SCREENSHOTS),--screenshots)

test-class:  ## test the grading of a class in earnest, for some minutes; needs no GPU (course staff)
	@$(SETUP) --extra dev
	@$(RUN) pytest -q -m slow_class

test-slurm:  ## grade a few submissions through Slurm, started here for it and stopped after (course staff)
	@$(SETUP) --extra dev
	@$(RUN) grader.cluster .venv/bin/python -m pytest -q -m slurm grader/tests/test_slurm.py

skeletons:  ## write the student files of labs/ and the capstone from solutions/ (course staff)
	@$(SETUP)
	@$(RUN) grader skeletons

release:  ## write the tree that students get to OUT=folder, without any answer (course staff)
	@$(SETUP)
	@$(RUN) grader release "$(OUT)"

list:  ## the labs with their exercises, points and files
	@$(SETUP)
	@$(RUN) grader list

todo:  ## list the TODOs that nobody has touched yet
	@$(SETUP)
	@$(RUN) grader todo $(if $(LAB),--lab "$(LAB)")

tables:  ## write the figures in the READMEs and the plots from the records (course staff)
	@$(SETUP) --extra bench
	@$(RUN) grader tables

doctor:  ## say what this machine can grade, and what is in the way
	@$(SETUP)
	@$(RUN) grader doctor

inspect:  ## compile your kernels for a GPU that need not be here: LAB=3 ARCH=sm_90
	@$(SETUP)
	@$(RUN) grader inspect $(if $(LAB),--lab "$(LAB)") $(if $(FROM),--from "$(FROM)") $(if $(ARCH),--arch "$(ARCH)")

sanitize:  ## the capstone's CUDA files under compute-sanitizer, on a GPU: K=reduction FROM=solutions
	@$(SETUP) $(WITH_NVCC)
	@$(RUN) grader sanitize $(if $(K),-k "$(K)") $(if $(FROM),--from "$(FROM)")

lint:  ## check the style of the Python files
	@$(SETUP) --extra dev
	@$(RUN) ruff check .

clean:  ## remove .venv, results/ and all caches; results/kept has work of yours, and stays
# In the devcontainer .venv is a volume, which can be emptied and not removed.
	@if mountpoint -q .venv 2> /dev/null; then find .venv -mindepth 1 -delete; else rm -rf .venv; fi
	@rm -rf .venv.lock .pytest_cache .ruff_cache .hypothesis *.egg-info
	@if [ -d results ]; then find results -mindepth 1 -maxdepth 1 ! -name kept -exec rm -rf {} +; fi
	@rmdir results 2> /dev/null || true
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
