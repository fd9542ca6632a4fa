# SPDX-License-Identifier: Apache-2.0
"""bench_example KIND DIRECTORY: writes a results.json of figures that were made up, to see and to test
what the report makes of it. Kinds: two, three (subjects), simulated, hostile, many (subjects), one
(figure)."""
import json
import os
import random
import sys

MACHINE = {"gpu": "NVIDIA H200", "driver": "580.159.04", "cuda": "13.0",
           "cpu": "Intel(R) Xeon(R) Platinum 8480C", "cores": 16,
           "kernel": "6.8.0-51-generic", "when": "2026-11-21T16:26:15Z"}
SUBJECTS = [
    {"label": "native", "library": None, "environment": {}},
    {"label": "vgpu", "library": "/usr/lib/libvgpu.so", "environment": {}},
    {"label": "hami-core", "library": "/usr/local/vgpu/libvgpu.so",
     "environment": {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/hami/cache",
                     "CUDA_REDIRECT": "/usr/local/vgpu/libvgpu.so"}},
]
LOADS = {"full-1ms": (0.2, 40), "full-10us": (0.5, 12), "one-block-1ms": (0.1, 80),
         "graph-20x100us": (0.3, 80), "hostbound": (0.8, 30)}
HOSTILE = "</script><script>alert(1)</script>\"'&<img src=http://x/y onerror=z>]]><!-- \u202e"


def quantile(values, part):
    values, place = sorted(values), part * (len(values) - 1)
    below = int(place)
    return values[below] + (values[min(below + 1, len(values) - 1)] - values[below]) * (place - below)


def result(subject, samples, repetitions=None):
    return {"subject": subject, "value": quantile(samples, 0.5), "low": quantile(samples, 0.1),
            "high": quantile(samples, 0.9), "repetitions": repetitions or len(samples),
            "samples": samples}


class Example:
    """Samples around the values that are given, the same ones in each run."""

    def __init__(self, subjects):
        self.random, self.subjects, self.figures = random.Random(20261121), subjects, []

    def samples(self, middle, spread, count):
        return [round(middle * (1 + self.random.gauss(0, spread) + spread * self.random.expovariate(2)), 6)
                for _ in range(count)]

    def figure(self, group, name, title, definition, unit, values, case="", better="lower",
               target=None, spread=0.01, count=41, repetitions=None, missing=None, turns=None):
        """values: of each subject; None for one that is missing."""
        results = []
        for subject, value in zip(self.subjects, values):
            if value is None:
                results.append({"subject": subject["label"],
                                "missing": missing or "the program ended by signal 11 before it measured"})
            else:
                results.append(result(subject["label"], self.samples(value, spread, count), repetitions))
        self.figures.append({"id": f"{group}.{name}", "group": group, "title": title,
                             "definition": definition, "unit": unit, "better": better, "target": target,
                             "case": case, "turns": turns, "results": results})

    def cost(self):
        self.figure("cost", "launch.async", "Launch, asynchronous",
                    "The time of the calling thread in cuLaunchKernel of an empty kernel, in batches of 200 "
                    "that fit into the queue, waited for in between.", "µs", [2.61, 2.62, 3.42],
                    repetitions=2001)
        self.figure("cost", "launch.sync", "Launch and wait",
                    "cuLaunchKernel of an empty kernel and cuStreamSynchronize.", "µs", [7.6, 7.61, 8.9],
                    spread=0.03, repetitions=2001)
        self.figure("cost", "launch.graph", "Launch of a graph",
                    "cuGraphLaunch of 20 empty kernels, asynchronous.", "µs", [11.8, 11.9, None],
                    missing="cuGraphLaunch answered CUDA_ERROR_INVALID_VALUE (1)")
        for size, native, hami in (("1 KiB", 1.9, 9.1), ("1 MiB", 55, 64), ("64 MiB", 212, 230),
                                   ("1 GiB", 1610, 1633)):
            self.figure("cost", "allocate.size", "Allocate and free, by size",
                        "cuMemAlloc and cuMemFree of that size, with 10 live allocations.", "µs",
                        [native, native * 1.01, hami], case=size, spread=0.04, repetitions=501)
        for live, native, hami in (("10 live", 55, 64), ("1,000 live", 55.2, 70),
                                   ("100,000 live", 58, 629)):
            self.figure("cost", "allocate.live", "Allocate and free, by live allocations",
                        "cuMemAlloc and cuMemFree of 1 MiB beside so many that live.", "µs",
                        [native, native * 1.014, hami], case=live, spread=0.04, repetitions=501)
        self.figure("cost", "init", "cuInit", "The first cuInit of a process.", "ms", [98.3, 99.1, 282],
                    spread=0.02, count=9)
        self.figure("cost", "init.added", "Added to cuInit",
                    "Median of cuInit less the native median of the same round.", "ms", [None, 0.8, 183],
                    target=2, spread=0.2, count=9, missing="native is what is compared with")
        self.figure("cost", "background", "Background CPU",
                    "CPU time of all threads of a process that holds a context and does nothing, in percent of "
                    "one core over 10 s.", "% of a core", [0, 0, 1.5], target=0, count=3)

    def memory(self):
        for kind in ("cuMemAlloc", "cuMemAllocAsync", "cuMemCreate", "cuArrayCreate", "local memory",
                     "graph memory"):
            blind = kind in ("cuArrayCreate", "local memory", "graph memory")
            self.figure("memory", "refusal", "Refusal point",
                        "Bytes on the card, by the card's own figure, when the first allocation of 32 MiB is "
                        "refused, less the limit of 10 GiB.", "MiB",
                        [None, -22, 133_000 if blind else -1300], case=kind, target=0, spread=0.001, count=3,
                        missing="native has no limit")
        self.figure("memory", "overshoot", "Overshoot of 16 racing processes",
                    "The most that the card's own figure was above the limit while 16 processes allocated.",
                    "MiB", [None, 0, 2210], target=0, spread=0.2, count=5, missing="native has no limit")
        self.figure("memory", "refusal.time", "Time of a refusal", "cuMemAlloc that does not fit.", "µs",
                    [3900, 1.24, 4.4], target=1, spread=0.05, repetitions=2001)

    def compute(self):
        for load, (ours, theirs) in LOADS.items():
            for limit in (10, 20, 50, 80, 95):
                wrong = min(100, limit + theirs)
                due = 88.5 if (load, limit) == ("hostbound", 95) else limit  # it needs no more
                self.figure("compute", "share", "Share of GPU time against the limit",
                            "Utilisation by NVML over windows of 1 s, 5 s in all after 1 s of warm-up.", "%",
                            [None, due + ours * self.random.choice((-1, 1)),
                             wrong if limit in (20, 50, 80) else None],
                            case=f"{load}, limit {limit}", better="target", target=due,
                            spread=0.006, count=5,
                            missing="native has no limit" if limit in (20, 50, 80) else "not at this limit by --quick")
            for limit in (20, 50, 80):
                self.figure("compute", "throughput", "Throughput against entitlement",
                            "Kernels per second, divided by limit × native.", "ratio",
                            [None, 0.993 + ours / 100, min(100, limit + theirs) / limit],
                            case=f"{load}, limit {limit}", better="higher", target=0.97, spread=0.004, count=5,
                            missing="native has no limit")
        self.figure("compute", "reaction.limit", "Reaction to a change of limit",
                    "Time until the share over the next 50 ms is within 10 % of the new limit.", "ms",
                    [None, 23, None], target=50, spread=0.3, count=7, missing="it reads its limit once, at the start")

    def tenants(self):
        for case, ours, theirs in (("30/60, first", 29.8, 45.9), ("30/60, second", 59.5, 45.9)):
            self.figure("tenants", "share", "Share of each of two tenants", "Its kernels per second, by those alone.",
                        "%", [45.9, ours, theirs], case=case, better="target",
                        target=30 if "first" in case else 60, count=5)
        self.figure("tenants", "sum", "Sum of two busy tenants at 50/50", "Both throughputs, each by its own alone.",
                    "ratio", [0.917, 0.968, 0.918], better="higher", target=0.96, count=5)
        for tail, values in (("p50", [0.12, 0.13, 1.9]), ("p99", [2.1, 0.9, 240.5])):
            self.figure("tenants", f"latency.{tail}", f"Latency beside a greedy tenant, {tail}",
                        "From the request to the end of a kernel of 100 µs, one each 10 ms.", "ms", values,
                        spread=0.1, count=61, repetitions=500)

    def work(self):
        self.figure("work", "gemm", "GEMM chain", "cuBLAS, bf16, 8,192².", "steps/s", [118.2, 118.1, 117.4],
                    better="higher", count=5)
        self.figure("work", "torch", "PyTorch training step", "A small convolutional network.", "steps/s",
                    [None, None, None], better="higher",
                    missing="no Python with PyTorch was found (looked for: python3, /opt/venv/bin/python)")

    def hostile(self):
        """Figures as no program would measure them."""
        text = HOSTILE
        self.figure("work", "x" + text, "Title " + text, "Definition " + text, "unit " + text, [1, 2, None],
                    case="case " + text, missing="reason " + text)
        self.figure("work", "long", "A title that " + "goes on and on " * 12, "W" * 300, "unit" * 6,
                    [1e-9, 3.5e13, 2], case="very " * 40 + "long case")
        self.figure("work", "wide", "日本語のとても長い題名" * 5, "幅の広い文字 and a\u0301ccents, \U0001f600",
                    "µs", [1e300, 2e-300, 4])
        self.figure("work", "huge", "Huge values", "Close to what doubles have.", "ns", [1.5e308, 1e-5, 0],
                    spread=0)
        self.figure("work", "negative", "Negative values", "Below nothing.", "points", [-5, -0.25, 3], spread=0.1)
        self.figure("work", "single", "One sample", "Measured once.", "s", [12, 13, 14], count=1)
        self.figure("work", "nothing", "Zeros", "All are zero.", "MiB", [0, 0, 0])


def subjects_of(kind):
    if kind == "two":
        return SUBJECTS[:2]
    if kind == "many":
        return SUBJECTS + [{"label": f"library number {i} of a long name {'very ' * i}", "library": f"/lib/{i}.so",
                            "environment": {}} for i in range(3, 10)]
    if kind == "hostile":
        return [SUBJECTS[0],
                {"label": "ours " + HOSTILE, "library": "/lib/" + HOSTILE, "environment": {"A" + HOSTILE: HOSTILE}},
                {"label": "日本語のライブラリの長い名前", "library": "/lib/ü.so", "environment": {}}]
    return SUBJECTS


def make(kind):
    """The document of that kind."""
    example = Example(subjects_of(kind))
    if kind == "one":
        example.figure("cost", "launch.async", "Launch, asynchronous", "An empty kernel.", "µs", [2.61, 2.62, 3.4])
    elif kind == "hostile":
        example.hostile()
    else:
        for group in (example.cost, example.memory, example.compute, example.tenants, example.work):
            group()
    machine = dict(MACHINE, gpu=HOSTILE, cpu="cpu\u001b[31m" + HOSTILE) if kind == "hostile" else MACHINE
    return {"version": 1, "simulated": kind in ("simulated", "hostile"), "mode": "quick" if kind == "two" else "full",
            "machine": machine, "subjects": example.subjects, "figures": example.figures}


def write(kind, directory):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "results.json"), "w", encoding="utf-8") as file:
        json.dump(make(kind), file, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2])
