#!/usr/bin/env bash
# A night on a Slurm cluster: an array of shards, one GPU each, then one task that unites them and makes pages.
#
#   scripts/nightly/slurm.sh SHARDS FOLDER [OPTION OF sbatch...]      in the root of a checkout that all nodes see
#
# FOLDER is kept from night to night: it holds the records, their history and the pages. The program is built first, here,
# unless HARNESS names one. DEVICES (--gpus 1) are the options of a shard that say where it runs.
# A shard that a lost node took with it is queued again by Slurm (--requeue); one that never ends is missing in the pages of
# that night, and the last task says which. The last task ends with the worst code of the shards, in the order of
# harness/README.md.
set -euo pipefail

if [ "${1:-}" = __shard ]; then
    folder=$2 shards=$3
    mine=$folder/shards/$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID
    # A shard that is queued again begins anew.
    rm -rf "$mine"
    mkdir -p "$mine"
    code=0
    # shellcheck disable=SC2086
    "$folder/harness" run --quiet ${DEVICES:---gpus 1} --shard "$SLURM_ARRAY_TASK_ID/$shards:hash" --results "$mine/results" || code=$?
    echo "$code" > "$mine/code"
    exit 0
fi

if [ "${1:-}" = __unite ]; then
    folder=$2 shards=$3 array=$4
    worst=0
    order=(20 103 100 110 6 0)
    rank() {
        local at
        for at in "${!order[@]}"; do [ "${order[$at]}" -eq "$1" ] && { echo "$at"; return; }; done
        echo -1
    }
    for shard in $(seq "$shards"); do
        mine=$folder/shards/$array-$shard
        code=6
        if [ -f "$mine/code" ]; then
            code=$(cat "$mine/code")
            # What was copied is needed no more; what could not be stays, and is said.
            if "$folder/harness" store merge "$mine/results" --results "$folder/results"; then
                rm -rf "$mine"
            else
                [ "$code" -ne 0 ] || code=110
            fi
        else
            echo "shard $shard of $shards did not end: its cases were not run"
        fi
        [ "$(rank "$code")" -ge "$(rank "$worst")" ] || worst=$code
    done
    "$folder/harness" report --results "$folder/results" --html "$folder/pages"
    exit "$worst"
fi

[ $# -ge 2 ] || { sed -n '4,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
shards=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
shift 2
command -v sbatch > /dev/null || { echo "sbatch is not on the path: this is no Slurm cluster" >&2; exit 20; }
if [ -z "${HARNESS:-}" ]; then
    cargo build --locked --release -p harness
    HARNESS=target/release/harness
fi
cp "$HARNESS" "$folder/harness"
array=$(sbatch --parsable --requeue --array="1-$shards" --gpus-per-task=1 --ntasks=1 --job-name=fusewright \
    --chdir="$PWD" --output="$folder/shard-%a.log" "$@" "$0" __shard "$folder" "$shards")
array=${array%%;*}
sbatch --wait --dependency="afterany:$array" --ntasks=1 --job-name=fusewright-pages --chdir="$PWD" \
    --output="$folder/night.log" "$@" "$0" __unite "$folder" "$shards" "$array"
