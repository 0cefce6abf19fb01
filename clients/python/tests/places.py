"""Where a daemon is looked for; run by test_client with nothing else in /run and /tmp, as root."""

import asyncio
import json
import os
import shutil

os.environ.setdefault("ROOFLINED_BINARIES", "/nonexistent")

import rooflined
from daemon import Impostor

STRANGER = 65534
RUNTIME, OWN, SYSTEM = places = ["/run/user/rooflined/query.sock", "/tmp/rooflined-0/query.sock", "/run/rooflined/query.sock"]


def listening(path, mode=0o700):
    """A daemon that has one answer and closes, so that each question is a connection."""
    def behave(impostor, connection):
        impostor.read(connection)
        body = json.dumps({"formats": []}).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + body)

    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.chmod(os.path.dirname(path), mode)
    impostor = Impostor(behave, os.path.basename(path), os.path.dirname(path))
    os.chmod(path, 0o666)
    return impostor


# Made before anything is there.
client, asynchronous = rooflined.Client(), rooflined.AsyncClient()


def answered_by(wanted, *others):
    before, beside = len(wanted.requests), [len(one.requests) for one in others]
    assert client.formats() == [] and asyncio.run(asynchronous.formats()) == []
    assert len(wanted.requests) == before + 2, wanted.socket
    assert beside == [len(one.requests) for one in others]


def in_vain(kind=rooflined.Unreachable):
    errors = []
    for ask in (client.formats, lambda: asyncio.run(asynchronous.formats())):
        try:
            ask()
        except rooflined.RooflinedError as error:
            assert type(error) is kind, error
            errors.append(error)
    assert len(errors) == 2 and str(errors[0]) == str(errors[1]), errors
    return errors[0]


nothing = "no such file or directory"
assert in_vain().tried == [(path, nothing) for path in places]
system = listening(SYSTEM, 0o755)
answered_by(system)
first = listening(OWN)
answered_by(first, system)

# What others have put in the place of ours is passed over, and named where nobody else answers.
own = os.path.dirname(OWN)


def link():
    os.rename(own, "/tmp/theirs")
    os.symlink("/tmp/theirs", own)


for said, spoil in (("belongs to user 65534", lambda: os.chown(own, STRANGER, -1)), ("others may write", lambda: os.chmod(own, 0o770)),
                    ("others may write", lambda: os.chmod(own, 0o702)), ("symbolic link", link)):
    spoil()
    answered_by(system, first)
    os.rename(SYSTEM, SYSTEM + ".away")
    path, why = in_vain().tried[1]
    assert path == OWN and said in why, why
    os.rename(SYSTEM + ".away", SYSTEM)
    if os.path.islink(own):
        os.remove(own)
        os.rename("/tmp/theirs", own)
    os.chown(own, 0, -1)
    os.chmod(own, 0o700)
    answered_by(first, system)

# One that starts later in a better place, and one whose directory beside is a stranger's.
best = listening(RUNTIME)
answered_by(best, first, system)
shutil.rmtree(os.path.dirname(RUNTIME))
theirs = listening(own + "-control/control.sock", 0o755)
os.chown(own + "-control", STRANGER, -1)
try:
    client.release_hold(1)
    raise AssertionError("a stranger was asked")
except rooflined.Unreachable:
    assert not theirs.requests

# Whatever else lies there is no daemon.
os.remove(OWN)
os.mkdir(OWN)
os.remove(SYSTEM)
open(SYSTEM, "w").close()
assert [why for _, why in in_vain().tried] == [nothing, "connection refused", "connection refused"]

# A place without permission is passed over, and named where nobody else answers.
os.remove(SYSTEM)
best, system = listening(RUNTIME, 0o755), listening(SYSTEM, 0o777)
os.chmod("/run/user", 0o755)
os.chmod(RUNTIME, 0o600)
os.setuid(STRANGER)
answered_by(system, best)
answered_by(system, best)
os.remove(SYSTEM)
assert RUNTIME in str(in_vain(rooflined.Denied))
print("done")
