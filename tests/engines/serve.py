#!/usr/bin/env python3
"""Serves a GGUF file over llama.cpp's own HTTP API: serve.py FILE PORT SLOTS CONTEXT THREADS; ends with its standard input.

The server is that of the package xllamacpp, which is llama.cpp's llama-server compiled as a library.
"""

import sys

import xllamacpp


def main():
    path, port, slots, context, threads = sys.argv[1], *map(int, sys.argv[2:6])
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.port, params.n_parallel, params.n_ctx, params.n_gpu_layers = port, slots, context, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.endpoint_slots = True
    # Kept, or the server ends with it.
    server = xllamacpp.Server(params)
    print(f"listening {server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
