#!/usr/bin/env python3
"""Places a model in a Ray cluster of boards on the one that runs it best, asked of each board's own daemon.

On each board, when it starts:

    ray start --address HEAD:6379 --resources "$(ray_placement.py resources)"

and from anywhere in the cluster:

    ray_placement.py place llama-3.2-3b --max-power-w 25 --max-time-per-token-s 0.09 -- ./serve.sh

A task pinned to each node asks the daemon there who runs the model within the limits; the board that needs the least energy a
token wins. An actor pinned to it holds the recommended mode while COMMAND runs, with ROOFLINED_FORMAT and ROOFLINED_MODE in
its environment, and reports the rate where the last line of its output is {"tokens_per_s": N}. A board whose daemon does not
answer, or that leaves, is passed over; so is one that leaves, or refuses the hold, before COMMAND runs there.
Ends with 3 where no board can. Needs Ray and the package rooflined on every node.
"""

import argparse
import json
import math
import os
import subprocess
import sys

import ray
import rooflined
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# What a node with a daemon has; a task or an actor takes a small part of it.
RESOURCE = "rooflined"
ASKING_S = 30.0


def resources(client):
    """Ceilings as whole numbers, rounded down: a node promises no more than it has. What is unknown is left out."""
    roofline, modes = client.roofline(), client.modes()
    found = {RESOURCE: 1, "bandwidth_gb_per_s": math.floor(roofline["bandwidth_bytes_per_s"]["value"] / 1e9)}
    for precision, ceiling in roofline["compute_flops_per_s"].items():
        found[f"{precision}_gops"] = math.floor(ceiling["value"] / 1e9)
    power = next((mode.get("power_w") for mode in modes["modes"] if mode["name"] == modes["active"]), None)
    if isinstance(power, dict) and power.get("value"):
        found["power_w"] = math.floor(power["value"])
    # Ray takes no resource of nothing.
    return {name: amount for name, amount in found.items() if amount > 0}


@ray.remote(num_cpus=0, resources={RESOURCE: 0.001}, max_retries=0)
def ask(model, engine, constraints):
    """What this node's daemon recommends, in short; `why` where it cannot, or where there is none."""
    try:
        with rooflined.Client(timeout_s=ASKING_S / 2) as client:
            board = client.board()
            answer = client.recommend({"model": model, "phase": "decode", "context_tokens": 512}, engine=engine, objective="energy",
                                      constraints=constraints, freedom={"formats": ["q4_k_m", "q8_0"], "power_modes": "live"})
    except rooflined.RooflinedError as error:
        return {"board": None, "feasible": False, "why": f"{error.code}: {error.message}"}
    choice = answer["decision"] or answer["closest"]
    found = {"board": board["key"], "simulated": board["simulated"], "feasible": answer["feasible"], "why": answer["reason"]}
    if answer["feasible"] and choice:
        predicted = choice["prediction"]
        found.update(format=choice["format"], mode=(choice["power_mode"] or {}).get("name"), tokens_per_s=predicted["tokens_per_s"]["value"],
                     energy_j_per_token=(predicted["energy_j_per_token"] or {}).get("value"))
    return found


@ray.remote(num_cpus=0, resources={RESOURCE: 0.001}, max_restarts=0)
class Work:
    """Runs a command on its node with the mode held there, and reports what it measured."""

    def run(self, command, model, engine, choice):
        environment = {**os.environ, "ROOFLINED_FORMAT": choice["format"], "ROOFLINED_MODE": choice["mode"] or ""}
        with rooflined.Client() as client:
            if choice["mode"] is None:
                return self._measured(client, command, environment, model, engine, choice)
            with client.hold({"mode": choice["mode"]}, app_id="ray", reason=f"{model} of a Ray cluster") as hold:
                found = self._measured(client, command, environment, model, engine, choice)
                return {**found, "held": hold.mode, "satisfied": hold.satisfied}

    def _measured(self, client, command, environment, model, engine, choice):
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, universal_newlines=True)
        lines = done.stdout.strip().splitlines()
        found = {"exit": done.returncode, "pid": os.getpid(), "node": ray.get_runtime_context().get_node_id(), "reported": None}
        try:
            rate = float(json.loads(lines[-1])["tokens_per_s"])
        except (IndexError, KeyError, TypeError, ValueError):
            return {**found, "told": "the command printed no rate"}
        workload = {"model": model, "format": choice["format"], "phase": "decode", "context_tokens": 512}
        try:
            report = client.observe(workload, engine=engine, tokens_per_s=rate)
            return {**found, "reported": rate, "told": f"{report['accepted']} report accepted"}
        except (rooflined.RooflinedError, OSError, ValueError) as error:
            # The command has run: raised from here, it would be started again on the next board.
            return {**found, "told": f"the report failed: {error}"}


def pinned(node):
    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


def questions(model, engine, constraints):
    """One answer for each node that is there, all asked at once."""
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get(RESOURCE)]
    asked = {node["NodeID"]: ask.options(scheduling_strategy=pinned(node["NodeID"])).remote(model, engine, constraints) for node in nodes}
    if asked:
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=ASKING_S)
    found = []
    for node, answer in asked.items():
        try:
            found.append({"node": node, **ray.get(answer, timeout=0.5)})
        except (ray.exceptions.RayError, TimeoutError) as error:
            # It left, or does not answer in time.
            ray.cancel(answer, force=True)
            found.append({"node": node, "board": None, "feasible": False, "why": f"{type(error).__name__}: the node did not answer"})
    return found


def best_first(answers):
    """Those that can, least energy a token first; where that is unknown, behind those where it is known, fastest first."""
    able = [answer for answer in answers if answer["feasible"]]
    return sorted(able, key=lambda one: (one["energy_j_per_token"] is None, one["energy_j_per_token"] or 0, -one["tokens_per_s"]))


def place(options):
    constraints = {name: value for name, value in [("max_power_w", options.max_power_w),
                                                   ("max_time_per_token_s", options.max_time_per_token_s)] if value is not None}
    answers = questions(options.model, options.engine, constraints)
    for answer in answers:
        print(json.dumps(answer), flush=True)
    for choice in best_first(answers):
        actor = Work.options(scheduling_strategy=pinned(choice["node"])).remote()
        try:
            done = ray.get(actor.run.remote(options.command, options.model, options.engine, choice))
        except ray.exceptions.RayTaskError as error:
            print(json.dumps({"node": choice["node"], "passed_over": str(error.cause)}), flush=True)
            continue
        except ray.exceptions.RayError as error:
            # Nobody knows how far it came; a command that must not run twice has to see to that itself.
            left = isinstance(error, ray.exceptions.RayActorError)
            print(json.dumps({"node": choice["node"], "passed_over": "the node left" if left else f"{type(error).__name__}: {error}"}), flush=True)
            continue
        finally:
            ray.kill(actor)
        print(json.dumps({"placed": choice["board"], **done}), flush=True)
        return done["exit"]
    print("no board can: see `why` above; relax a limit, or look at a board with `rooflinectl doctor`", file=sys.stderr)
    return 3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("resources", help="this board's ceilings, for ray start --resources")
    placing = verbs.add_parser("place", help="run a command where a model runs best")
    placing.add_argument("model")
    placing.add_argument("--engine", default="llama.cpp")
    placing.add_argument("--max-power-w", type=float)
    placing.add_argument("--max-time-per-token-s", type=float)
    placing.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.verb == "resources":
        with rooflined.Client() as client:
            print(json.dumps(resources(client)))
        return 0
    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    return place(options)


if __name__ == "__main__":
    sys.exit(main())
