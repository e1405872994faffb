#!/bin/bash
# Grades a submission in a container of the course's image, without network:
#   bash grader/classroom/ci/in_image.sh IMAGE SUBMISSION RESULTS [TIER=gpu LAB=2 …]
# SUBMISSION has labs/ and is mounted read-only; RESULTS is written to: what `make grade`, `make report` and
# `make export TO=annotations` write. With TIER=gpu the container gets the GPUs. Exit code: that of `make grade`.

set -euo pipefail
image=$1 submission=$(realpath "$2") results=$(realpath -m "$3")
shift 3

gpus=()
for word in "$@"; do
    if [ "$word" = TIER=gpu ]; then gpus=(--gpus all); fi
done

mkdir -p "$results"
chmod 777 "$results"  # the image's user, 1000, may not be the one who runs this
course() {
    docker run --rm --network none --cap-drop ALL --security-opt no-new-privileges --pids-limit 1024 --memory 8g \
        --tmpfs /tmp:exec -v "$results:/course/results" -v "$submission:/submission:ro" --entrypoint make "$@"
}

code=0
course "${gpus[@]}" "$image" grade FROM=/submission/labs "$@" || code=$?
if [ -f "$results/results.json" ]; then
    course "$image" report
    course "$image" export TO=annotations OUT=results/annotations.txt
fi
exit "$code"
