# SPDX-License-Identifier: Apache-2.0
"""The loads of the accuracy table, and which rows to measure first where time is short."""
import fnmatch
import os

HERE = os.path.dirname(os.path.abspath(__file__))
# Four changes in each direction, after each of which the share of a second is looked at.
REACTION_STEPS = (70, 20, 70, 20, 70, 20, 70, 20, 70)
REACTION_STEP_S = 1.5
# Of rows that are as much needed, those of the first rank come first: a load's rank and the limit's add up.
LIMIT_RANKS = {20: 0, 50: 1, 80: 1}
OTHER_LIMITS_RANK = 2
LONGEST_COUNTED_US = 100000  # longer kernels are counted from end to end


class Load:
    """kind: saturating; paced (waits for the host); torch; shared (several processes); reaction; long (what a
    launch gate cannot hold within a point).
    by_work: NVML counts what is no kernel as utilisation. changes: natively some of its time goes to changes of
    context, of which a limit leaves fewer, so that more work than limit x native is no wrong. windows: it needs so many times the table's.
    share_ms: of a reaction, the time over which its share is taken: several kernels, or periods of windows.
    drifts: its native runs differ by more than 1 %, or its latency counts: measured natively twice.
    start_s: a program's time beside what it measures, as seen on a machine with an H200."""

    def __init__(self, name, kind, rank, *arguments, kernel_us=0.0, limits=None, processes=1, by_work=False,
                 windows=1, drifts=False, changes=False, share_ms=50, start_s=0.45):
        self.name, self.kind, self.rank, self.arguments = name, kind, rank, list(arguments)
        self.kernel_us, self.limits, self.processes = kernel_us, limits, processes
        self.by_work, self.windows, self.start_s = by_work, windows, start_s
        self.changes, self.share_ms = changes, share_ms
        self.natives = 0 if kind == "reaction" else 2 if drifts or kind == "paced" else 1
        self.script = os.path.join(HERE, "compute_work", arguments[0]) if kind == "torch" else None


def shape(name, kind, rank, of, kernel_us, *more, **options):
    return Load(name, kind, rank, "--shape", of, "--kernel-us", str(kernel_us), *more,
                kernel_us=float(kernel_us), **options)


LOADS = [
    shape("reaction", "reaction", 0, "full", 100, "--window-ms", "10", limits=(REACTION_STEPS[0],)),
    shape("reaction-5ms", "reaction", 1, "full", 5000, "--window-ms", "10", limits=(REACTION_STEPS[0],), share_ms=100),
    shape("reaction-persistent", "reaction", 1, "persistent", 1000, "--window-ms", "10", limits=(REACTION_STEPS[0],),
          share_ms=160),
    shape("full-10us", "saturating", 0, "full", 10),
    shape("full-100us", "saturating", 2, "full", 100),
    shape("full-1ms", "saturating", 0, "full", 1000),
    shape("full-5ms", "saturating", 1, "full", 5000),
    shape("full-50ms", "saturating", 1, "full", 50000, windows=3),
    shape("one-block-10us", "saturating", 2, "one-block", 10),
    shape("one-block-100us", "saturating", 3, "one-block", 100),
    shape("one-block-1ms", "saturating", 0, "one-block", 1000),
    shape("one-block-5ms", "saturating", 3, "one-block", 5000),
    shape("graph-20x100us", "saturating", 0, "graph", 100),
    shape("cooperative-1ms", "saturating", 1, "cooperative", 1000),
    shape("per-thread-1ms", "saturating", 1, "per-thread-stream", 1000),
    shape("streams-4-1ms", "saturating", 1, "streams", 1000, "--streams", "4"),
    shape("streams-4-10us", "saturating", 3, "streams", 10, "--streams", "4"),
    shape("copies-1ms", "saturating", 2, "copies", 1000, by_work=True, start_s=0.9),
    shape("hostbound", "paced", 1, "hostbound", 20),
    shape("sync-100us", "paced", 1, "sync", 100),
    shape("sync-1ms", "paced", 3, "sync", 1000),
    shape("burst", "paced", 1, "burst", 1000),
    shape("host-function", "paced", 2, "host-function", 1000, limits=(10, 20)),
    shape("wait-value", "paced", 2, "wait", 1000, limits=(10, 20)),
    shape("copy-1gib", "paced", 2, "copy", 100, "--period-ms", "100", limits=(10, 20), by_work=True, start_s=0.9),
    Load("torch-mlp", "torch", 1, "training_mlp.py", drifts=True, start_s=7),
    Load("torch-conv", "torch", 1, "training_conv.py", start_s=7),
    Load("torch-gemm", "torch", 1, "gemm.py", drifts=True, start_s=4),
    Load("torch-graph", "torch", 1, "graph.py", drifts=True, start_s=4),
    shape("processes-2", "shared", 1, "full", 1000, "--processes", "2", limits=(20, 60), processes=2, start_s=0.8),
    shape("processes-4", "shared", 2, "full", 1000, "--processes", "4", limits=(20, 60), processes=4,
          start_s=1.2),
]
# Of the tables of bench/tenants.py alone; windows of 10 ms say when the last kernel ended.
LONG = [
    shape("persistent", "long", 0, "persistent", 1000),
    shape("full-500ms", "long", 1, "full", 500000, "--window-ms", "10", windows=4),
    Load("graph-500ms", "long", 1, "--shape", "graph", "--kernel-us", "25000", "--window-ms", "10",
         kernel_us=500000.0, windows=4),
    shape("contexts-4-20ms", "long", 1, "full", 20000, "--contexts", "4", windows=3, changes=True, start_s=0.9),
]
PEERS = [
    shape("requests", "paced", 0, "sync", 100, "--period-ms", "10"),
    shape("full-20ms", "saturating", 0, "full", 20000),
    shape("full-150ms", "saturating", 0, "full", 150000),
    shape("half-busy", "paced", 0, "burst", 1000, "--burst-ms", "300", "--period-ms", "1000"),
]
BY_NAME = {load.name: load for load in LOADS + LONG + PEERS}
ORDER = {name: place for place, name in enumerate(BY_NAME)}


def loads_named(words):
    """The loads that one of the comma-separated words names or matches (full-*, torch-*)."""
    chosen = []
    for word in words.split(","):
        found = [load for load in LOADS if fnmatch.fnmatchcase(load.name, word)]
        if not found:
            raise ValueError(f'no load is named "{word}"; there are {", ".join(load.name for load in LOADS)}')
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
        return REACTION_STEP_S * len(REACTION_STEPS) + 1.3
    return seconds * load.windows + warmup + load.start_s


def plan(loads, limits, missing, natives, seconds, warmup, budget_s):
    """(what to measure: {load name: [limit...]}, what is left out, seconds that it takes).
    missing(load, limit) is how many limited measurements the pair lacks, natives(load) how many native ones
    the load does. A load with fewer limits measured comes first, before and after each choice: what was
    never measured, then what was measured least."""
    pairs = {load: [limit for limit in limits_of(load, limits) if missing(load, limit)] for load in loads}
    there = {load: len(limits_of(load, limits)) - len(pairs[load]) for load in loads}
    queue = []
    for load, lacking in pairs.items():
        lacking.sort(key=lambda limit, load=load: importance(load, limit))
        queue += [((there[load] + place, importance(load, limit), ORDER[load.name]), load, limit)
                  for place, limit in enumerate(lacking)]
    chosen, left_out, used = {}, [], 0.0
    for _, load, limit in sorted(queue, key=lambda each: each[0]):
        count = missing(load, limit) + (0 if load.name in chosen else natives(load))
        cost = count * cost_s(load, seconds, warmup)
        if budget_s is not None and used + cost > budget_s:
            left_out.append((load.name, limit))
            continue
        used += cost
        chosen.setdefault(load.name, []).append(limit)
    return {name: sorted(limits) for name, limits in chosen.items()}, left_out, used
