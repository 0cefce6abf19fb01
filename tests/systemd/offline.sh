#!/usr/bin/env bash
# What can be said of the units without booting them: offline.sh ROOT, as packaging/install.sh left it.
cd "$(dirname "$0")/../.."
. .ci/lib.sh
root=$1
# Exposure in tenths, as systemd-analyze counts; the unit stands at 8, the helper that runs as root at 13. The one that
# powers a GPU on opens devices as root; the one that observes servers speaks to localhost and sees every process.
threshold=10 threshold_of_helper=15 threshold_of_root=25 threshold_of_observer=20

# Unknown keys and bad values are warnings with status 0, so any output at all is a failure.
says_nothing() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    if [ -n "$output" ] || [ "$status" -ne 0 ]; then
        printf '%s\nstatus %s\n' "$output" "$status"
        return 1
    fi
}
for unit in rooflined.service rooflined.socket rooflined-control.socket rooflined-actuate.service rooflined-actuate.socket \
    rooflined-observe@.service rooflined-gpu-nodes.service rooflined-gpu-nodes.path; do
    check "systemd-analyze verify $unit prints nothing" \
        says_nothing chroot "$root" systemd-analyze verify --man=no "/usr/lib/systemd/system/$unit"
done
check "the unit's exposure is at most $threshold tenths" \
    chroot "$root" systemd-analyze security --offline=yes --no-pager --threshold="$threshold" /usr/lib/systemd/system/rooflined.service
check "the exposure of the helper that runs as root is at most $threshold_of_helper tenths" \
    chroot "$root" systemd-analyze security --offline=yes --no-pager --threshold="$threshold_of_helper" /usr/lib/systemd/system/rooflined-actuate.service
check "the exposure of the unit that observes servers is at most $threshold_of_observer tenths" \
    chroot "$root" systemd-analyze security --offline=yes --no-pager --threshold="$threshold_of_observer" /usr/lib/systemd/system/rooflined-observe@.service
check "the exposure of the unit that powers a GPU on is at most $threshold_of_root tenths" \
    chroot "$root" systemd-analyze security --offline=yes --no-pager --threshold="$threshold_of_root" /usr/lib/systemd/system/rooflined-gpu-nodes.service
checked
