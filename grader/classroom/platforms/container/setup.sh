#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image.
set -eu

# Submissions run as another user and must not read hidden cases and scores.
for file in hidden.toml gpu.json; do
  if [ -f "/autograder/source/course/$file" ]; then chmod 600 "/autograder/source/course/$file"; fi
done

apt-get update
apt-get install -y --no-install-recommends python3 python3-venv
cd /autograder/source/course
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "choose Ubuntu 22.04 or later as the base image: Triton needs Python 3.10" >&2
  exit 1
fi
python3 grader/setup/environment.py
