#!/usr/bin/env bash
# The daemon in real control groups of both versions, as a kernel of its own has them: groups.sh PROGRAMS
#
# A machine hands each controller to one version only, so that neither can be counted on here. The kernel is Debian's, in an emulator,
# and its first process is the script below: limits stand a level above the group that the daemon is in.
cd "$(dirname "$0")/../.."
. .ci/lib.sh
programs=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
need qemu-system-x86 cpio jq
kernel

root=$scratch/root
mkdir -p "$root"/{usr/bin,proc,sys,dev,tmp}
ln -s usr/bin "$root/bin"
for program in "$programs"/rooflin{ed,ectl} $(command -v dash mount umount mkdir sleep cat); do
    install "$program" "$root/usr/bin/"
    for library in $(ldd "$program" | grep -oE '/[^ ]+'); do
        [ "$library" = "$program" ] || install -D "$library" "$root$library"
    done
done
ln -s dash "$root/usr/bin/sh"
cat >"$root/init" <<'SH'
#!/bin/sh
export PATH=/usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
printf '[calibration]\nautomatic = false\n' >/tmp/rooflined.toml
# What a daemon in this group takes the machine for.
ask() {
    (echo 0 >"$2/cgroup.procs" && exec rooflined --bus none --config /tmp/rooflined.toml --socket /tmp/run --state-dir /tmp/state) &
    daemon=$! tries=0
    until said=$(rooflinectl --socket /tmp/run/query.sock status -o json 2>&1) || [ $tries -ge 300 ]; do
        tries=$((tries + 1)) && sleep 0.1
    done
    echo SAID "$1" $said
    kill $daemon
    wait $daemon
}
version_2() {
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    cd /sys/fs/cgroup
    echo +memory +cpu +cpuset >cgroup.subtree_control
    mkdir a
    echo +memory +cpu +cpuset >a/cgroup.subtree_control
    mkdir a/b
    echo 536870912 >a/memory.max && ask memory a/b && echo max >a/memory.max
    echo 100000 100000 >a/cpu.max && ask quota a/b && echo max >a/cpu.max
    echo 1 >a/cpuset.cpus && ask cpuset a/b
}
version_1() {
    mount -t tmpfs groups /sys/fs/cgroup
    cd /sys/fs/cgroup
    for controller in memory cpu cpuset; do
        mkdir $controller && mount -t cgroup -o $controller $controller $controller && mkdir -p $controller/a/b
    done
    echo 536870912 >memory/a/memory.limit_in_bytes && ask memory memory/a/b
    echo 100000 >cpu/a/cpu.cfs_quota_us && ask quota cpu/a/b
    for group in cpuset/a cpuset/a/b; do
        cat cpuset/cpuset.mems >$group/cpuset.mems && echo 1 >$group/cpuset.cpus
    done
    ask cpuset cpuset/a/b
}
ask none /tmp
version_"$version"
echo o >/proc/sysrq-trigger
sleep 60
SH
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 >"$scratch/initrd"

# What it said in group $1: bytes of memory and CPUs.
said() { tr -d '\r' <"$scratch/said" | sed -n "s/^SAID $1 //p" | jq -r '"\(.memory_bytes.value.total) \(.cores_online.value)"'; }
is() { [ "$1" = "$2" ] || { echo "found '$1', expected '$2'" && tail -5 "$scratch/said" && return 1; }; }
limits() {
    local all
    timeout 300 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 1024 -nodefaults -no-reboot -nographic -serial stdio \
        -kernel "$KERNEL" -initrd "$scratch/initrd" -append "console=ttyS0 quiet panic=-1 no_timer_check rdinit=/init version=$1" \
        </dev/null >"$scratch/said"
    all=$(said none)
    is "${all#* }" 2
    is "$(said memory)" '536870912 2'
    is "$(said quota)" "${all% *} 1"
    is "$(said cpuset)" "${all% *} 1"
}
for version in 1 2; do check "limits of control groups of version $version, a level above, are those of the advice" limits $version; done
checked
