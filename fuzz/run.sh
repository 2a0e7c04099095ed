#!/bin/sh
# Runs every fuzz target for so many seconds (30), or the named ones: fuzz/run.sh [SECONDS [TARGET...]].
# With stable Rust: the flags are those of cargo-fuzz, without a sanitizer, of which safe code has no
# need. What was found lies in fuzz/artifacts; what was learned, in fuzz/corpus.
set -eu
cd "$(dirname "$0")"
seconds=${1:-30}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- $(sed -n 's/^name = "\(.*_.*\)"$/\1/p' Cargo.toml)
host=$(rustc -vV | sed -n 's/^host: //p')
# With a target, build scripts and macros are not instrumented.
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1" \
  cargo build --quiet --release --target "$host"
for target; do
  mkdir -p "corpus/$target" "artifacts/$target" "seeds/$target"
  echo "$target: $seconds s" >&2
  "target/$host/release/$target" -max_total_time="$seconds" -artifact_prefix="artifacts/$target/" \
    -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 "corpus/$target" "seeds/$target" 2>"artifacts/$target/log" || {
    tail -n 40 "artifacts/$target/log" >&2
    exit 1
  }
  grep -E "number_of_executed_units|average_exec_per_sec|peak_rss" "artifacts/$target/log" >&2
done
