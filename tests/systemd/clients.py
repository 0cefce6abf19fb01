#!/usr/bin/env python3
"""Eight clients that ask without pause, each time over a new connection: clients.py SOCKET

They go on until standard input is closed. What was asked and what failed is printed then, and a failure is status 1.
"""

import socket
import sys
import threading
import time

CLIENTS = 8
QUESTION = b'{"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}}'
REQUESTS = [
    b"GET /v1/state HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(QUESTION), QUESTION),
]


def ask(path, request):
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(30)
        stream.connect(path)
        stream.sendall(request)
        answer = b""
        while part := stream.recv(65536):
            answer += part
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise ValueError(f"answered {answer[:200]!r}")


def client(path, ended, asked, slowest, failures):
    while not ended.is_set():
        for request in REQUESTS:
            began = time.monotonic()
            try:
                ask(path, request)
            except (OSError, ValueError) as error:
                failures.append(f"{type(error).__name__}: {error}")
            asked.append(1)
            slowest[0] = max(slowest[0], time.monotonic() - began)


def main():
    ended, asked, slowest, failures = threading.Event(), [], [0.0], []
    threads = [threading.Thread(target=client, args=(sys.argv[1], ended, asked, slowest, failures)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    print(f"{len(asked)} queries of {CLIENTS} clients, {len(failures)} errors, the slowest took {slowest[0]:.2f} s")
    for failure in failures[:10]:
        print(failure)
    sys.exit(bool(failures) or len(asked) < CLIENTS)


main()
