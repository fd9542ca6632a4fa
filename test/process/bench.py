# SPDX-License-Identifier: Apache-2.0
"""vgpu bench SOURCE BUILD on the simulator, with short loads: that each figure is measured or says why not, what
bad libraries, interrupts and arguments do. The figures themselves say nothing here."""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tap
from tap import Skip, equal, test, true

SOURCE, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
VGPU = os.path.join(BUILD, "vgpu")
BAD = os.path.join(BUILD, "test/process/libtest-bench-bad.so")
EMPTY = os.path.join(BUILD, "test/process/libtest-empty.so")
GROUPS = ["cost", "memory", "compute", "tenants", "work"]
MINE = {name: value for name, value in os.environ.items()
        if not name.startswith(("CUDA_", "VGPU_", "LD_", "NVIDIA_"))}
WHOLE_S = 400
ENDED_S = 20
DIRECTORY = tempfile.mkdtemp()
WHOLE = os.path.join(DIRECTORY, "whole")  # of the first test; others look at it
FIGURES = set("""
cost.launch.async cost.launch.sync cost.launch.graph cost.launch.added cost.alloc.live.added cost.alloc.1MiB cost.alloc.2MiB cost.alloc.64MiB
cost.alloc.async cost.alloc.live.10000 cost.alloc.added cost.query cost.start cost.init cost.init.added cost.context
cost.cpu.idle cost.cpu.idle.added cost.cpu.busy cost.cpu.added
memory.given memory.card memory.driver memory.above memory.unused memory.unseen memory.recovery memory.overshoot memory.refusal memory.kill
compute.native compute.share compute.throughput compute.error.100ms compute.error.1s compute.error.5s
compute.deviation.100ms compute.deviation.1s compute.change.limit compute.change.load compute.burst compute.below
tenants.share tenants.error tenants.sum tenants.latency.p50 tenants.latency.p99 tenants.greedy tenants.death.share
tenants.death.gap tenants.storm.rate
work.gemm work.training work.inference""".split())

if not os.path.exists(os.path.join(BUILD, "sim")):
    os.symlink("src/sim", os.path.join(BUILD, "sim"))


def temporary(name):
    """A TMPDIR of the run's own: what is left in it, and whose environment names it, the run left."""
    path = os.path.join(DIRECTORY, "tmp-" + name)
    os.makedirs(path, exist_ok=True)
    return path


def command(output, *arguments):
    return [VGPU, "bench", "--sim", "--seconds-scale", "0.02", "--output", output, *arguments]


def bench(output, *arguments, **options):
    done = subprocess.run(command(output, *arguments), capture_output=True, text=True, timeout=WHOLE_S,
                          env=dict(MINE, TMPDIR=temporary(os.path.basename(output))), check=False, **options)
    equal(done.returncode, 0, f"status of vgpu bench {arguments}, which says {done.stderr[-400:]!r}")
    return results_in(output)


def results_in(output):
    with open(os.path.join(output, "results.json"), encoding="utf-8") as file:
        return json.load(file)


def figures_of(results, group):
    return [figure for figure in results["figures"] if figure["group"] == group]


def results_for(results, label, *prefixes):
    """(id, case, result) of the subject's figures whose id begins so."""
    return [(figure["id"], figure["case"], result) for figure in results["figures"] for result in figure["results"]
            if result["subject"] == label and figure["id"].startswith(prefixes or "")]


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def left_of(path):
    """Processes whose environment names the directory."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [pid for pid in pids if f"TMPDIR={path}\0".encode() in environment_of(pid)]


def check_nothing_left(name):
    path, until = temporary(name), time.monotonic() + ENDED_S
    while left_of(path) and time.monotonic() < until:
        time.sleep(0.05)
    equal(left_of(path), [], "processes that are left")
    equal(os.listdir(path), [], "files that are left")


def one_line(done):
    return done.stderr.count("\n") == 1 and done.stderr.startswith("vgpu: bench: ")


def refuse(*arguments, status=2, within=""):
    done = subprocess.run([VGPU, "bench", *arguments], capture_output=True, text=True, timeout=60, env=MINE,
                          cwd=DIRECTORY, check=False)
    equal((done.returncode, done.stdout), (status, ""), f"status and output of {arguments}: {done.stderr}")
    true(one_line(done) and within in done.stderr, f"not one clear line with {within!r}: {done.stderr!r}")


@test
def test_whole():
    """the whole of it: each figure has its texts, and each subject's samples or why there are none"""
    results = bench(WHOLE, "--library", "vgpu", "--library", f"{BAD},BAD=crash", "--label", "crashes",
                    "--library", f"{BAD},BAD=crash,BAD_IN=cost", "--label", "crashes later")
    equal((results["version"], results["simulated"], results["mode"]), (1, True, "quick"), "version, simulated, mode")
    labels = [subject["label"] for subject in results["subjects"]]
    equal(labels, ["native", "vgpu", "crashes", "crashes later"], "subjects")
    builds = [subject["build"] for subject in results["subjects"]]
    true(builds[0] is None and re.fullmatch("[0-9a-f]{16}", builds[1]) and builds[1] != builds[2] == builds[3],
         f"builds of the libraries: {builds}")
    true(results["machine"]["gpu"].endswith("0 (simulated)") and results["machine"]["cores"] > 0, f"the machine is {results['machine']}")
    equal({figure["id"] for figure in results["figures"]}, FIGURES, "figures")
    equal(sorted({figure["group"] for figure in results["figures"]}, key=GROUPS.index), GROUPS, "groups")
    keys = [(figure["id"], figure["case"]) for figure in results["figures"]]
    equal(len(set(keys)), len(keys), "different figures and cases")
    true(all(part["simulated"] is True for figure in results["figures"] for part in [figure, *figure["results"]]),
         "figures and results that are not marked as simulated")
    for figure in results["figures"]:
        true(figure["title"] and len(figure["definition"]) > 20 and figure["unit"], f"texts of {figure['id']}")
        equal([result["subject"] for result in figure["results"]], labels, f"subjects of {figure['id']}")
    for name, case, result in [each for label in labels for each in results_for(results, label)]:
        if "missing" in result:
            true(result["missing"] and "time of its group" not in result["missing"], f"{name}, {case}: {result}")
            continue
        numbers = [*result["samples"], result["value"], result["low"], result["high"]]
        true(all(math.isfinite(number) for number in numbers), f"{name}, {case}: {numbers}")
        true(result["low"] <= result["value"] <= result["high"], f"{name}, {case}: the spread is none: {result}")
        true(1 <= len(result["samples"]) <= result["repetitions"], f"{name}, {case}: repetitions: {result}")
    check_nothing_left("whole")


@test
def test_measured():
    """native and the library have all figures but those that a simulator or a subject cannot have"""
    results = results_in(WHOLE)
    reasons = {result["missing"] for label in ("native", "vgpu") for name, _, result in results_for(results, label)
               if "missing" in result}
    # A load of a few milliseconds may follow a new limit late.
    known = {"native has no limit", "native is what is compared with", "of native alone",
             "more than the limit natively",
             "managed memory is on the card only where a kernel uses it", "cuBLAS does not run on the simulator",
             "PyTorch does not run on the simulator",
             "its tenants did not work at the same time", "it had ended before its neighbour was killed",
             "its load had not begun when the limit was changed", "its first load had not begun when the second did",
             "its neighbour did not work all the time", "it had not begun when its neighbour was killed",
             "the new limit was not reached and kept within the time that was looked at",
             "both together did not come and stay near the limit within the time that was looked at"}
    equal(reasons - known, set(), "reasons for missing figures")
    many = [result for _, _, result in results_for(results, "native", "cost.init")
            if "samples" in result]
    true(all(len(result["samples"]) >= 2 for result in many), f"cuInit was measured in several processes: {many}")
    for name in ("cost.launch.async", "cost.init", "cost.alloc.live.10000"):
        for figure in [figure for figure in results["figures"] if figure["id"] == name]:
            for result in figure["results"][:2]:
                true(result.get("value", 0) > 0, f"{name}: {result}")
    for label in ("native", "vgpu"):
        for name, case, result in results_for(results, label, "tenants.latency."):
            true("missing" in result or (result["value"] > 0 and result["repetitions"] > len(result["samples"])),
                 f"{name}, {case}: a request is a repetition: {result}")
    true(any("value" in result for _, case, result in results_for(results, "vgpu", "tenants.latency.p99")
             if case != "alone"), "no neighbour worked")


@test
def test_valued():
    """each figure that a load which begins late may miss has a value of the library, in a longer run if not in the first"""
    needed_ones = {name for name in FIGURES if name.startswith(("compute.", "tenants."))} - {"compute.native"}

    def lacking(results):
        return needed_ones - {name for name, _, result in results_for(results, "vgpu") if "value" in result}
    lacks = lacking(results_in(WHOLE))
    for scale in ("0.1", "0.3"):
        if lacks:
            groups = ",".join(sorted({name.split(".", maxsplit=1)[0] for name in lacks}))
            lacks &= lacking(bench(os.path.join(DIRECTORY, "valued"), "--only", groups, "--seconds-scale", scale))
    equal(lacks, set(), "figures without a value in any run")


@test
def test_added():
    """what a library adds is compared with what native took in the same round"""
    results = results_in(WHOLE)
    for case in ("no limit", "limits not reached"):
        native, ours, added = [[result["samples"] for _, of, result in results_for(results, label, name)
                                if of == case and "samples" in result][0]
                               for label, name in (("native", "cost.init"), ("vgpu", "cost.init"),
                                                   ("vgpu", "cost.init.added"))]
        true(len(native) == len(ours) == len(added) >= 2, f"{case}: samples {native}, {ours}, {added}")
        true(all(abs(more - (with_us - without)) < 1e-6 for more, with_us, without in zip(added, ours, native)),
             f"{case}: {added} are not {ours} less {native}")


@test
def test_turns():
    """what was measured in turn says so, with how many samples each process has"""
    turns = {figure["id"]: figure["turns"] for figure in results_in(WHOLE)["figures"]}
    equal({name for name, count in turns.items() if count}, {name for name in FIGURES if name.startswith(("cost.", "work."))},
          "what is measured in turn")
    equal([turns[name] for name in ("cost.launch.async", "cost.init", "cost.launch.added", "work.gemm", "tenants.sum")],
          [1, 1, 1, 3, None], "turns of a process, of which there is one in a test's run")


@test
def test_one_core():
    """in a round of turns each worker's main thread pins itself to the same CPU, and has its mask back after its turn"""
    masks, mine = os.path.join(DIRECTORY, "masks"), os.sched_getaffinity(0)
    bench(os.path.join(DIRECTORY, "cores"), "--only", "cost", *[
        word for label in ("one", "other") for word in ("--library", f"{BAD},BAD_MASKS={masks}", "--label", label)])
    with open(masks, encoding="ascii") as file:
        lines = [(word, *map(int, numbers)) for word, *numbers in map(str.split, file)]
    for worker in ("cost", "crowd"):
        calls = [numbers for word, *numbers in lines if word == worker]
        pins, backs = calls[::2], calls[1::2]
        true(pins and len(pins) % 4 == 0, f"pins of {worker}, each round of two libraries with two cases: {pins}")
        for (pid, thread, *cpus), (of, by, *former) in zip(pins, backs, strict=True):
            equal((thread, len(cpus)), (pid, 1), f"what is pinned in a turn of {worker}: the thread, to so many CPUs")
            equal((of, by, set(former)), (pid, pid, mine), f"the mask after a turn of {worker}")
        for begin in range(0, len(pins), 4):
            pids, _, cpus = zip(*pins[begin:begin + 4])
            true(len(set(pids)) == 4 and len(set(cpus)) == 1 and cpus[0] in mine, f"a round: {pids} at {cpus}")


@test
def test_derived():
    """what follows from other figures is judged: each tenant's distance from its limit, what is added to idle time"""
    results = results_in(WHOLE)
    samples = {(figure["id"], figure["case"]): result.get("samples") for figure in results["figures"]
               for result in figure["results"] if result["subject"] == "vgpu"}
    equal({case: figure["target"] for figure in results["figures"] for case in [figure["case"]]
           if figure["id"] == "tenants.error"}, {"30/60, first": 1, "30/60, second": 1}, "limits that can be promised")
    for case, limit in (("30/60, first", 30), ("30/60, second", 60)):
        share, error = samples["tenants.share", case], samples["tenants.error", case]
        true(share is error is None or all(abs(abs(at - limit) - off) < 1e-6 for at, off in zip(share, error, strict=True)),
             f"{case}: {share}, {error}")
    for limits in ("no limit", "limits not reached"):
        native = [result["samples"] for name, case, result in results_for(results, "native", "cost.cpu.idle")
                  if (name, case) == ("cost.cpu.idle", limits)]
        added = [more - less for more, less in zip(samples["cost.cpu.idle", limits], native[0], strict=True)]
        true(all(abs(one - other) < 1e-6 for one, other in zip(added, samples["cost.cpu.idle.added", limits], strict=True)),
             f"added to idle time, {limits}: {added}")


@test
def test_targets():
    """over 5 s a share may be a point off, and two where the load waits for the host"""
    targets = {figure["case"]: figure["target"] for figure in results_in(WHOLE)["figures"]
               if figure["id"] == "compute.error.5s"}
    equal(targets, {"1 ms kernels, limit 20": 1, "kernel and host work in turn, limit 50": 2,
                    "graphs of 20 × 100 µs, limit 50": 1}, "targets")


@test
def test_full_shapes():
    """--full measures all shapes of loads, among them cooperative launches, and bursts that would use more than the limit"""
    results = bench(os.path.join(DIRECTORY, "shapes"), "--full", "--only", "compute")
    limits = {}
    for name, case, _ in results_for(results, "vgpu", "compute.share"):
        limits.setdefault(case.rsplit(", limit ", 1)[0], []).append(int(case.rsplit(" ", 1)[1]))
    equal([limits.get(shape) for shape in ("1 ms kernels", "100 µs kernels", "1 ms cooperative kernels",
                                           "bursts of 20 ms each 50 ms", "5 ms kernels", "1 ms kernels of one block")],
          [[20, 50, 80], [50], [50], [20], [50], [50]], f"limits of {limits}")
    equal((len(limits), sum(map(len, limits.values()))), (14, 26), "shapes, and the runs of a library in a round")
    native = {case: result.get("value") for _, case, result in results_for(results, "native", "compute.native")}
    true(0.2 < native["bursts of 20 ms each 50 ms"] < 0.6, f"what they use natively: {native}")
    target = [figure["target"] for figure in results["figures"] if figure["id"] == "compute.share"
              and figure["case"] == "bursts of 20 ms each 50 ms, limit 20"]
    equal(target, [20], "what is due of the bursts")


@test
def test_memory_holds():
    """under the library no kind of allocation passes the limit, and what a program is told is what the card has"""
    results = results_in(WHOLE)
    for name, case, result in results_for(results, "vgpu", "memory.above", "memory.unseen", "memory.overshoot"):
        true("missing" in result or result["value"] <= 1, f"{name}, {case}: {result}")
    for name, case, result in results_for(results, "vgpu", "memory.recovery"):
        true(result["value"] >= 99, f"{name}, {case}: {result}")
    above, unused = [{case: result.get("value") for _, case, result in results_for(results, "vgpu", name)}
                     for name in ("memory.above", "memory.unused")]
    equal((above["cuMemAlloc"], above["cuMemAllocAsync"]), (0, -24), "what is left below the limit has its sign")
    equal({case: value and -value for case, value in above.items() if case != "local memory of a kernel"}, unused, "the same")


@test
def test_room():
    """a library that refuses too early leaves more of the limit unused than it may, and one that gives nothing has nothing
    to give back; what is on the card for a moment while processes race counts"""
    results = bench(os.path.join(DIRECTORY, "room"), "--only", "memory", *[
        word for label, library in (("half", "vgpu,CUDA_DEVICE_MEMORY_LIMIT=2048m,X={mib},CUDA_DEVICE_MEMORY_SHARED_CACHE={region}"),
                                    ("nothing", "vgpu,CUDA_DEVICE_MEMORY_LIMIT=522m,X={mib},CUDA_DEVICE_MEMORY_SHARED_CACHE={region}"),
                                    ("plain", f"{BAD},BAD=none"), ("surge", f"{BAD},BAD=surge,BAD_IN=race"))
        for word in ("--library", library, "--label", label)])
    unused = [(figure["target"], result["value"]) for figure in results["figures"] for result in figure["results"]
              if (figure["id"], figure["case"], result["subject"]) == ("memory.unused", "cuMemAlloc", "half")]
    equal(unused, [(64, 2048)], "target and what is unused")
    for case in ("cuMemAllocAsync", "memory of a graph"):
        equal([result.get("missing") for _, of, result in results_for(results, "nothing", "memory.recovery") if of == case],
              ["it was given none the first time"], case)
    plain, surge = [result["value"] for label in ("plain", "surge")
                    for _, _, result in results_for(results, label, "memory.overshoot")]
    true(surge >= plain + 64, f"overshoot: {plain}, for a moment {surge}")


@test
def test_not_refused():
    """what nothing refused, or was refused too late, has no figures of a refusal, and meets no target of one"""
    late = "vgpu,CUDA_DEVICE_MEMORY_LIMIT=6144m,X={mib},CUDA_DEVICE_MEMORY_SHARED_CACHE={region}"
    output = os.path.join(DIRECTORY, "not refused")
    results = bench(output, "--only", "memory", "--library", EMPTY, "--label", "empty", "--library", late, "--label", "late")
    for name, case, result in results_for(results, "empty", "memory.recovery", "memory.card", "memory.unseen", "memory.unused"):
        wanted = ({"nothing refused it"} if case != "cuMemAllocManaged" or name == "memory.recovery"
                  else {"managed memory is on the card only where a kernel uses it"})
        equal({result.get("missing")}, wanted, f"{name}, {case}")
    for label, least in (("empty", 4096), ("late", 2048)):
        for name, case, result in results_for(results, label, "memory.above"):
            true(case in ("cuMemAllocManaged", "local memory of a kernel") or result["value"] >= least - 64,
                 f"{label}: {name}, {case}: {result}")
    for name, case, result in results_for(results, "late", "memory.unused"):
        true(case == "cuMemAllocManaged" or "the limit was passed" in result.get("missing", ""), f"{name}, {case}: {result}")
    for name, case, result in results_for(results, "late", "memory.recovery"):
        true(result["value"] >= 99, f"{name}, {case}: {result}")
    with open(os.path.join(output, "report.html"), encoding="utf-8") as file:
        counts = re.search(r'href="#memory">.*?</tr>', file.read(), re.S)[0].split("<td>")
    true("targets met: 0 of" in counts[2], f"targets of the empty library: {counts}")


@test
def test_unlisted():
    """what the card holds in no process's name natively is shown and is no library's to see; what passes a limit is"""
    output = os.path.join(DIRECTORY, "unlisted")
    done = subprocess.run([VGPU, "bench", "--sim=unlisted=9MiB", "--seconds-scale", "0.02", "--output", output, "--only",
                           "memory", "--library", "vgpu", "--library", f"{BAD},BAD=none", "--label", "none"],
                          capture_output=True, text=True, timeout=WHOLE_S, check=False,
                          env=dict(MINE, TMPDIR=temporary("unlisted")))
    equal(done.returncode, 0, f"status of vgpu bench, which says {done.stderr[-400:]!r}")
    results = results_in(output)
    for label in ("native", "vgpu"):
        said = {case: result["value"] for _, case, result in results_for(results, label, "memory.driver")
                if "value" in result}
        equal((said["cuMemAlloc"], said["cuMemCreate"], said["4 processes"]), (9, 9, 36), f"of {label}: {said}")
    card = {case: result["value"] for _, case, result in results_for(results, "vgpu", "memory.card")
            if "value" in result}
    equal(card["cuMemAlloc"], 4096 + 9, f"the card's figure itself: {card}")
    for name, case, result in results_for(results, "vgpu", "memory.above", "memory.unseen", "memory.overshoot"):
        true("missing" in result or result["value"] <= 1, f"{name}, {case}: {result}")
    above = {case: result["value"] for _, case, result in results_for(results, "none", "memory.above")
             if "value" in result}
    true(above["cuMemAlloc"] > 4000 and above["cuMemCreate"] > 4000, f"without a limit: {above}")


@test
def test_not_listed():
    """where NVML lists no process, as in another PID namespace, what needs that is missing and says so"""
    output = os.path.join(DIRECTORY, "not listed")
    done = subprocess.run([VGPU, "bench", "--sim=unlisted=9MiB,nvml-pid=none", "--seconds-scale", "0.02", "--output", output,
                           "--only", "memory"], capture_output=True, text=True, timeout=WHOLE_S, check=False,
                          env=dict(MINE, TMPDIR=temporary("not-listed")))
    equal(done.returncode, 0, f"status of vgpu bench, which says {done.stderr[-400:]!r}")
    results = results_in(output)
    reasons = {result.get("missing") for _, case, result in
               results_for(results, "vgpu", "memory.driver", "memory.above", "memory.unseen", "memory.overshoot")
               if case != "cuMemAllocManaged"}
    equal(reasons, {"NVML lists no process: what the driver keeps for itself is not known"}, "reasons")
    card = {case: result["value"] for _, case, result in results_for(results, "vgpu", "memory.card")
            if "value" in result}
    equal(card["cuMemAlloc"], 4096 + 9, f"the card's figure itself: {card}")


@test
def test_crash():
    """a library that crashes is a figure's reason, at once or where it happens"""
    results = results_in(WHOLE)
    for name, case, result in results_for(results, "crashes"):
        true("signal 11" in result.get("missing", "") or result.get("missing", "").startswith(("of native", "PyTorch")),
             f"{name}, {case}: {result}")
    for name, case, result in results_for(results, "crashes later", "cost.launch", "cost.alloc.async", "cost.query"):
        true("signal 11" in result.get("missing", ""), f"{name}, {case}: {result}")
    for name, case, result in results_for(results, "crashes later", "cost.start", "cost.alloc.live", "cost.init"):
        true("value" in result, f"{name}, {case}: {result}")


@test
def test_not_holding():
    """a library that limits nothing is seen to: more than the limit on the card, and of the GPU"""
    results = results_in(WHOLE)
    for case in ("cuMemAlloc", "cuMemCreate", "cuArrayCreate"):
        above = [result for _, of, result in results_for(results, "crashes later", "memory.above") if of == case]
        true(above[0]["value"] > 1000, f"above the limit by {case}: {above}")
    shares = results_for(results, "crashes later", "compute.share")
    # All of the GPU on an idle machine; on a busy one the load itself gets less of the processor.
    true(any(result.get("value", 0) > 1.5 * int(case.split()[-1]) for _, case, result in shares), f"shares: {shares}")
    for name, case, result in results_for(results, "crashes later", "compute.throughput"):
        true("missing" in result or result["value"] <= 1, f"more than is due adds nothing: {name}, {case}: {result}")
    limits = {figure["id"]: (figure["better"], figure["target"]) for figure in results["figures"]}
    equal([limits[name] for name in ("memory.given", "compute.burst", "tenants.greedy")],
          [("target", 4096 - 520), ("target", 20), ("target", 70)], "what is to meet a limit: of memory less a context")


@test
def test_neighbours():
    """a neighbour that crashes, a load in which no request ends, and one that begins late are reasons, not figures"""
    behaviours = {"no greedy": "BAD=crash,BAD_IN=full", "no storm": "BAD=crash,BAD_IN=storm",
                  "no request": "BAD=drowse,BAD_IN=sync", "late": "BAD=late,BAD_IN=2.040"}
    libraries = [word for label, behaviour in behaviours.items()
                 for word in ("--library", f"{BAD},{behaviour}", "--label", label)]
    results = bench(os.path.join(DIRECTORY, "neighbours"), "--only", "tenants", *libraries)
    for label, neighbour, others in (("no greedy", "beside a greedy neighbour", "tenants.greedy"),
                                     ("no storm", "beside a storm of allocations", "tenants.storm.rate")):
        for name, case, result in results_for(results, label, "tenants.latency", others):
            if case == neighbour:
                true(result.get("missing", "").startswith("its neighbour failed: it ended by signal 11"),
                     f"{label}: {name}, {case}: {result}")
            elif case != "beside a greedy neighbour":  # which a slow machine may let begin late
                true("value" in result, f"{label}: {name}, {case}: {result}")
    for name, case, result in results_for(results, "no request", "tenants.latency"):
        true(re.fullmatch(r"no request ended in \d+\.\d s", result.get("missing", "")), f"{name}, {case}: {result}")
    equal({result.get("missing") for _, _, result in results_for(results, "late", "tenants.death")},
          {"it had not begun when its neighbour was killed"}, "reasons of a load that begins late")


@test
def test_alone():
    """without the load alone, natively, there is no share, and its failure is the reason; what needs none is there"""
    place, output = os.path.join(DIRECTORY, "no-load"), os.path.join(DIRECTORY, "alone failed")
    os.mkdir(place)
    for name in ("vgpu", "vgpu-bench", "libvgpu.so"):
        shutil.copy(os.path.join(BUILD, name), place)
    os.symlink(os.path.join(BUILD, "sim"), os.path.join(place, "sim"))
    with open(os.path.join(place, "vgpu-load"), "w", encoding="ascii") as file:
        file.write(f'#!/bin/sh\ncase "$*" in *"--warmup 0.300"*) echo gone >&2; exit 3 ;; esac\nexec {BUILD}/vgpu-load "$@"\n')
    os.chmod(os.path.join(place, "vgpu-load"), 0o755)
    done = subprocess.run([os.path.join(place, "vgpu"), *command(output, "--only", "tenants")[1:]], capture_output=True,
                          text=True, timeout=WHOLE_S, env=dict(MINE, TMPDIR=temporary("alone")), check=False)
    equal(done.returncode, 0, f"status, with {done.stderr[-400:]!r}")
    results = results_in(output)
    for label in ("native", "vgpu"):
        for name, case, result in results_for(results, label, "tenants.share", "tenants.sum", "tenants.greedy"):
            true(result.get("missing", "").startswith(("the load alone, natively: it ended with status 3", "its ")),
                 f"{label}: {name}, {case}: {result}")
    true(any("value" in result for _, _, result in results_for(results, "vgpu", "tenants.latency.p50")), "no latency")


@test
def test_idle_tenant():
    """--full measures a tenant that is idle and comes back beside a busy one: their shares, and how long its work takes"""
    results = bench(os.path.join(DIRECTORY, "idle tenant"), "--full", "--only", "tenants", "--seconds-scale", "0.1")
    figures = {(figure["id"], figure["case"]): figure for figure in results["figures"]}
    equal({case: figure["target"] for (name, case), figure in figures.items() if name == "tenants.idle.share"},
          {"the one always at work": 50, "the one that returns": 20}, "what is due")
    share, burst = [{result["subject"]: result.get("value", 0) for result in figures[key]["results"]}
                    for key in (("tenants.idle.share", "the one always at work"), ("tenants.idle.burst", ""))]
    true(share["native"] > share["vgpu"] > 20 and min(burst.values()) > 90, f"share {share}, burst {burst}")


@test
def test_late_changes():
    """a load that begins after its limit was changed, or after what is to change it, has no time of reaction"""
    preloads = f"{BAD}:{BUILD}/libvgpu.so:{BUILD}/sim/libvgpu-sim-rm.so"
    libraries = [word for late in ("5.000", "4.000") for word in
                 ("--library", f"vgpu,LD_PRELOAD={preloads},BAD=late,BAD_IN={late}", "--label", late)]
    results = bench(os.path.join(DIRECTORY, "late"), "--only", "compute", *libraries)
    for label, name, reason in (("5.000", "compute.change.limit", "its load had not begun when the limit was changed"),
                                ("4.000", "compute.change.load", "its first load had not begun when the second did")):
        equal([result.get("missing") for _, _, result in results_for(results, label, name)], [reason], name)


@test
def test_merge():
    """--only measures a group anew and keeps the others' figures and subjects"""
    before = results_in(WHOLE)
    after = bench(WHOLE, "--only", "work,cost")
    for group in ("memory", "compute", "tenants"):
        equal(figures_of(after, group), figures_of(before, group), f"figures of {group}")
    true(figures_of(after, "cost") != figures_of(before, "cost"), "cost was not measured again")
    equal([subject["label"] for subject in after["subjects"]],
          ["native", "vgpu", "crashes", "crashes later"], "subjects")
    equal({result["missing"] for name, _, result in results_for(after, "crashes", "cost")},
          {"this group was measured without it"}, "reasons of who was not measured")
    equal([figure["group"] for figure in after["figures"]],
          sorted([figure["group"] for figure in after["figures"]], key=GROUPS.index), "order of groups")


@test
def test_seed():
    """each run draws a seed and says it, and takes the one that it is given"""
    output = os.path.join(DIRECTORY, "seed")
    seeds = [bench(output, "--only", "work", *options)["seed"] for options in ((), (), ("--seed", "4294967295"))]
    true(seeds[0] != seeds[1] and min(seeds) > 0 and seeds[2] == 4294967295, f"seeds: {seeds}")
    for seed in ("0", "-1", "4294967296", "x", ""):
        refuse("--sim", "--seed", seed, "--output", output, within="accepted: 1 to 4294967295")


@test
def test_mismatch():
    """results of another mode, or of another library of the same label, are not added to"""
    before = results_in(WHOLE)
    refuse("--sim", "--seconds-scale", "0.02", "--output", WHOLE, "--full", "--only", "work", within="--quick")
    refuse("--sim", "--seconds-scale", "0.02", "--output", WHOLE, "--library", f"{BAD},A=b", "--label", "crashes",
           "--only", "work", within="another library")
    rebuilt = dict(before, subjects=[dict(subject, build=subject["build"] and "0" * 16) for subject in before["subjects"]])
    output = os.path.join(DIRECTORY, "rebuilt")
    os.mkdir(output)
    with open(os.path.join(output, "results.json"), "w", encoding="utf-8") as file:
        json.dump(rebuilt, file)
    refuse("--sim", "--seconds-scale", "0.02", "--output", output, "--only", "work", within="build of it")
    equal(results_in(WHOLE), before, "results")


@test
def test_parts():
    """calls of --only, one after the other into the same directory, make the report of one call"""
    output = os.path.join(DIRECTORY, "parts")
    bench(output, "--only", "tenants,work")
    bench(output, "--only", "cost,memory")
    results, whole = bench(output, "--only", "compute"), results_in(WHOLE)
    equal([(figure["id"], figure["case"], figure["unit"], figure["better"]) for figure in results["figures"]],
          [(figure["id"], figure["case"], figure["unit"], figure["better"]) for figure in whole["figures"]], "figures")
    reasons = {result["missing"] for label in ("native", "vgpu") for _, _, result in results_for(results, label)
               if "missing" in result}
    true("this group was measured without it" not in reasons, f"reasons: {reasons}")
    equal(sorted(os.listdir(output)), ["report.html", "results.json"], "files")
    with open(os.path.join(output, "report.html"), encoding="utf-8") as file:
        page = file.read()
    true(all(f'id="{name}"' in page for name in FIGURES), "figures that the page lacks")


@test
def test_damaged():
    """a results.json that is damaged is refused in one line and stays as it is"""
    output = os.path.join(DIRECTORY, "damaged")
    path = os.path.join(output, "results.json")
    os.mkdir(output)
    with open(os.path.join(WHOLE, "results.json"), encoding="utf-8") as file:
        good = file.read()
    for text in ("", "[]", good[:len(good) // 2], good.replace('"version": 1', '"version": 9'),
                 good.replace('"unit"', '"units"', 1), good.replace('"subject": "native"', '"subject": "x\\n\\u001by"', 1)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        refuse("--sim", "--output", output, within="results.json\" is not accepted: ")
        with open(path, encoding="utf-8") as file:
            equal(file.read(), text, "the file")


@test
def test_unloadable():
    """a file that is no library, and one that hangs, are reasons, and the others are measured"""
    output = os.path.join(DIRECTORY, "unloadable")
    text = os.path.join(DIRECTORY, "text.so")
    with open(text, "w", encoding="ascii") as file:
        file.write("no library")
    results = bench(output, "--library", text, "--library", f"{BAD},BAD=hang", "--label", "hangs", "--only", "cost")
    for name, case, result in results_for(results, "text.so"):
        true("preload" in result.get("missing", ""), f"{name}, {case}: {result}")
    for name, case, result in results_for(results, "hangs"):
        true("did not end within" in result.get("missing", ""), f"{name}, {case}: {result}")
    for name, case, result in results_for(results, "native", "cost.launch.async"):
        true("value" in result, f"{name}, {case}: {result}")
    check_nothing_left("unloadable")


@test
def test_hang_later():
    """a library that hangs while it is measured takes half of what is left of its group's time at most, by the real
    schedule of --quick, and what the others' processes measured beside it stays"""
    output = os.path.join(DIRECTORY, "hangs later")
    done = subprocess.run([VGPU, "bench", "--sim", "--only", "cost", "--output", output, "--library",
                           f"{BAD},BAD=hang,BAD_IN=cost", "--label", "hangs"], capture_output=True, text=True,
                          timeout=WHOLE_S, env=dict(MINE, TMPDIR=temporary("hangs later")), check=False)
    equal(done.returncode, 0, f"status, with {done.stderr[-400:]!r}")
    results = results_in(output)
    for name, case, result in results_for(results, "hangs", "cost.launch.async"):
        true("did not end within" in result.get("missing", ""), f"{name}, {case}: {result}")
    for name, case, result in results_for(results, "native", "cost.launch.async", "cost.query"):
        true("value" in result, f"{name}, {case}: {result}")
    check_nothing_left("hangs later")


@test
def test_cut_off():
    """what still runs shortly after its group's time is ended, by the real schedule of --quick, and says so"""
    output = os.path.join(DIRECTORY, "cut")
    done = subprocess.run([VGPU, "bench", "--sim", "--only", "memory", "--output", output, "--library",
                           f"{BAD},BAD=hang,BAD_IN=refuse", "--label", "hangs"], capture_output=True, text=True,
                          timeout=WHOLE_S, env=dict(MINE, TMPDIR=temporary("cut")), check=False)
    equal(done.returncode, 0, f"status, with {done.stderr[-400:]!r}")
    reasons = [result["missing"] for _, _, result in results_for(results_in(output), "hangs", "memory.given")]
    true(any(reason.endswith(", when the time of its group was used up") for reason in reasons), reasons)
    true(all(re.search("did not end within [0-9]{1,2} s|used up", reason) for reason in reasons), reasons)
    check_nothing_left("cut")


@test
def test_start_crash():
    """where a program that does nothing crashes, that is the reason why there is no time of its start"""
    output = os.path.join(DIRECTORY, "start")
    results = bench(output, "--library", f"{BAD},BAD=crash,BAD_IN=start", "--label", "crashes", "--only", "cost")
    for name, case, result in results_for(results, "crashes", "cost.start"):
        true("signal 11" in result.get("missing", ""), f"{name}, {case}: {result}")


@test
def test_daemons():
    """processes that a library leaves behind are ended"""
    output = os.path.join(DIRECTORY, "daemons")
    bench(output, "--library", f"{BAD},BAD=daemon", "--only", "work")
    check_nothing_left("daemons")


@test
def test_limit_variables():
    """a library is given its limits by the variables that its environment names"""
    output = os.path.join(DIRECTORY, "variables")
    library = os.path.join(BUILD, "libvgpu.so")
    results = bench(output, "--library", f"{library},CUDA_DEVICE_MEMORY_LIMIT_0={{mib}}m,"
                    "CUDA_DEVICE_MEMORY_SHARED_CACHE={region}", "--only", "memory")
    above = results_for(results, "libvgpu.so", "memory.above")
    true(all(result.get("value", 0) <= 1 for _, _, result in above), f"above the limit: {above}")
    results = bench(output, "--library", f"{library},CUDA_DEVICE_SM_LIMIT={{percent}},"
                    "CUDA_DEVICE_MEMORY_SHARED_CACHE={region}", "--label", "cores alone", "--only", "memory")
    equal({result["missing"] for name, _, result in results_for(results, "cores alone", "memory.")},
          {"no variable of its environment is said to be its memory limit"}, "reasons")


@test
def test_raw():
    """a library and its variables are given as they are, whatever bytes they have; what is shown of them is escaped, and
    the same ones are known again"""
    output, odd = os.path.join(DIRECTORY, "raw"), "tab\tline\nbyte\udcff"
    library, masks = os.path.join(DIRECTORY, odd + ".so"), os.path.join(DIRECTORY, odd + ".masks")
    shutil.copy(BAD, library)
    for only in ("cost", "work"):  # the second run adds to the first one's results
        done = subprocess.run([os.fsencode(word) for word in command(
            output, "--only", only, "--library", f"{library},BAD_MASKS={masks}", "--label", "la\tbel")], check=False,
            capture_output=True, timeout=WHOLE_S, env=dict(MINE, TMPDIR=temporary("raw")))
        equal(done.returncode, 0, f"status, with {done.stderr[-400:]!r}")
        true(b"\t" not in done.stdout and b"\xff" not in done.stdout, "the table's bytes")
    results = results_in(output)
    true(os.path.getsize(os.fsencode(masks)) > 0, "the variable's file")
    for name, case, result in results_for(results, r"la\tbel", "cost.launch.async"):
        true("value" in result, f"{name}, {case}: {result}")
    shown = [(subject["library"], subject["environment"]["BAD_MASKS"]) for subject in results["subjects"][1:]]
    escaped = os.path.join(DIRECTORY, r"tab\tline\nbyte\xff")
    equal(shown, [(escaped + ".so", escaped + ".masks")], "what is shown")


def interrupted(number, name):
    output, path = os.path.join(DIRECTORY, name), temporary(name)
    with subprocess.Popen(command(output), env=dict(MINE, TMPDIR=path), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as running:
        for line in running.stderr:
            if "compute:" in line:
                break
        time.sleep(0.2)
        running.send_signal(number)
        running.stderr.read()
        equal(running.wait(ENDED_S), -number, "status")
    return output


@test
def test_interrupt():
    """SIGINT and SIGTERM end it as they end others; no process or file is left, and finished groups are kept"""
    for number, name in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")):
        output = interrupted(number, name)
        check_nothing_left(name)
        equal({figure["group"] for figure in results_in(output)["figures"]}, {"cost", "memory"}, "groups that are kept")
        equal(os.listdir(output), ["results.json"], "files of the output")


@test
def test_killed():
    """SIGKILL leaves no process behind"""
    path, until = temporary("killed"), time.monotonic() + ENDED_S
    with subprocess.Popen(command(os.path.join(DIRECTORY, "killed"), "--library", f"{BAD},BAD=hang"),
                          env=dict(MINE, TMPDIR=path), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        while not any(b"BAD=hang" in environment_of(pid) for pid in left_of(path)):
            true(time.monotonic() < until, "nothing hung")
            time.sleep(0.02)
        running.kill()
    while left_of(path) and time.monotonic() < until:
        time.sleep(0.05)
    equal(left_of(path), [], "processes that are left")


@test
def test_arguments():
    """arguments that are off are refused in one line"""
    for arguments in (["--library"], ["--library", "/nowhere.so"], ["--library", "/tmp"], ["--library", f"{BAD},X"],
                      ["--library", f"{BAD},=x"], ["--label", "x"], ["--library", BAD, "--label", ""],
                      ["--library", BAD, "--label", "native"], ["--library", BAD, "--library", BAD],
                      ["--only", "everything"], ["--only", "cost,speed"], ["--quick=1"], ["--fast"], ["more"],
                      ["--output", ""], ["--seconds-scale", "0.5"], ["--sim", "--seconds-scale", "2"],
                      ["--sim", "--seconds-scale", "0"], ["--report", "--output", "/nowhere"], ["--quick", "--full"],
                      ["--full", "--sim", "--quick"]):
        done = subprocess.run([VGPU, "bench", *arguments], capture_output=True, text=True, timeout=60, env=MINE,
                              cwd=DIRECTORY, check=False)
        equal((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), f"answer to {arguments}")
    done = subprocess.run([VGPU, "bench", "--sim=no-such-word"], capture_output=True, text=True, timeout=60, env=MINE,
                          cwd=DIRECTORY, check=False)
    equal((done.returncode, done.stdout), (2, ""), "answer to a bad description")
    equal(os.listdir(DIRECTORY).count("vgpu-bench"), 0, "output directories that were made")
    refuse("--sim", "--output", "/dev/null/x", status=1, within="/dev/null/x")
    for options in (["--sim"], ["--report"]):
        refuse("--output", VGPU, *options, within="a directory, or one to be made")
    for options in (["--library", "vgpu"], ["--only", "cost"], ["--sim"], ["--full"], ["--quick"], ["--python", "python3"], ["--seed", "1"]):
        refuse("--report", *options, "--output", WHOLE, within="--report measures nothing; accepted beside it: --output")


@test
def test_python():
    """PyTorch's figures are what --python's program says in its turns; where it hangs under a library native has its own,
    and where there is none that is the reason. Products are measured by the libcublas.so that is found. The simulator stands for the GPU here without --sim, which leaves PyTorch
    out."""
    if os.path.exists("/dev/nvidiactl"):
        raise Skip("there is a GPU here")
    output, python, said = [os.path.join(DIRECTORY, name) for name in ("python", "program", "said")]
    with open(python, "w", encoding="ascii") as file:
        file.write(f'#!/bin/sh\n[ "$TWICE" ] && echo "$TWICE" >>"{said}"\n'
                   'case "$LD_PRELOAD" in *libvgpu*) exec sleep 1000 ;; esac\necho chatter\necho ready\n'
                   'while read -r name warmup seconds; do\n  sleep "$warmup"; sleep "$seconds"\n'
                   '  echo "work.$name 100.5 35"\n  echo done\ndone\n')
    os.chmod(python, 0o755)
    for program, found in ((python, True), ("/nowhere/python", False)):
        done = subprocess.run([VGPU, "bench", "--only", "work", "--output", output, "--python", program, "--library",
                               "vgpu,TWICE={percent}-{percent}%{mib,CUDA_DEVICE_MEMORY_SHARED_CACHE={region}"],
                              capture_output=True, text=True, timeout=WHOLE_S, check=False,
                              env=dict(MINE, TMPDIR=temporary("python"), LD_LIBRARY_PATH=f"{BUILD}/sim:{BUILD}/test/process"))
        equal(done.returncode, 0, f"status, with {done.stderr[-400:]!r}")
        results = results_in(output)
        products = [(label, case, result.get("value", 0)) for label in ("native", "vgpu")
                    for _, case, result in results_for(results, label, "work.gemm")]
        # A step is four products of a millisecond here, and the simulator does nothing on the GPU.
        equal([(label, case) for label, case, value in products if 10 < value <= 250],
              [("native", "no limit"), ("vgpu", "no limit"), ("vgpu", "limit 50")], f"steps of products: {products}")
        for name, case, result in results_for(results, "native", "work.training", "work.inference"):
            if case == "no limit" and found:
                equal((result["value"], result["repetitions"] % 105), (100.5, 0), name)
            elif case == "no limit":
                true("cannot run" in result["missing"] and program in result["missing"], f"{name}: {result}")
        for name, case, result in results_for(results, "vgpu", "work.training", "work.inference"):
            true(("did not end within" if found else "cannot run") in result["missing"], f"{name}, {case}: {result}")
    with open(said, encoding="ascii") as file:
        equal(set(file.read().split()), {"50-50%{mib"}, "a variable with a word twice, where there is such a limit")
    for name in os.listdir(temporary("python")):
        if name.startswith("vgpu-sim-"):  # the machine of the driver
            os.remove(os.path.join(temporary("python"), name))
    check_nothing_left("python")


@test
def test_no_gpu():
    """without a GPU it says so in one line"""
    if os.path.exists("/dev/nvidiactl"):
        raise Skip("there is a GPU here")
    refuse("--output", os.path.join(DIRECTORY, "no-gpu"), status=1, within="there is no GPU")


@test
def test_not_installed():
    """vgpu alone says in one line that vgpu-bench is not there"""
    place = os.path.join(DIRECTORY, "alone")
    os.mkdir(place)
    shutil.copy(VGPU, place)
    done = subprocess.run([os.path.join(place, "vgpu"), "bench"], capture_output=True, text=True, env=MINE, timeout=60,
                          check=False)
    equal((done.returncode, done.stdout), (1, ""), "status and output")
    true(one_line(done), f"one line: {done.stderr!r}")


@test
def test_documented():
    """docs/bench.md names each figure, and no other; the recorded run's table has the definitions of vgpu-bench"""
    with open(os.path.join(SOURCE, "docs/bench.md"), encoding="utf-8") as file:
        named = set(re.findall(r"`((?:cost|memory|compute|tenants|work)\.[A-Za-z0-9.]+)`", file.read()))
    full = FIGURES | {"cost.alloc.live.100000", "cost.alloc.live.100000.added", "tenants.idle.share", "tenants.idle.burst"}
    equal(named, full, "figures in the document")
    with open(os.path.join(SOURCE, "docs/benchmarks/README.md"), encoding="utf-8") as file:
        text = file.read()
    rows = re.findall(r"^\| `([a-zA-Z0-9.]+)` \| [^|]+ \| [^|]{20,} \| [^|]+ \| [^|]+ \|$", text, re.M)
    equal(set(rows), full, "figures in the recorded run's table")
    done = subprocess.run([os.path.join(SOURCE, "scripts/bench-figures"), "--check", BUILD], check=False)
    equal(done.returncode, 0, "status of scripts/bench-figures --check")
    said = subprocess.run([os.path.join(BUILD, "vgpu-bench"), "--definitions"], check=True, capture_output=True, text=True).stdout
    defined = {line.split("\t")[0]: line.split("\t")[2:] for line in said.splitlines()}
    equal(set(defined), full, "figures that vgpu-bench defines")
    for figure in results_in(WHOLE)["figures"]:
        equal([figure["unit"], figure["definition"]], defined[figure["id"]], f"unit and definition of {figure['id']}")
    recorded = dict(re.findall(r"^\| `([a-zA-Z0-9.]+)` \| [^|]+ \| ([^|]{20,}) \| [^|]+ \| [^|]+ \|$", text, re.M))
    equal(recorded, {name: definition for name, (_, definition) in defined.items()}, "definitions in the table")


tap.main()
