# SPDX-License-Identifier: Apache-2.0
"""The loads of the accuracy table, and which rows to measure first where time is short."""
import fnmatch
import os

HERE = os.path.dirname(os.path.abspath(__file__))
REACTION_STEPS = (80, 20, 70)
REACTION_STEP_S = 2.0
# Rows of the first rank are measured first: a load's rank and the limit's add up.
LIMIT_RANKS = {20: 0, 50: 1, 80: 1}
OTHER_LIMITS_RANK = 2


class Load:
    """kind: saturating; paced (waits for the host); torch; shared (several processes); reaction."""

    def __init__(self, name, kind, rank, *arguments, kernel_us=0.0, limits=None, processes=1):
        self.name, self.kind, self.rank, self.arguments = name, kind, rank, list(arguments)
        self.kernel_us, self.limits, self.processes = kernel_us, limits, processes
        self.script = os.path.join(HERE, "compute_work", arguments[0]) if kind == "torch" else None


def shape(name, kind, rank, of, kernel_us, *more, **options):
    return Load(name, kind, rank, "--shape", of, "--kernel-us", str(kernel_us), *more,
                kernel_us=float(kernel_us), **options)


LOADS = [
    shape("reaction", "reaction", 0, "full", 100, "--window-ms", "10", limits=(REACTION_STEPS[0],)),
    shape("full-10us", "saturating", 0, "full", 10),
    shape("full-100us", "saturating", 2, "full", 100),
    shape("full-1ms", "saturating", 0, "full", 1000),
    shape("full-5ms", "saturating", 1, "full", 5000),
    shape("full-50ms", "saturating", 1, "full", 50000),
    shape("one-block-10us", "saturating", 2, "one-block", 10),
    shape("one-block-100us", "saturating", 3, "one-block", 100),
    shape("one-block-1ms", "saturating", 0, "one-block", 1000),
    shape("one-block-5ms", "saturating", 3, "one-block", 5000),
    shape("graph-20x100us", "saturating", 0, "graph", 100),
    shape("cooperative-1ms", "saturating", 1, "cooperative", 1000),
    shape("per-thread-1ms", "saturating", 1, "per-thread-stream", 1000),
    shape("streams-4-1ms", "saturating", 1, "streams", 1000, "--streams", "4"),
    shape("streams-4-10us", "saturating", 3, "streams", 10, "--streams", "4"),
    shape("copies-1ms", "saturating", 2, "copies", 1000),
    shape("hostbound", "paced", 1, "hostbound", 20),
    shape("sync-100us", "paced", 1, "sync", 100),
    shape("sync-1ms", "paced", 3, "sync", 1000),
    shape("burst", "paced", 1, "burst", 1000),
    shape("host-function", "paced", 2, "host-function", 1000, limits=(10, 20)),
    shape("wait", "paced", 2, "wait", 1000, limits=(10, 20)),
    Load("torch-mlp", "torch", 1, "training_mlp.py"),
    Load("torch-conv", "torch", 1, "training_conv.py"),
    Load("torch-gemm", "torch", 1, "gemm.py"),
    Load("torch-graph", "torch", 1, "graph.py"),
    shape("processes-2", "shared", 1, "full", 1000, "--processes", "2", limits=(20, 60), processes=2),
    shape("processes-4", "shared", 2, "full", 1000, "--processes", "4", limits=(20, 60), processes=4),
]
BY_NAME = {load.name: load for load in LOADS}
ORDER = {load.name: place for place, load in enumerate(LOADS)}


def loads_named(words):
    """The loads that one of the comma-separated words names or matches (full-*, torch-*)."""
    chosen = []
    for word in words.split(","):
        found = [load for load in LOADS if fnmatch.fnmatchcase(load.name, word)]
        if not found:
            raise ValueError(f'no load is named "{word}"; there are {", ".join(BY_NAME)}')
        chosen += [load for load in found if load not in chosen]
    return sorted(chosen, key=lambda load: ORDER[load.name])


def limits_of(load, limits):
    """Those of the table's limits at which the load is measured; its own where it has any."""
    return list(load.limits) if load.limits else list(limits)


def importance(load, limit):
    own = load.limits and load.limits[0] == limit
    return load.rank + (0 if own else LIMIT_RANKS.get(limit, OTHER_LIMITS_RANK))


def cost_s(load, seconds, warmup):
    """About how long one measurement takes."""
    if load.kind == "reaction":
        return REACTION_STEP_S * len(REACTION_STEPS) + 1.5
    return seconds + warmup + (6 if load.kind == "torch" else 1.2)


def plan(loads, limits, missing, seconds, warmup, budget_s):
    """(what to measure: {load name: [limit...]}, what is left out). missing(load, limit) is how many
    limited measurements the pair lacks; a load's first pair also brings two native ones."""
    pairs = [(load, limit) for load in loads for limit in limits_of(load, limits) if missing(load, limit)]
    pairs.sort(key=lambda pair: (importance(*pair), ORDER[pair[0].name]))
    chosen, left_out, used = {}, [], 0.0
    for load, limit in pairs:
        natives = 0 if load.name in chosen or load.kind == "reaction" else 2
        cost = (missing(load, limit) + natives) * cost_s(load, seconds, warmup)
        if budget_s is not None and used + cost > budget_s:
            left_out.append((load.name, limit))
            continue
        used += cost
        chosen.setdefault(load.name, []).append(limit)
    return {name: sorted(chosen[name]) for name in sorted(chosen, key=ORDER.get)}, left_out
