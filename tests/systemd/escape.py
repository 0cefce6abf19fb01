"""What the program nvpmodel could do besides switching: tries every way out that is known and prints `through: …` for each
that leads out, then how many were tried. Run by the fake nvpmodel of control.sh; the arguments are those ways that the
caller wants tried, none for all."""

import ctypes
import glob
import os
import signal
import socket
import subprocess
import sys

libc = ctypes.CDLL(None, use_errno=True)
tried = 0


def attempt(what, action):
    global tried
    tried += 1
    try:
        if action() is False:
            return
    except (OSError, subprocess.SubprocessError):
        return
    print(f"through: {what}", flush=True)


def runs(*command):
    return lambda: subprocess.run(command, timeout=20, capture_output=True).returncode == 0


def connects(path, kind):
    def action():
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(2)
            client.connect(path)

    return action


def call(number, *arguments):
    """A system call, by its number on x86-64."""

    def action():
        if libc.syscall(number, *arguments) < 0:
            raise OSError(ctypes.get_errno(), "")

    return action


def writes(path, text="0"):
    def action():
        with open(path, "x" if "/through" in path else "r+") as file:
            file.write(text)

    return action


def announces():
    """Any signal, from the kernel, for a file that is ready."""
    import fcntl

    reader, _ = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, 1)
    fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGINT)


def by_descriptor():
    signal.pidfd_send_signal(os.pidfd_open(1), 0)


KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)


def of_bus():
    attempt("systemd-run", runs("systemd-run", "--wait", "--quiet", "touch", "/etc/ran"))
    attempt("busctl", runs("busctl", "--system", "--timeout=5", "list"))


def of_sockets():
    # The list is of the whole machine: this network has none of them.
    with open("/etc/sockets") as file:
        names = sorted({line.split(maxsplit=7)[7].strip() for line in file if len(line.split()) == 8})
    for name in names:
        path = "\0" + name[1:] if name.startswith("@") else name
        for kind in KINDS:
            attempt(f"socket {name}", connects(path, kind))
    for root in glob.glob("/proc/[0-9]*/root"):
        for name in ("/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify"):
            attempt(f"socket {root}{name}", connects(root + name, socket.SOCK_STREAM))
        attempt(f"{root}/run", lambda root=root: os.path.exists(root + "/run/systemd/private"))
        attempt(f"{root}/etc", writes(root + "/etc/through-proc"))
    for descriptor in os.listdir("/proc/self/fd"):
        target = f"/proc/self/fd/{descriptor}"
        attempt(f"descriptor {descriptor}", lambda target=target: os.readlink(target).startswith("socket:"))


def of_files():
    for path in (
        "/etc/through", "/usr/through", "/run/through", "/run/initctl", "/dev/initctl", "/dev/mem",
        "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/ctrl-alt-del",
        "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs",
    ):  # fmt: skip
        attempt(f"write {path}", writes(path))
    attempt("mount", call(165, b"none", b"/mnt", b"tmpfs", 0, None))
    attempt("unshare", call(272, 0x20000))
    attempt("io_uring", call(425, 1, ctypes.byref(ctypes.create_string_buffer(256))))


def of_init():
    for number in (0, signal.SIGHUP, signal.SIGWINCH):
        attempt(f"signal {number} to init", lambda number=number: os.kill(1, number))
    attempt("kill -1", lambda: os.kill(-1, 0))
    attempt("tgkill", call(234, 1, 1, 0))
    attempt("tkill", call(200, 1, 0))
    # Its code says that a process sends it; otherwise only the kernel could.
    attempt("sigqueue", call(129, 1, 0, (ctypes.c_int * 32)(0, 0, -1)))
    attempt("pidfd", by_descriptor)
    attempt("F_SETSIG", announces)


def of_reboot():
    attempt("signal INT to init", lambda: os.kill(1, signal.SIGINT))
    attempt("signal RTMIN+5 to init", lambda: os.kill(1, signal.SIGRTMIN + 5))
    attempt("systemctl reboot", runs("systemctl", "reboot"))
    attempt("systemctl reboot --force --force", runs("systemctl", "reboot", "--force", "--force"))
    attempt("reboot -f", runs("reboot", "-f"))
    attempt("reboot", call(169, 0xFEE1DEAD, 672274793, 0x89ABCDEF, None))


WAYS = {"bus": of_bus, "sockets": of_sockets, "files": of_files, "init": of_init, "reboot": of_reboot}
for name in sys.argv[1:] or WAYS:
    WAYS[name]()
print(f"tried {tried}", flush=True)
