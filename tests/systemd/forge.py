#!/usr/bin/env python3
"""Tries to pass for polkit: forge.py ROUNDS

An ordinary user asks the daemon for a power mode, allows it to ask for a password, and is the one who would be asked: while
the question is open, another connection of the user sends the daemon forged answers of every type of message with the serial
of the daemon's question to polkit. Then the question is dismissed, and the daemon has to refuse the mode.

Prints whether this bus delivers such messages at all, and how many rounds were refused. A mode that is given is status 1.
Speaks D-Bus by itself, because libraries refuse to send such messages.
"""

import os
import socket
import struct
import sys
import time

DAEMON = "io.github.rooflined.Rooflined1"
PATH = "/io/github/rooflined/Rooflined1"
POLKIT = "org.freedesktop.PolicyKit1"
AUTHORITY = "/org/freedesktop/PolicyKit1/Authority"
AGENT = "/io/github/rooflined/test/agent"
CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
ALLOW_INTERACTIVE_AUTHORIZATION = 4
# Messages that the daemon may have sent between an answer to us and its question to polkit.
GUESSES = 200
TIMEOUT = 20


class Writer:
    """Values in the order of a signature, little-endian."""

    def __init__(self):
        self.bytes = bytearray()

    def align(self, to):
        self.bytes += bytes(-len(self.bytes) % to)

    def u32(self, value):
        self.align(4)
        self.bytes += struct.pack("<I", value)

    def u64(self, value):
        self.align(8)
        self.bytes += struct.pack("<Q", value)

    def string(self, text):
        data = text.encode()
        self.u32(len(data))
        self.bytes += data + b"\0"

    def signature(self, text):
        self.bytes += bytes([len(text)]) + text.encode() + b"\0"

    def array(self, alignment, write):
        """An array whose elements are written by `write`; its length does not count the padding before the first."""
        self.u32(0)
        at = len(self.bytes)
        self.align(alignment)
        begin = len(self.bytes)
        write()
        struct.pack_into("<I", self.bytes, at - 4, len(self.bytes) - begin)


def message(kind, serial, flags=0, body=b"", **fields):
    """A message with the header fields path, interface, member, error, reply_serial, destination and signature."""
    kinds = {"path": (1, "o"), "interface": (2, "s"), "member": (3, "s"), "error": (4, "s"), "reply_serial": (5, "u"),
             "destination": (6, "s"), "signature": (8, "g")}
    out = Writer()
    out.bytes += struct.pack("<cBBBII", b"l", kind, flags, 1, len(body), serial)

    def write():
        for name, value in fields.items():
            code, of = kinds[name]
            out.align(8)
            out.bytes += bytes([code])
            out.signature(of)
            {"o": out.string, "s": out.string, "u": out.u32, "g": out.signature}[of](value)

    out.array(8, write)
    out.align(8)
    return bytes(out.bytes) + body


class Received:
    """The header of a message; `body` as it is."""

    def __init__(self, data, length):
        self.kind, self.serial = data[1], struct.unpack_from("<I", data, 8)[0]
        self.fields, at, end = {}, 16, 16 + struct.unpack_from("<I", data, 12)[0]
        while at < end:
            at += -at % 8
            code, of = data[at], data[at + 2:at + 3]
            at += 4
            if of == b"u":
                value = struct.unpack_from("<I", data, at)[0]
                at += 4
            elif of == b"g":
                value = data[at + 1:at + 1 + data[at]].decode()
                at += data[at] + 2
            else:
                size = struct.unpack_from("<I", data, at)[0]
                value = data[at + 4:at + 4 + size].decode()
                at += size + 5
            self.fields[code] = value
        self.body = data[len(data) - length:]

    reply_serial = property(lambda self: self.fields.get(5))
    member = property(lambda self: self.fields.get(3))
    error = property(lambda self: self.fields.get(4))
    sender = property(lambda self: self.fields.get(7))

    def text(self):
        """The first argument, which is a string."""
        return self.body[4:4 + struct.unpack_from("<I", self.body)[0]].decode()


class Connection:
    def __init__(self):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(TIMEOUT)
        self.stream.connect("/run/dbus/system_bus_socket")
        self.stream.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\nBEGIN\r\n")
        self.unread, self.serial = b"", 0
        line = self.read_line()
        assert line.startswith(b"OK "), line
        bus = {"path": "/org/freedesktop/DBus", "interface": "org.freedesktop.DBus", "destination": "org.freedesktop.DBus"}
        self.name = self.answer(self.call(member="Hello", **bus)).text()

    def fill(self):
        more = self.stream.recv(65536)
        if not more:
            raise ConnectionError("the bus closed the connection")
        self.unread += more

    def read_line(self):
        while b"\r\n" not in self.unread:
            self.fill()
        line, self.unread = self.unread.split(b"\r\n", 1)
        return line

    def read(self):
        while len(self.unread) < 16:
            self.fill()
        length, _, fields = struct.unpack_from("<III", self.unread, 4)
        header = 16 + fields + -fields % 8
        while len(self.unread) < header + length:
            self.fill()
        data, self.unread = self.unread[:header + length], self.unread[header + length:]
        return Received(data, length)

    def send(self, kind, **of):
        self.serial += 1
        self.stream.sendall(message(kind, self.serial, **of))
        return self.serial

    def call(self, **of):
        return self.send(CALL, **of)

    def answer(self, serial):
        while True:
            received = self.read()
            if received.kind in (RETURN, ERROR) and received.reply_serial == serial:
                return received


def forged(serial):
    """The body of polkit's yes: allowed, no challenge, no details."""
    out = Writer()
    out.u32(1)
    out.u32(0)
    out.array(8, lambda: None)
    return {"reply_serial": serial, "signature": "(bba{ss})", "body": bytes(out.bytes)}


def is_delivered():
    """Whether the bus brings a signal with the serial of a reply to whom it names."""
    sender, receiver = Connection(), Connection()
    sender.send(SIGNAL, path="/", interface="org.example.Forger", member="Consent", destination=receiver.name, **forged(7))
    receiver.stream.settimeout(2)
    try:
        while receiver.read().member != "Consent":
            pass
    except TimeoutError:
        return False
    return True


def register_agent(connection):
    """Has polkit ask this process for passwords of this process."""
    with open("/proc/self/stat") as stat:
        start = int(stat.read().rsplit(")", 1)[1].split()[19])
    out = Writer()
    out.string("unix-process")

    def details():
        for key, of, value in [("pid", "u", os.getpid()), ("start-time", "t", start), ("uid", "i", os.getuid())]:
            out.align(8)
            out.string(key)
            out.signature(of)
            (out.u64 if of == "t" else out.u32)(value)

    out.array(8, details)
    out.string("C.UTF-8")
    out.string(AGENT)
    registered = connection.answer(connection.call(
        path=AUTHORITY, interface=POLKIT + ".Authority", member="RegisterAuthenticationAgent", destination=POLKIT,
        signature="(sa{sv})ss", body=bytes(out.bytes)))
    assert registered.kind == RETURN, registered.text()


def forge(forger, question):
    """All that might pass for the answer to one of the daemon's next questions."""
    for serial in range(question + 1, question + GUESSES):
        named = {"destination": DAEMON, **forged(serial)}
        forger.send(SIGNAL, path="/", interface="org.example.Forger", member="Consent", **named)
        forger.send(RETURN, **named)
        forger.send(ERROR, error="org.example.Forger.Error", **named)


def is_refused(asker, forger):
    """Whether the daemon refuses the mode while answers are forged."""
    known = asker.answer(asker.call(path=PATH, interface="org.freedesktop.DBus.Peer", member="Ping", destination=DAEMON))
    out = Writer()
    out.string("7W")
    out.array(8, lambda: None)
    asked = asker.call(path=PATH, interface=DAEMON + ".Power", member="SetMode", destination=DAEMON, signature="sa{sv}",
                       flags=ALLOW_INTERACTIVE_AUTHORIZATION, body=bytes(out.bytes))
    dialogue = None
    while True:
        received = asker.read()
        if received.kind == CALL and received.member == "BeginAuthentication":
            dialogue = received
            forge(forger, known.serial)
            time.sleep(0.1)
            asker.send(ERROR, error=POLKIT + ".Error.Cancelled", reply_serial=dialogue.serial, destination=dialogue.sender)
        elif received.kind == CALL and received.reply_serial is None:
            # CancelAuthentication, which wants an answer too.
            asker.send(RETURN, reply_serial=received.serial, destination=received.sender)
        elif received.kind in (RETURN, ERROR) and received.reply_serial == asked:
            assert dialogue is not None, f"nobody was asked for a password: {received.error} {received.text()}"
            return (received.error or "").endswith(".Error.NotAuthorized")


def main():
    rounds = int(sys.argv[1])
    print("this bus delivers signals with the serial of a reply" if is_delivered() else "this bus drops such signals")
    asker, forger = Connection(), Connection()
    register_agent(asker)
    refused = sum(is_refused(asker, forger) for _ in range(rounds))
    print(f"refused {refused} of {rounds}, {3 * (GUESSES - 1)} forged answers in each")
    sys.exit(refused != rounds)


main()
