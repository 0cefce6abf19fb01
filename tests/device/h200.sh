#!/usr/bin/env bash
# h200.sh [ROOFLINED]: proves and measures the GPU probe on a machine with an NVIDIA GPU; prints one Markdown table.
#
#   ROOFLINED  the program to test [default: target/release/rooflined]; rooflinectl is looked for beside it
#
# Ends within 8 minutes, whatever hangs. Written for H100 and H200; runs on any GPU, and without one says what is missing.
# Exit codes: 0 every kernel was checked and right, 1 one was wrong or could not be checked, 2 usage or no program.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
limit=470 # of 480 s: what is left is for ending.

if [ $# -gt 1 ] || [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    [ $# -eq 1 ] && exit 0
    exit 2
fi

program=${1:-$root/target/release/rooflined}
if [ ! -x "$program" ] && [ $# -eq 0 ] && command -v cargo >/dev/null; then
    echo "building $program" >&2
    (cd "$root" && timeout 300 cargo build --release --bins >&2)
fi
if [ ! -x "$program" ]; then
    echo "h200.sh: there is no program $program: build it with \`cargo build --release --bins\`, or, where there is no" \
        "cargo, bring rooflined and rooflinectl of such a build and name the first: h200.sh PATH/rooflined" >&2
    exit 2
fi
if ! command -v python3 >/dev/null; then
    echo "| part | figure | value | yardstick | ratio | goal | verdict | source |"
    echo "|---|---|---|---|---|---|---|---|"
    echo "| machine | python3 | missing: install it, nothing was run | - | - | - | not run | h200.sh |"
    exit 1
fi

# The order of NVML and of nvidia-smi, so that "the first GPU" means the same everywhere.
export CUDA_DEVICE_ORDER=PCI_BUS_ID PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
left=$((limit - SECONDS))
timeout --kill-after=5 "$left" python3 "$here/table.py" "$program" "$((left - 10))"
code=$?
if [ "$code" -ge 124 ]; then
    echo "| end | the table | cut off: $limit s were over | - | - | - | **missed** | h200.sh |"
    exit 1
fi
exit "$code"
