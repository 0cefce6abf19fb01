# For meta-tegra: put it next to that layer as recipes-support/rooflined/rooflined_0.1.0.bb, with the release's arm64 tarball in
# recipes-support/rooflined/files/.
SUMMARY = "Performance advice on the device: precision, power mode and batch size"
DESCRIPTION = "Measures what a board can do, and answers how long an operation or a model takes, what limits it, and \
               which format, power mode and batch size meet a target."
# D3, a part of rooflinectl, is ISC.
LICENSE = "(MIT | Apache-2.0) & ISC"
LIC_FILES_CHKSUM = "file://LICENSE-MIT;md5=0ecd7ce3eeaababd4aa35b748039557a \
                    file://LICENSE-APACHE;md5=3b83ef96387f14655fc854ddc3c6bd57 \
                    file://LICENSE-D3;md5=792914825e4a17817b816c78cc4000db"

# The release's programs, which run on every glibc from 2.28 on: BitBake's own Rust is older than the one they need.
SRC_URI = "file://rooflined-${PV}-arm64.tar.gz"
S = "${WORKDIR}/rooflined-${PV}-arm64"
COMPATIBLE_HOST = "aarch64.*-linux"

inherit bash-completion systemd useradd

SYSTEMD_SERVICE:${PN} = "rooflined.service rooflined.socket rooflined-control.socket rooflined-actuate.socket"

# The same user as usr/lib/sysusers.d/rooflined.conf makes.
USERADD_PACKAGES = "${PN}"
GROUPADD_PARAM:${PN} = "--system video; --system render; --system rooflined"
USERADD_PARAM:${PN} = "--system --home-dir ${localstatedir}/lib/rooflined --no-create-home --shell /sbin/nologin \
                       --gid rooflined --groups video,render rooflined"

do_configure[noexec] = "1"
do_compile[noexec] = "1"

do_install() {
    sh ${S}/install.sh --files ${D}
    # Where this distribution keeps units.
    if [ "${systemd_system_unitdir}" != "${nonarch_libdir}/systemd/system" ]; then
        install -d ${D}${systemd_system_unitdir}
        mv ${D}${nonarch_libdir}/systemd/system/* ${D}${systemd_system_unitdir}/
        rm -r ${D}${nonarch_libdir}/systemd
    fi
    # What that script would remove it with, and completions of shells that boards lack.
    rm -r ${D}${datadir}/rooflined ${D}${datadir}/zsh ${D}${datadir}/fish
}

CONFFILES:${PN} = "${sysconfdir}/rooflined/rooflined.toml"
FILES:${PN} += "${systemd_system_unitdir} ${nonarch_libdir}/sysusers.d ${nonarch_libdir}/tmpfiles.d \
                ${datadir}/dbus-1 ${datadir}/polkit-1"
RRECOMMENDS:${PN} += "dbus"

INHIBIT_PACKAGE_STRIP = "1"
INHIBIT_SYSROOT_STRIP = "1"
# nooelint: oelint.vars.insaneskip - built elsewhere, with zig's linker, and stripped there
INSANE_SKIP:${PN} += "already-stripped ldflags"
