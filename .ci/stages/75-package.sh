#!/usr/bin/env bash
# the packages and wheels of both architectures, installed, upgraded and purged in booted systems, and every command of docs/install.md
. .ci/lib.sh

arm64
need systemd-container mmdebstrap arch-test dbus lintian man-db binutils util-linux procps ruby
python3 -c 'import ensurepip' 2>/dev/null || need python3 python3-venv
export ROOFLINED_CI_CACHE=$CI_CACHE
packages=$CI_OUT/packages next=$CI_OUT/next
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)

# Systems without cache take minutes of waiting, which the compiler uses.
systems() {
    tree "$CI_OUT/bookworm" "$CODENAME" "$BOOTED"
    tree "$CI_OUT/documented" "$CODENAME" "$DOCUMENTED"
    # glibc 2.31, as on JetPack 5, whose own base stands in where Debian's is no longer mirrored.
    tree "$CI_OUT/bullseye" bullseye "$OLDEST" ||
        tree "$CI_OUT/bullseye" focal "$OLDEST" 'deb [trusted=yes] http://archive.ubuntu.com/ubuntu focal main universe'
    tree "$CI_OUT/arm64" bullseye systemd "$(mirror)" --architectures=arm64
}
systems >"$CI_OUT/systems.txt" 2>&1 &
systems=$!
arm64_programs
packaging/build --programs amd64
echo "compiled after $SECONDS s"
packaging/build --pack "$packages" amd64 arm64
packaging/build --pack "$CI_OUT/again" amd64
wait "$systems" || { cat "$CI_OUT/systems.txt" && fail "a system could not be made"; }
echo "packed, and systems made, after $SECONDS s"

deb() { echo "$packages"/rooflined_*_"$1".deb; }
# The same files as another version, to upgrade to.
mkdir "$next"
dpkg-deb --raw-extract "$(deb amd64)" "$CI_OUT/unpacked"
sed -i 's/^Version: .*/&+1/' "$CI_OUT/unpacked/DEBIAN/control"
dpkg-deb -Znone --root-owner-group --build "$CI_OUT/unpacked" "$next" >/dev/null
cp "$packages"/rooflined-*-amd64.tar.gz "$next/"

is() { [ "$1" = "$2" ] || { echo "found '$1', expected '$2'" && return 1; }; }
says_nothing() { is "$("$@" 2>&1)" ''; }
is_small() { [ "$(stat -c %s "$1")" -le 8500000 ]; }
# Of both programs, the newest version of a symbol of the C library.
old_glibc_is_enough() {
    local programs=$CI_OUT/programs newest
    rm -rf "$programs" && mkdir "$programs"
    dpkg-deb --fsys-tarfile "$1" | tar --extract --directory "$programs" ./usr/bin
    newest=$(readelf --wide --dyn-syms "$programs"/usr/bin/* | grep -o 'GLIBC_2[0-9.]*' | sort --version-sort --unique | tail -1)
    echo "$newest" >"$CI_OUT/newest.txt"
    is "$(printf '%s\n' "$newest" GLIBC_2.28 | sort --version-sort | tail -1)" GLIBC_2.28
}
same_bytes() {
    local file
    for file in "$CI_OUT"/again/*; do cmp "$file" "$packages/$(basename "$file")"; done
}
pages_are_well_formed() {
    local page
    mkdir "$CI_OUT/pages"
    dpkg-deb --fsys-tarfile "$(deb amd64)" | tar --extract --directory "$CI_OUT/pages" ./usr/share/man
    for page in "$CI_OUT"/pages/usr/share/man/man?/*.gz; do
        says_nothing env MANROFFSEQ='' MANWIDTH=80 sh -c "man --warnings --encoding=UTF-8 --local-file --troff-device=utf8 -Z $page >/dev/null"
    done
}
wheel() { echo "$packages"/rooflined-*-manylinux_2_28_"$1".whl; }
# Where there is nothing but Python: both programs, which answer, and the client.
wheel_installs() {
    python3 -m venv "$CI_OUT/pip"
    "$CI_OUT/pip/bin/pip" install --quiet --no-index --disable-pip-version-check "$(wheel x86_64)"
    env -i "$CI_OUT/pip/bin/rooflinectl" recommend Qwen/Qwen3-4B --hardware orin-nano | grep '^Use '
    env -i "$CI_OUT/pip/bin/rooflined" --version | grep -F "$version"
    "$CI_OUT/pip/bin/python" -c 'import rooflined; print(rooflined.__version__)' | grep -x "$version"
}
wheel_runs_by_uvx() {
    venv uv packaging/wheel/requirements.txt
    env -i PATH=/usr/bin:/bin HOME="$CI_OUT" UV_CACHE_DIR="$CI_OUT/uv" UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never \
        "$VENV/bin/uvx" --from "$(wheel x86_64)" rooflinectl recommend Qwen/Qwen3-4B --hardware orin-nano | grep '^Use '
}
# As Homebrew does it, which is not here: with its few words that the formula uses.
formula_installs() { ruby packaging/homebrew/stand_in.rb "$packages/rooflined.rb" "$CI_OUT/homebrew" | grep '^Use '; }
# The programs of the tarball, which need nothing that is installed.
tarball_answers() {
    mkdir "$CI_OUT/tarball"
    tar --extract --file "$packages/rooflined-$version-amd64.tar.gz" --directory "$CI_OUT/tarball" --strip-components 1
    env -i "$CI_OUT/tarball/usr/bin/rooflinectl" recommend Qwen/Qwen3-4B --hardware orin-nano | grep '^Use '
}
wheel_has_arm64_programs() {
    python3 -m zipfile -e "$(wheel aarch64)" "$CI_OUT/wheel"
    for program in rooflined rooflinectl; do
        readelf --file-header "$CI_OUT/wheel/rooflined-$version.data/scripts/$program" | grep -E 'Machine: +AArch64'
    done
}
recipe_is_well_formed() {
    local venv=$CI_CACHE/oelint-9.11.2
    test -s "packaging/yocto/rooflined_$version.bb"
    if [ ! -e "$venv/complete" ]; then
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir oelint-adv==9.11.2
        touch "$venv/complete"
    fi
    # There is no home page yet.
    says_nothing "$venv/bin/oelint-adv" --quiet --release scarthgap --hide info --suppress oelint.var.mandatoryvar.HOMEPAGE -- \
        packaging/yocto/*.bb
}
# The recipe's own commands, with the variables of a BitBake that does not merge /usr.
recipe_installs() {
    local units unit
    # shellcheck disable=SC2034  # read by the recipe
    local D=$CI_OUT/recipe S=$CI_OUT/source/rooflined-$version-arm64 \
        nonarch_libdir=/usr/lib systemd_system_unitdir=/lib/systemd/system datadir=/usr/share
    mkdir -p "$D" "$CI_OUT/source"
    tar --extract --file "$packages/rooflined-$version-arm64.tar.gz" --directory "$CI_OUT/source"
    # shellcheck disable=SC1090  # a function of the recipe
    . <(sed -n '/^do_install() {/,/^}/p' packaging/yocto/*.bb)
    do_install
    units=$(sed -n 's/^SYSTEMD_SERVICE:.* = "\(.*\)"/\1/p' packaging/yocto/*.bb)
    for unit in $units; do
        test -s "$D$systemd_system_unitdir/$unit" || { echo "$unit is not installed" && return 1; }
    done
    test -x "$D/usr/bin/rooflined" && test -s "$D/etc/rooflined/rooflined.toml"
    (cd "$S" && md5sum LICENSE-*) | while read -r sum file; do grep -qF "$file;md5=$sum" packaging/yocto/*.bb || { echo "the recipe lacks $file;md5=$sum" && return 1; }; done
}
# That for arm64 is compiled otherwise here, and larger.
check "amd64: the package has at most 8.5 MB" is_small "$(deb amd64)"
for arch in amd64 arm64; do
    check "$arch: nothing in it needs a C library newer than 2.28" old_glibc_is_enough "$(deb $arch)"
    echo "$arch: $(stat -c %s "$(deb $arch)") bytes, $(cat "$CI_OUT/newest.txt")"
    check "$arch: lintian has nothing to say" says_nothing lintian --no-cfg --allow-root "$(deb $arch)"
done
check "packing again gives the same bytes" same_bytes
check "amd64: pip installs the wheel, and it is asked at once" wheel_installs
check "amd64: uvx runs a program of the wheel" wheel_runs_by_uvx
check "arm64: the wheel has the programs for it" wheel_has_arm64_programs
check "Homebrew's formula installs the tarball, and its test passes" formula_installs
check "amd64: the programs of the tarball answer without being installed" tarball_answers
for file in "$packages"/*.whl; do echo "$(basename "$file"): $(stat -c %s "$file") bytes"; done
check "man has nothing against the pages" pages_are_well_formed
check "the Yocto recipe of this version parses" recipe_is_well_formed
check "the Yocto recipe's installation has every unit" recipe_installs
checked

mkdir "$CI_OUT/files" "$CI_OUT/files/new"
cp "$packages"/*amd64* "$CI_OUT/files/"
cp "$next"/*amd64* "$CI_OUT/files/new/"

# Two at a time, because each mostly waits; what one printed comes in one piece.
status=0
lane() {
    local name=$1 failed=0
    shift
    "$@" >"$CI_OUT/$name.txt" 2>&1 || failed=1
    { cat "$CI_OUT/$name.txt" && echo "$name ended after $SECONDS s"; } | flock "$CI_OUT/print" cat
    return "$failed"
}
upgrade() { lane "$1" tests/systemd/package.sh "$CI_OUT/$1" "$(deb amd64)" "$next"/rooflined_*_amd64.deb; }
{ upgrade bullseye && lane arm64 tests/systemd/emulated.sh "$CI_OUT/arm64" "$(deb arm64)"; } &
first=$!
{ upgrade bookworm && lane documented tests/systemd/blocks.sh "$CI_OUT/documented" docs/install.md "$CI_OUT/files"; } || status=1
wait "$first" || status=1
[ "$status" -eq 0 ]
