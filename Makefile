# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
.PHONY: help setup demo down test test-quick molecule lint clean
SHELL := /bin/sh
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PATH := $(CURDIR)/.venv/bin:$(PATH):/usr/sbin:/sbin

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: ## Make .venv and build/collections; quick when nothing has changed
	@tools/setup.sh

demo: setup ## Start the lab and run gpuops.k8s.site on it: 14 GPUs of three vendors
	@python tools/demo.py

down: ## Remove the demo lab without a trace
	@[ -x .venv/bin/gpuops-lab ] || tools/setup.sh
	@gpuops-lab down

test: setup ## Every test, with labs of their own; a running demo lab stays untouched
	@gpuops-lab build
	@mkdir -p build/test
	@python -m pytest --junit-xml=build/test/junit.xml

test-quick: setup ## The tests that need neither root nor a lab
	@mkdir -p build/test
	@python -m pytest -m "not lab" -n auto

molecule: setup ## The molecule scenarios, on a lab of their own
	@gpuops-lab build >/dev/null
	@MOLECULE_GLOB='molecule/*/molecule.yml' molecule test --all

lint: setup ## Every static check
	@python tools/lint.py

clean: down ## Remove what was built in this checkout, not the caches of the machine
	@rm -rf build .venv
