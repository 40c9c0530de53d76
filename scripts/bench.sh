#!/usr/bin/env bash
# Measures Sluice beside the stock switch, the same with DPDK, and the Linux bridge, in its own namespaces
# (root); for arguments see `scripts/bench.sh --help`. Results go to tools/bench/results/ as JSON, CSV and
# SVG, named by time and commit, unless an argument overrides that.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
"${CARGO:-cargo}" build --release --locked -p bench -p sluiced -p sluice

name=$(date -u +%Y%m%dT%H%M%SZ)-$(git rev-parse --short HEAD 2>/dev/null || echo nogit)
where=()
case " $* " in
*" --json"* | *" --csv"* | *" --plots"* | *" --help "* | *" -h "*) ;;
*) where=(--json "tools/bench/results/$name.json" --csv "tools/bench/results/$name.csv" --plots "tools/bench/results/$name") ;;
esac
# Replaces this shell: Ctrl-C reaches the bench, and its guard cleans up.
exec "$target/release/bench" --sluiced "$target/release/sluiced" "${where[@]}" "$@"
