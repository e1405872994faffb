# The targets call `python -m grader`; for all of its options: .venv/bin/python -m grader --help
# Variables: LAB=2 (or capstone)  FROM=solutions  TIER=cpu  K=backward  SEED=1  MIN=60  OP=matmul  QUICK=1
# SUBMISSIONS=dir  ROSTER=roster.csv  OUT=dir  SITE=slurm.toml  ONLY=id  HIDDEN=cases.toml  RECEIPT=path
# SHARD=1/4  JOBS=6  ARCH=sm_90  EXTRA=dev  STEP="what you expect"  FILE=path  SIZE=n=1024  REDRAW=1
# POLICY=late.toml  RUBRIC=rubric.csv  BOARD=1  TO=gradescope  GPU=path  SECRET=path  LIMIT=600  BLIND=10  TOLERANCE=5
# N=10  BLOCK=4  REST=1  OPEN=1  RESULTS=folder  SCREENSHOTS=1  AGAIN=1  ALL=1  RESTORE=1 (or the name of a copy)  YES=1  UNGATED=1

# The value of a variable is text, never a command. make keeps it as typed, including `$`, and a recipe uses "$$LAB":
# the shell then takes it from the environment and does not interpret quotes or backticks in it.
# OPTIONS are options of the grader's commands. Each command gets all that are set, by name and in this order,
# and uses those that it has an option for (`make=` in grader/cli and grader/grading/options.py).
OPTIONS := OP LAB QUICK REDRAW SIZE WIDE FILE FROM TIER K SEED MIN ROSTER OUT SITE JOBS ONLY AGAIN REGRADE ATTEMPTS ALL YES \
	RESTORE HIDDEN SECRET LIMIT BLIND TOLERANCE ARCH POLICY RUBRIC BOARD GPU RESULTS OPEN SCREENSHOTS UNGATED N BLOCK
TYPED := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
TEXTS := $(OPTIONS) SUBMISSIONS RECEIPT STEP TO SHARD REST EXTRA TORCH CUDA_HOME
$(foreach name,$(TEXTS),$(if $(value $(name)),$(eval override $(name) := $$(value $(name)))$(eval export $(name))))

PYTHON ?= python3
RUN := .venv/bin/python -m
GRADER = $(RUN) grader $(foreach name,$(OPTIONS),$(if $($(name)),--variable $(name)="$$$(name)"))
SETUP := $(if $(TORCH),GRADER_TORCH="$$TORCH") $(PYTHON) grader/setup/environment.py
# The capstone's CUDA files need a compiler: without a CUDA toolkit, NVIDIA's wheels of nvcc are installed.
NVCC := $(or $(shell command -v nvcc),$(wildcard $(CUDA_HOME)/bin/nvcc /usr/local/cuda/bin/nvcc))
WITH_NVCC := $(if $(NVCC),,--extra nvcc)

# What each target takes. Another variable on its command line is refused, because a misspelled one would be ignored.
takes-setup := EXTRA
takes-grade := LAB FROM TIER K SEED MIN RESULTS
takes-watch := LAB FROM TIER K RESULTS
takes-hint := LAB K AGAIN ALL RESULTS
takes-reset := LAB K YES RESTORE RESULTS
takes-report := RESULTS OPEN
takes-todo := LAB FROM
takes-show := LAB K N BLOCK SIZE FROM OPEN RESULTS
takes-inspect := LAB FROM ARCH
takes-sanitize := FROM K
takes-bench := OP LAB QUICK FROM RESULTS
takes-profile := OP SIZE FILE FROM RESULTS
takes-tuning := OP SIZE WIDE FILE FROM RESULTS
takes-survey := QUICK REDRAW FROM
takes-log := STEP FILE SIZE FROM
takes-check-log := FROM
takes-class := SUBMISSIONS ROSTER LAB OUT JOBS SITE ONLY AGAIN REGRADE ATTEMPTS TIER K HIDDEN SECRET LIMIT BLIND UNGATED
takes-verify := RECEIPT HIDDEN TOLERANCE
takes-rescore := OUT HIDDEN
takes-erase := OUT ONLY YES
takes-gradebook := OUT ROSTER POLICY RUBRIC BOARD
takes-export := TO RESULTS GPU OUT
takes-autograder := OUT LAB HIDDEN GPU
takes-release := OUT LAB
takes-figures := SCREENSHOTS
takes-notebook := K
takes-notebooks := K
takes-check-notebooks := K
takes-coverage := K
takes-test := K
takes-toolchains := K
takes-test-all := K REST
takes-test-gpu := K SHARD JOBS
takes-test-figures := K
NOTHING := help list doctor skeletons tables architecture picture lint types test-nightly test-slurm clean
$(foreach target,$(NOTHING),$(eval takes-$(target) :=))
PROGRAMS := PYTHON RUN SETUP NVCC TORCH CUDA_HOME SHELL

GOALS := $(or $(MAKECMDGOALS),help)
REFUSED := $(filter-out $(PROGRAMS) $(foreach goal,$(GOALS),$(takes-$(goal))),$(TYPED))
# Not for a target that does not exist, which make names itself; nor below another make, which hands on its variables.
CHECKED := $(if $(filter 0,$(MAKELEVEL)),$(if $(filter undefined,$(foreach goal,$(GOALS),$(origin takes-$(goal)))),,yes))
$(if $(and $(CHECKED),$(REFUSED)),$(error make $(GOALS) takes no $(REFUSED); it takes \
	$(or $(strip $(foreach goal,$(GOALS),$(takes-$(goal)))),no variable)))

.DEFAULT_GOAL := help
.PHONY: help toolchains setup grade watch hint show reset report bench profile tuning survey log check-log class verify rescore erase gradebook export autograder release notebook notebooks check-notebooks figures architecture picture coverage test test-gpu test-nightly test-figures test-slurm skeletons tables list todo doctor inspect sanitize lint clean types test-all

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup:  ## prepare .venv; every other target does this automatically (EXTRA=dev, TORCH=cuda)
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

hint:  ## show the next level of the hint you need: LAB=2, K=softmax or a hint's number, AGAIN=1, ALL=1
	@$(SETUP)
	@$(GRADER) hint

show:  ## see your kernel at work, line by line: LAB=1 N=10 BLOCK=4, LAB=2 SIZE=rows=2,cols=7, K=backward, OPEN=1
	@$(SETUP)
	@$(GRADER) show

reset:  ## put a skeleton back and save a copy of your work: LAB=2, K=file, RESTORE=1 restores the copy, YES=1
	@$(SETUP)
	@$(GRADER) reset

class:  ## grade a class: SUBMISSIONS=dir ROSTER=roster.csv LAB=2 OUT=dir JOBS=4 SITE=slurm.toml ONLY=id (course staff)
	@$(SETUP) --extra class $(if $(findstring capstone,$(LAB)),$(WITH_NVCC))
	@$(GRADER) class "$$SUBMISSIONS"

verify:  ## repeat the grading of a receipt, and compare the results: RECEIPT=path (course staff)
	@$(SETUP)
	@$(GRADER) verify "$$RECEIPT"

rescore:  ## compute points again after a change of points or thresholds, and grade nothing: OUT=folder HIDDEN=toml (course staff)
	@$(SETUP)
	@$(GRADER) rescore "$${OUT:-results/class}"

erase:  ## erase one student from a class run: OUT=folder ONLY=id YES=1 (course staff)
	@$(SETUP)
	@$(GRADER) erase "$${OUT:-results/class}"

bench:  ## time kernels and other implementations on a GPU: OP=matmul, LAB=capstone, QUICK=1, FROM=solutions
	@$(SETUP) --extra bench $(if $(filter capstone,$(LAB)),$(WITH_NVCC))
	@$(GRADER) bench

profile:  ## profile kernels with Nsight Compute: OP=matmul SIZE=m=4096,n=4096,k=4096 FILE=path
	@$(SETUP) $(WITH_NVCC)
	@$(GRADER) profile

tuning:  ## time every config of an autotuned matrix product on a GPU: OP=matmul SIZE=m=4096,n=4096,k=4096 WIDE=1
	@$(SETUP) --extra bench
	@$(GRADER) tuning

survey:  ## measure the GPU for the capstone: QUICK=1, REDRAW=1, FROM=solutions
	@$(SETUP) --extra bench
	@$(GRADER) survey

log:  ## measure a step of a kernel's development and log it: STEP="what you expect, and why" FILE=path SIZE=n=1024
	@$(SETUP) --extra bench $(WITH_NVCC)
	@$(GRADER) log --step "$$STEP"

check-log:  ## check that every number in KERNEL_LOG.md was recorded
	@$(SETUP)
	@$(GRADER) check-log

notebook:  ## open a notebook in JupyterLab: K=02
	@$(SETUP) --extra jupyter
	@$(GRADER) notebook

notebooks:  ## build the notebooks: run every cell and save the outputs: K=02 (course staff)
	@$(SETUP) --extra notebooks
	@$(GRADER) notebooks

check-notebooks:  ## check that all notebooks run, and match their sources: K=02 (course staff)
	@$(SETUP) --extra notebooks
	@$(GRADER) notebooks --check

gradebook:  ## write grades, files for Canvas and Moodle, and pages of a class run: OUT=folder POLICY=toml RUBRIC=csv ROSTER=csv BOARD=1 (course staff)
	@$(SETUP)
	@$(GRADER) gradebook "$${OUT:-results/class}"

export:  ## export results to another platform: TO=gradescope, classroom50, summary, annotations or jplag; RESULTS=folder GPU=file OUT=path
	@$(SETUP)
	@$(GRADER) export --to "$$TO" "$${RESULTS:-$(if $(filter jplag,$(TO)),results/class,results)}"

autograder:  ## build the zip for Gradescope: OUT=autograder.zip LAB=2 HIDDEN=toml GPU=folder of a class run on a GPU (course staff)
	@$(SETUP)
	@$(GRADER) autograder "$${OUT:-autograder.zip}"

# Two processes; the one that finishes first takes over tests of the other.
PYTEST := $(RUN) pytest -q -n 2 --dist worksteal
HERE := not gpu and not browser and not slurm
SLOW := (slow or nightly)

architecture:  ## update the drawing and the tables of grader/README.md from the code (course staff)
	@$(SETUP) --extra dev
	@$(RUN) grader architecture

picture:  ## grade the half-finished lab of the picture in README.md, and draw it (course staff)
	@$(SETUP)
	@$(RUN) grader picture

coverage:  ## measure which statements `make test` covers, and store the record; with K=setup only show it (course staff)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@mkdir -p results/coverage
	@$(RUN) coverage erase
	@$(RUN) coverage run -m pytest -q -n 2 --dist worksteal -m "$(HERE) and not $(SLOW)" $(if $(K),-k "$$K")
	@$(RUN) coverage combine -q
	@$(RUN) coverage json -q -o results/coverage/counted.json
	@$(if $(K),$(RUN) coverage report,$(RUN) grader record-coverage results/coverage/counted.json --tests '-m "$(HERE) and not $(SLOW)"')

test:  ## test the grader: all quick tests, and some specimens of each kind; needs no GPU (K=setup)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@$(PYTEST) -m "$(HERE) and not $(SLOW)" $(if $(K),-k "$$K")

test-all:  ## run all tests and specimens that need no GPU, browser or Slurm; REST=1 skips those of make test and test-nightly (course staff)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@$(PYTEST) -m "$(HERE)$(if $(REST), and slow and not nightly)" $(if $(K),-k "$$K")

test-gpu:  ## run the tests that need a GPU: SHARD=1/4, the first of four parts, JOBS=6, six at a time (course staff)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@$(RUN) pytest -q -m gpu -n "$${JOBS:-0}" --resume results/gpu-tests-passed $(if $(K),-k "$$K") \
		$(if $(SHARD),--shard "$$SHARD"); code=$$?; \
		test $$code -eq 5 && echo "all of these tests have already passed on this code; make clean deletes the record of that" || exit $$code

test-figures:  ## test the interactive figures in headless Chromium: K=tile_order (course staff)
	@$(SETUP) --extra dev --extra browser
	@$(RUN) pytest -q -n 2 -m browser $(if $(K),-k "$$K")

toolchains:  ## grade, test and run the notebooks with other versions of Triton, and store the record: K=solutions (course staff)
	@$(SETUP) --extra dev --extra notebooks $(WITH_NVCC)
	@$(RUN) grader toolchains $(if $(K),-k "$$K")

figures:  ## write the interactive figures from their data; SCREENSHOTS=1 also takes screenshots (course staff)
	@$(SETUP) $(if $(SCREENSHOTS),--extra browser)
	@$(GRADER) figures

test-nightly:  ## run the tests that are too slow for CI: whole classes, earlier releases, 10,000 programs (course staff)
	@$(SETUP) --extra dev $(WITH_NVCC)
	@$(PYTEST) -m "$(HERE) and nightly"

test-slurm:  ## grade a few submissions through Slurm, which is started and stopped here (course staff)
	@$(SETUP) --extra dev
	@PYTHONPATH=. .venv/bin/python grader/tests/classroom/slurm_cluster.py \
		.venv/bin/python -m pytest -q -m slurm grader/tests/classroom/test_slurm.py

skeletons:  ## write the student files of labs/ and the capstone from solutions/ (course staff)
	@$(SETUP)
	@$(GRADER) skeletons

release:  ## write the students' version of the course, without solutions, to OUT=folder; LAB=1,2 for these labs only (course staff)
	@$(SETUP)
	@$(GRADER) release "$$OUT"

list:  ## list the labs with their exercises, points and files
	@$(SETUP)
	@$(GRADER) list

todo:  ## list the TODOs that are still open
	@$(SETUP)
	@$(GRADER) todo

tables:  ## update the numbers in the READMEs and the plots from the records (course staff)
	@$(SETUP) --extra bench
	@$(GRADER) tables

doctor:  ## report what this machine can grade, and what prevents the rest
	@$(SETUP)
	@$(GRADER) doctor

inspect:  ## compile your kernels, also without a GPU, and show the generated code: LAB=3 ARCH=sm_90
	@$(SETUP)
	@$(GRADER) inspect

sanitize:  ## run the capstone's CUDA files under compute-sanitizer, on a GPU: K=reduction FROM=solutions
	@$(SETUP) $(WITH_NVCC)
	@$(GRADER) sanitize

lint:  ## check the style of the Python files, and the imports between rooms
	@$(SETUP) --extra dev
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@.venv/bin/python -c "from importlinter.cli import lint_imports_command as main; main()" --no-cache

types:  ## check the types of the rooms that a submission passes through
	@$(SETUP) --extra dev
	@$(RUN) mypy

clean:  ## delete .venv, results/ and all caches, except results/kept, which has your work
# In the devcontainer .venv is a volume, which can be emptied but not removed.
	@if mountpoint -q .venv 2> /dev/null; then find .venv -mindepth 1 -delete; else rm -rf .venv; fi
	@rm -rf .venv.lock .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info
	@if [ -d results ]; then find results -mindepth 1 -maxdepth 1 ! -name kept -exec rm -rf {} +; fi
	@rmdir results 2> /dev/null || true
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
