#!/usr/bin/env python3
"""Runs a notebook and prints the text of its cells: run_notebook.py NOTEBOOK [OUTPUT]

OUTPUT, a notebook with pictures, is written where it is named. Exit codes: 0 run, 1 a cell failed.
"""

import sys
import tempfile

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def main():
    notebook = nbformat.read(sys.argv[1], as_version=4)
    # Not over TCP, which other users of the machine could reach.
    with tempfile.TemporaryDirectory(prefix="rl-") as home:
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{home}/kernel")
        try:
            NotebookClient(notebook, km=kernel, timeout=120).execute()
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            return 1
    pictures = 0
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            print(output.get("text", ""), end="")
            pictures += "image/png" in output.get("data", {})
    print(f"{len(notebook.cells)} cells, {pictures} pictures")
    if len(sys.argv) > 2:
        nbformat.write(notebook, sys.argv[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
