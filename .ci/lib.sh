# shellcheck shell=bash
# Sourced by the stages.
set -euo pipefail

# What is slow to make and the same for every commit: the base system that the unit is booted in.
# shellcheck disable=SC2034  # used by the stages
CI_CACHE=${ROOFLINED_CI_CACHE:-/var/tmp/rooflined-ci}
# shellcheck disable=SC2034  # used by the stages
CODENAME=$(. /etc/os-release && echo "$VERSION_CODENAME")

fail() {
    echo "$*" >&2
    exit 1
}

# One line that CI counts: check "what is claimed" COMMAND…
check() {
    local claim=$1 output status
    shift
    # Not as a condition: bash would ignore a failure in the middle of a function.
    set +e
    output=$(
        set -e
        "$@" 2>&1
    )
    status=$?
    set -e
    if [ "$status" -eq 0 ]; then
        echo "check: ok $claim"
    else
        echo "check: FAILED $claim"
        printf '%s\n' "$output" | sed 's/^/    /'
        CHECKS_FAILED=$((${CHECKS_FAILED:-0} + 1))
    fi
}

# Ends a stage that used check.
checked() {
    [ "${CHECKS_FAILED:-0}" -eq 0 ] || fail "$CHECKS_FAILED checks failed"
}

# Fetches the package lists, once in a run: apt has to be locked.
lists() {
    local fetched=${CI_RUN:-/tmp}/apt-updated
    if [ ! -e "$fetched" ]; then
        apt-get -q update
        [ -z "${CI_RUN:-}" ] || touch "$fetched"
    fi
}

# Installs those of the packages that are missing.
need() {
    local missing=() package
    for package; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return
    fi
    [ "$(id -u)" -eq 0 ] || fail "missing packages: ${missing[*]}; install them, or run this as root"
    local apt
    # Stages that run at once take turns.
    exec {apt}>"${CI_RUN:-/tmp}/apt.lock"
    flock "$apt"
    lists
    apt-get -q install -y --no-install-recommends "${missing[@]}" >"${CI_RUN:-/tmp}/apt-install.txt" 2>&1 || {
        cat "${CI_RUN:-/tmp}/apt-install.txt"
        fail "could not install ${missing[*]}"
    }
    exec {apt}>&-
    echo "installed ${missing[*]}"
}

# The Debian archive that this machine itself uses.
mirror() {
    local found
    # shellcheck disable=SC2016  # apt's own placeholders
    found=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(CODENAME)' 'Identifier: Packages' 2>/dev/null |
        awk -v codename="$CODENAME" '$2 == "Debian" && $3 == codename {print $1; exit}')
    echo "${found:-http://deb.debian.org/debian}"
}

# What units and packages are tried in, beside the base system.
# shellcheck disable=SC2034  # used by the stages
BOOTED=systemd,systemd-sysv,dbus,polkitd,libpam-systemd,curl,jq,procps,python3,libgomp1

# Those that docs/install.md is followed in, and the oldest one.
# shellcheck disable=SC2034  # used by the stages
DOCUMENTED=systemd,systemd-sysv,dbus,curl,gnupg,apt-utils,python3-apt,ansible-core,sudo,podman,crun
# shellcheck disable=SC2034  # used by the stages
OLDEST=systemd,systemd-sysv,dbus

# Makes the archive of a system once for the cache, and sets BASE: base SUITE PACKAGES [SOURCE [OPTION OF MMDEBSTRAP…]]
base() {
    local suite=$1 packages=$2 source=${3:-$(mirror)}
    shift $(($# < 3 ? $# : 3))
    BASE=$CI_CACHE/base-$suite-$(echo "$packages${*:+ $*}" | sha256sum | cut -c 1-12).tar
    if ! tar -tf "$BASE" >/dev/null 2>&1; then
        mkdir -p "$CI_CACHE"
        # Without waiting for the disk after every file: it is thrown away if this ends early.
        mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io --include="$packages" --format=tar "$@" \
            "$suite" "$BASE.new" "$source" || return
        mv "$BASE.new" "$BASE"
    fi
}

# The same below DIRECTORY: tree DIRECTORY SUITE PACKAGES [SOURCE [OPTION OF MMDEBSTRAP…]]
tree() {
    local into=$1
    shift
    base "$@" || return
    mkdir "$into"
    tar -xf "$BASE" -C "$into"
}

# Keeps a Debian package in the cache, without installing it: debian FILE PACKAGE
debian() {
    local apt into
    dpkg-deb --info "$1" >/dev/null 2>&1 && return
    mkdir -p "$CI_CACHE"
    into=$(mktemp -d)
    exec {apt}>"${CI_RUN:-/tmp}/apt.lock"
    flock "$apt"
    lists
    (cd "$into" && apt-get -q download "$2")
    exec {apt}>&-
    mv "$into"/*.deb "$1"
    rmdir "$into"
}

# The package of dbus-broker, which takes the place of dbus-daemon where it is installed. Sets BROKER.
broker() {
    BROKER=$CI_CACHE/dbus-broker-$CODENAME.deb
    debian "$BROKER" dbus-broker
}

# A kernel for an emulator. Sets KERNEL.
kernel() {
    KERNEL=$CI_CACHE/vmlinuz-$CODENAME
    if [ ! -s "$KERNEL" ]; then
        debian "$KERNEL.newest" linux-image-cloud-amd64
        debian "$KERNEL.deb" "$(dpkg-deb --field "$KERNEL.newest" Depends | cut -d' ' -f1)"
        dpkg-deb --fsys-tarfile "$KERNEL.deb" | tar -xO --wildcards './boot/vmlinuz-*' >"$KERNEL.new"
        mv "$KERNEL.new" "$KERNEL"
        rm "$KERNEL.deb" "$KERNEL.newest"
    fi
}

# Debian's own compiler with a standard library for arm64, and what runs such programs here: prepares both.
arm64() {
    if ! dpkg --print-foreign-architectures | grep -qx arm64; then
        [ "$(id -u)" -eq 0 ] || fail "arm64 is no foreign architecture here; run this as root"
        dpkg --add-architecture arm64
        rm -f "$CI_RUN/apt-updated"
    fi
    # The only compiler with a standard library for arm64 in the archive.
    need rustc-web cargo-web libstd-rust-web-dev:arm64 libc6-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
        qemu-user-static binfmt-support
    # The tests start the daemon, so the kernel must know how to run arm64 programs.
    [ -e /proc/sys/fs/binfmt_misc/status ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || update-binfmts --enable qemu-aarch64
}

# The programs for arm64, with less optimisation than packages have, into target/aarch64-unknown-linux-gnu/release.
arm64_programs() {
    ROOFLINED_CI_CACHE=$CI_CACHE RUSTC=/usr/bin/rustc packaging/build --cargo arm64 build --config .ci/arm64.toml \
        --package rooflined --package rooflinectl --bins
}

# The release build, as packages have it, in target/release.
release() {
    python3 -c 'import ensurepip' 2>/dev/null || need python3 python3-venv
    ROOFLINED_CI_CACHE=$CI_CACHE packaging/build --programs amd64
    mkdir -p target/release
    cp -p "${CARGO_TARGET_DIR:-target}"/x86_64-unknown-linux-gnu/release/rooflined target/release/
    cp -p "${CARGO_TARGET_DIR:-target}"/x86_64-unknown-linux-gnu/release/rooflinectl target/release/
}

# A virtual environment in CI_CACHE, made once for its requirements: venv NAME REQUIREMENTS [VENV whose packages it also sees].
# Sets VENV.
venv() {
    local name=$1 requirements=$2 beneath=${3:-}
    python3 -c 'import ensurepip' 2>/dev/null || need python3 python3-venv
    VENV=$CI_CACHE/$name-$({ cat "$requirements" && python3 --version && echo -n "$beneath"; } | sha256sum | cut -c 1-12)
    if [ ! -e "$VENV/complete" ]; then
        rm -rf "$CI_CACHE/$name"-*
        python3 -m venv "$VENV"
        if [ -n "$beneath" ]; then
            "$beneath/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
                >"$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beneath.pth"
        fi
        "$VENV/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir -r "$requirements"
        touch "$VENV/complete"
    fi
}
