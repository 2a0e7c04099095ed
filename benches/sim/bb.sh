#!/bin/sh
# How long a BB Trace of all of Azure's 52,000 functions takes (26 million invocations in an average hour), how much
# memory its two processes need, and that two runs give the same bytes.
#
#     benches/sim/bb.sh FOLDER [RUNS]
set -eu
folder=$1
runs=${2:-3}
uncia=${UNCIA:-.venv/bin/uncia}
mkdir -p "$folder"
first=
for run in $(seq "$runs"); do
    out=$folder/bb-$run
    rm -rf "$out"
    uptime
    # GNU time gives the peak of the largest process: of Python or of the engine.
    /usr/bin/time -f "%e s, %U s of CPU time, largest process %M KiB" \
        "$uncia" trace bb --synthetic --functions 52000 --hour 7 --seed 3 --out "$out" --quiet
    digest=$(cat "$out"/*.parquet "$out/trace.json" | sha256sum)
    rm -rf "$out"
    [ -z "$first" ] || [ "$digest" = "$first" ] || { echo "run $run differs"; exit 1; }
    first=$digest
done
