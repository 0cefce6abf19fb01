#!/usr/bin/env bash
# Which GPU nodes the unit lets in: devices.sh ROOT, as packaging/install.sh left it.
#
# No driver is behind the nodes: they are made with mknod, and /proc/devices is covered with the lines of an Orin's. Opening
# one then ends with "no such device" where the unit's policy lets it through, and with "not permitted" where it does not.
cd "$(dirname "$0")/../.."
. .ci/lib.sh
root=$(realpath "$1")
. tests/systemd/machine.sh

# The device policy is a program of the kernel's second version of control groups.
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 boot --capability=CAP_BPF,CAP_MKNOD,CAP_PERFMON --system-call-filter=bpf

# NAME MAJOR MINOR, as on an Orin with JetPack 6: nvmap is misc, the GPU's nodes carry the device's name.
nodes=(
    'nvmap 10 250' 'nvgpu/igpu0/ctrl 480 1' 'host1x-fence 481 0' 'nvhost-ctrl-nvdla0 482 0' 'dri/renderD128 226 128'
    'nvidia0 195 0' 'nvidiactl 195 255' 'nvidia-uvm 483 0'
)
stranger='stranger 484 0'
devices='480 17000000.gpu
481 host1x-fence
482 nvhost
483 nvidia-uvm
484 stranger
195 nvidia
226 drm'

make_node() {
    inside mkdir -p "$(dirname "/dev/$1")"
    inside mknod -m 666 "/dev/$1" c "$2" "$3"
}
# What opening each node ends with, in a service with the policy of rooflined.service, or of the file that is given.
opened() {
    local unit=${1:-/usr/lib/systemd/system/rooflined.service} names
    names="${nodes[*]%% *} stranger"
    {
        echo '[Service]'
        echo 'Type=oneshot'
        inside grep -E '^Device(Policy|Allow)=' "$unit"
        # shellcheck disable=SC2028  # printf is the inner shell's
        echo "ExecStart=/bin/sh -c 'for name in $names; do printf \"%%s \" \$\$name; { : <>/dev/\$\$name; } 2>&1 | grep -q permitted && echo denied || echo open; done'"
        echo 'StandardOutput=truncate:/run/opened'
    } | inside tee /run/systemd/system/opened.service >/dev/null
    inside systemctl daemon-reload
    inside systemctl start opened.service
    inside cat /run/opened
}
all_but_the_stranger() {
    local expected=''
    for node in "${nodes[@]}"; do expected+="${node%% *} open"$'\n'; done
    is "$(opened)" "${expected}stranger denied"
}
# What the unit said before: names that no driver registers.
old_names_were_denied() {
    printf 'DevicePolicy=closed\nDeviceAllow=char-nvhost rw\nDeviceAllow=char-nvhost-* rw\nDeviceAllow=char-nvmap rw\nDeviceAllow=char-nvgpu* rw\n' |
        inside tee /run/old >/dev/null
    opened /run/old | grep -E 'nvmap|igpu0|fence' >"$scratch/old"
    is "$(cut -d' ' -f2 "$scratch/old" | sort -u)" denied
}
powered_on() { [ "$(show ActiveState rooflined-gpu-nodes.service)" = active ] && active; }
degraded() { inside curl --silent --max-time 10 --unix-socket /run/rooflined/query.sock http://localhost/-/ready | jq -r '.degraded[]'; }

# The driver loads when the daemon already runs: first the node that powers on, then, by the power-on, the others.
driver_loads_late() {
    local before
    is "$(show ActiveState rooflined-gpu-nodes.service)" inactive
    before=$(show InvocationID)
    # Here nobody answers the write, so that the others have to be made first.
    for node in "${nodes[@]}"; do
        # shellcheck disable=SC2086  # name, major, minor
        make_node $node
    done
    # shellcheck disable=SC2086
    make_node $stranger
    inside sh -c 'mkdir -p /dev/nvgpu/igpu0 && mknod -m 660 /dev/nvgpu/igpu0/power c 480 0'
    eventually 20 powered_on
    eventually 20 restarted_since "$before"
    is "$(degraded | grep gpu_nodes || true)" ''
}
restarted_since() { [ "$(show InvocationID)" != "$1" ] && active; }
denied_node_is_named() {
    inside chmod 600 /dev/nvmap
    inside systemctl restart rooflined.service
    degraded | grep -F 'gpu_nodes: the GPU is out of reach: /dev/nvmap: its owner and mode do not allow it'
}
node_denied_by_the_unit_is_named() {
    inside mkdir -p /run/systemd/system/rooflined.service.d
    inside sh -c 'printf "[Service]\nDeviceAllow=\nDeviceAllow=char-nvidia rw\n" >/run/systemd/system/rooflined.service.d/few.conf'
    inside systemctl daemon-reload
    inside systemctl restart rooflined.service
    degraded | grep -F "/dev/nvgpu/igpu0/ctrl: the control group's device policy does not allow it"
    inside rm /run/systemd/system/rooflined.service.d/few.conf
    inside systemctl daemon-reload
}

inside sh -c 'cat >/run/devices && mount --bind /run/devices /proc/devices' <<<"Character devices:
  1 mem
 10 misc
$devices"
eventually 20 active || fail "the daemon did not start"
check "a driver that loads late is found without anybody's help" driver_loads_late
check "the names that the unit had before deny an Orin's GPU" old_names_were_denied
check "every node of a GPU may be opened, and another may not" all_but_the_stranger
check "a node that the unit denies is named" node_denied_by_the_unit_is_named
check "a node whose mode denies it is named" denied_node_is_named
checked
