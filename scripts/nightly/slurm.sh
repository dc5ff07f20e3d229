#!/usr/bin/env bash
# A night on a Slurm cluster: the suite as an array of shards, one GPU each, joined into one run, and pages.
#
#   scripts/nightly/slurm.sh SHARDS FOLDER [OPTION OF sbatch...]      in the root of a checkout that all nodes see
#
# FOLDER is kept from night to night: it holds the records, their history and the pages. The program is built first, here,
# unless HARNESS names one. DEVICES (--gpus 1) are the options of a shard that say where it runs.
# `--launcher slurm` of harness/README.md says what becomes of lost nodes. Ends with the code of the joined run.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '4,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
shards=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
shift 2
if [ -z "${HARNESS:-}" ]; then
    cargo build --locked --release -p harness
    HARNESS=target/release/harness
fi
# A build of the day must not change what a night runs.
cp "$HARNESS" "$folder/harness"
code=0
# shellcheck disable=SC2086
"$folder/harness" run --quiet ${DEVICES:---gpus 1} --launcher slurm --tasks "$shards" "${@/#/--sbatch=}" \
    --results "$folder/results" || code=$?
"$folder/harness" report --results "$folder/results" --html "$folder/pages"
exit "$code"
