#!/usr/bin/env bash
# One night: a fresh build, the suite, measurements, random programs, a hunt for flakes,
# what changed since the last night, pages, a summary in Markdown, and one exit code.
#
#   scripts/nightly/nightly.sh [OPTION...] [-- OPTION OF THE HARNESS...]      in the root of a checkout
#
#   --results DIR   where records and their history are (results)
#   --pages DIR     where pages go (target/pages)
#   --summary FILE  where the summary goes (target/nightly.md); GITHUB_STEP_SUMMARY gets it too
#   --hunt TIME     budget of the hunt (30m); 0 leaves it out
#   --sweep SECONDS budget of random programs against the reference (600); 0 leaves them out
#   --keep-build    builds on what the last night built, not from nothing
#   --harness FILE  this program instead of a build: then there is no sweep
#
# What stands behind `--` chooses devices and cases of the suite, the measurements and the hunt:
# `-- --gpus all`, `-- --sim 4 --filter '*Scheduler*'`.
#
# Ends with the worst of its steps' codes, in the order of harness/README.md: 20, 103, 100, 10, 11, 110, 6.
# A step that fails keeps none of the later ones from running, but for the build. A hunt that ends with its budget is fine.
set -uo pipefail

results=results pages=target/pages summary=target/nightly.md hunt=30m sweep=600 keep= harness=
usage() {
    echo "$1" >&2
    sed -n '5,17s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
        --keep-build) keep=1 ;;
        --) shift; break ;;
        --results | --pages | --summary | --hunt | --sweep | --harness)
            [ $# -ge 2 ] || usage "$1 needs a value"
            declare "${1#--}=$2"
            shift ;;
        *) usage "unknown option $1; those of the harness stand behind --" ;;
    esac
    shift
done
[ -d cases ] || usage "no folder 'cases' here: start it in the root of a checkout"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
worst=0
rows=()
# From the worst on; a code that is not here is one of a mistake, and worse than all.
order=(20 103 100 10 11 110 6 0)
rank() {
    local at
    for at in "${!order[@]}"; do [ "${order[$at]}" -eq "$1" ] && { echo "$at"; return; }; done
    echo -1
}
count() { [ "$(rank "$1")" -ge "$(rank "$worst")" ] || worst=$1; }

# Runs one step: what it says goes to the terminal and to a file.
step() {
    local name=$1 before=$SECONDS code
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    "$@" 2>&1 | tee "$work/$name.log"
    code=${PIPESTATUS[0]}
    # Stopped by hand: so is the night.
    case $code in 129 | 130 | 143) exit "$code" ;; esac
    printf '== %s ended with %d in %d s\n' "$name" "$code" $((SECONDS - before))
    rows+=("| $name | $code | $((SECONDS - before)) s |")
    return "$code"
}
gated() { step "$@" || count $?; }

# What changed since the last finished run of the same command. The first night has none before it.
compared() {
    local code
    "$harness" compare latest~1 latest --results "$results" --format md > "$work/$1.md" 2> "$work/$1.err"
    code=$?
    case $code in
        106) printf '%s: there is no earlier run to compare with.\n' "$1" > "$work/$1.md"; code=0 ;;
        0 | 10 | 100) ;;
        *) cat "$work/$1.err" >> "$work/$1.md" ;;
    esac
    cat "$work/$1.md"
    return "$code"
}

if [ -z "$harness" ]; then
    export CARGO_TARGET_DIR=$PWD/target/nightly
    [ -n "$keep" ] || rm -rf "$CARGO_TARGET_DIR"
    step build cargo build --locked --release -p harness -p testing || exit $?
    harness=$CARGO_TARGET_DIR/release/harness
else
    sweep=0
fi
# The day's number: every night draws other programs and other orders.
seed=$(($(date +%s) / 86400))

gated suite "$harness" run --quiet --results "$results" "$@"
"$harness" report latest --results "$results" --format md > "$work/suite-report.md" 2> /dev/null
gated suite-changes compared suite-changes
gated bench "$harness" bench --quiet --results "$results" "$@"
gated bench-changes compared bench-changes
if [ "$sweep" != 0 ]; then
    # It ends with 1 where anything differs from the reference: a failure like any other.
    step sweep "$CARGO_TARGET_DIR/release/random" all --seed "$seed" --count 1000000 --budget "$sweep" || count 100
fi
if [ "$hunt" != 0 ]; then
    step hunt "$harness" hunt --quiet --results "$results" --budget "$hunt" --seed "$seed" "$@"
    code=$?
    # Its budget is what it was given: that some cases are not decided is told, and is no fault.
    [ "$code" -eq 6 ] || count "$code"
fi
gated pages "$harness" report --results "$results" --html "$pages"

{
    printf '# Night of %s\n\n' "$(date -u +%Y-%m-%d)"
    printf 'Ends with %d. Pages: `%s/index.html`.\n\n' "$worst" "$pages"
    printf '| step | code | took |\n|---|--:|--:|\n'
    printf '%s\n' "${rows[@]}"
    for part in suite-changes bench-changes; do printf '\n## %s\n\n' "${part/-/: }"; sed 's/^#/###/' "$work/$part.md"; done
    printf '\n'
    sed 's/^#/##/' "$work/suite-report.md"
} > "$work/summary.md"
mkdir -p "$(dirname "$summary")" && cp "$work/summary.md" "$summary" || count 110
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$work/summary.md" >> "$GITHUB_STEP_SUMMARY"
printf '\nthe night ends with %d: %s, %s/index.html\n' "$worst" "$summary" "$pages"
exit "$worst"
