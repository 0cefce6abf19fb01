#!/usr/bin/env bash
# fleets: labels and the k3s example by Kubernetes' rules, three boards in a real Ray cluster, what asking many costs
. .ci/lib.sh

need gcc libc6-dev
[ -x target/release/rooflined ] || release

began=$SECONDS
venv fleet tests/fleet/requirements.txt
echo "the tools were installed after $((SECONDS - began)) s"
export ROOFLINED_BINARIES=$PWD/target/release PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$PWD/clients/python:$PWD/clients/python/tests

in_fleet() { (cd tests/fleet && timeout --kill-after=10 "$1" "$VENV/bin/python" -m unittest -v "$2"); }
show() { "$@" 2>&1 | tee -a "$CI_OUT/fleet-shown"; }
# Ray's processes end with the node that started them; one that did not would go on after CI.
nothing_is_left() {
    local left=()
    for _ in {1..100}; do
        mapfile -t left < <(grep -lzxF "CI_STAGE=${CI_STAGE:-none}" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 |
            while read -r pid; do ps -o pid=,args= -p "$pid"; done | grep -E 'ray::|raylet|gcs_server|rooflined serve' || true)
        [ ${#left[@]} -gt 0 ] || return 0
        sleep 0.2
    done
    printf '%s\n' "${left[@]}"
    return 1
}

# What is not installed here is left out; unknown keys are told on standard error alone.
units() {
    local said
    mkdir -p "$CI_OUT/units"
    cp config/fleet/k3s/rooflined-features.* "$CI_OUT/units"
    sed -i -e 's|^ExecStart=.*|ExecStart=/bin/true|' -e '/^\(After\|Requisite\)=/d' "$CI_OUT/units/rooflined-features.service"
    said=$(systemd-analyze verify --man=no "$CI_OUT"/units/rooflined-features.{service,timer} 2>&1)
    [ -z "$said" ] || { echo "$said" && return 1; }
}

check "rooflinectl features and the k3s example keep the rules of NFD and Kubernetes" show in_fleet 60 test_kubernetes
check "the units of the k3s example are understood" units
check "three boards in a Ray cluster are asked, chosen from, and passed over" show in_fleet 300 test_ray
check "nothing of the cluster is left" nothing_is_left
check "many daemons are asked at once" \
    show python3 clients/python/examples/ask_many.py target/release/rooflined --daemons 50 --questions 2000
grep -E 'one daemon|daemons asked|memory|within|GB/s|logical' "$CI_OUT/fleet-shown" || true
echo "the stage took $((SECONDS - began)) s"
checked
