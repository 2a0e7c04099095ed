#!/bin/bash
# Compiles as rustc, but test binaries without optimising their own code, which runs once; what they
# link is optimised as in the engine. Bash, as other shells drop variables named like CARGO_BIN_EXE_a-b.
for argument in "$@"; do
  case $argument in
    --test | test) exec "$@" -C opt-level=0 -C debug-assertions=on ;;
  esac
done
exec "$@"
