# SPDX-License-Identifier: Apache-2.0
"""share_table SOURCE BUILD: the accuracy table of compute limits, bench/compute.py, on the simulator and on
made-up rows."""
import io
import json
import os
import subprocess
import sys
import tempfile

import tap
from tap import equal, test, true

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
BENCH = os.path.join(SOURCE, "bench")
sys.path.insert(0, BENCH)
import compute_loads  # noqa: E402
import compute_report  # noqa: E402
import compute_watch  # noqa: E402

if not os.path.exists(os.path.join(BUILD, "sim")):
    os.symlink("src/sim", os.path.join(BUILD, "sim"))


def bench(*arguments):
    return subprocess.run([sys.executable, os.path.join(BENCH, "compute.py"), BUILD, *arguments],
                          capture_output=True, text=True, timeout=120)


def measure(directory, *arguments):
    """What is in the directory after a call: raw rows, the table, what was printed."""
    done = bench("--sim", "--output", directory, "--seconds", "0.3", "--warmup", "0.1", *arguments)
    true(done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr)
    with open(directory + "/rows.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    with open(directory + "/table.json", encoding="utf-8") as file:
        return rows, json.load(file), done.stdout


@test
def resumes():
    """each limit is measured after a native run, and what is there is not measured again"""
    with tempfile.TemporaryDirectory() as directory:
        only = ("--only", "full-1ms")
        rows, table, _ = measure(directory, *only, "--limits", "40")
        equal([(row["who"], row["limit"], row["error"]) for row in rows],
              [("native", 0, None), ("vgpu", 40, None)], "rows")
        row, = table["rows"]
        true(0.05 < row["native_work"] < 1.1 and 0 < row["work"] < 0.8, row)
        equal(round(row["work"], 9), round(row["of_native"] * row["native_work"], 9), "work")
        rows, table, printed = measure(directory, *only, "--limits", "40,60")
        equal([row["limit"] for row in rows], [0, 40, 60], "limits measured")
        equal([row["limit"] for row in table["rows"]], [40, 60], "limits in the table")
        equal(measure(directory, *only, "--limits", "40,60")[0], rows, "rows after one more call")
        again = measure(directory, "--report")
        equal((again[0], again[1], again[2].strip()), (rows, table, printed.strip()), "the report alone")
        true("| full-1ms |" in printed and "Simulated" in printed, printed)


@test
def other_library():
    """another library is measured beside ours, and one under which the load fails is told of"""
    with tempfile.TemporaryDirectory() as directory:
        rows, table, printed = measure(
            directory, "--only", "full-1ms", "--limits", "30", "--library", f"same={BUILD}/libvgpu.so",
            "--library", f"small={BUILD}/libvgpu.so,CUDA_DEVICE_MEMORY_LIMIT=1m")
        equal([row["who"] for row in rows], ["native", "vgpu", "same", "small"], "who was measured")
        equal([(row["who"], row["case"]) for row in table["rows"]], [("vgpu", "held"), ("same", "held")])
        true(0 < table["rows"][1]["work"] < 0.8, table["rows"][1])
        true("not measured: full-1ms at 30, small: exit status 1: vgpu-load: " in printed, printed)
        true("\nsame: " in printed, printed)


@test
def short_of_time():
    """what does not fit into the minutes is named"""
    with tempfile.TemporaryDirectory() as directory:
        done = bench("--sim", "--output", directory, "--only", "full-1ms,burst", "--limits", "20,95",
                     "--minutes", "0.05")
        equal((done.returncode, done.stderr), (1, ""), "status and measurements")
        true("left out for want of time: full-1ms at 20, 95; burst at 20, 95" in done.stdout, done.stdout)


@test
def importance():
    """a longer time keeps the rows of a shorter one"""
    shorter = 0
    for minutes in (1, 3, 7, 60):
        chosen, left_out, _ = compute_loads.plan(compute_loads.LOADS, [10, 20, 50, 80, 95], lambda *_: 1,
                                                 lambda load: load.natives, 5, 1, minutes * 60)
        rows = sum(map(len, chosen.values()))
        true(rows > shorter, f"{rows} rows in {minutes} minutes")
        true(20 in chosen["full-1ms"] and "reaction" in chosen, chosen)
        shorter = rows
    equal(left_out, [], "what an hour is too short for")


def raw(load, limit, who, work, nvml, latency=None, **more):
    result = {"work_per_second": work, "nvml_utilization": nvml, "seconds": 5.0, "cpu_seconds": 0.1,
              "latency_us": latency and {"p50": latency, "p99": latency, "count": 5}}
    return {"run": "1", "load": load, "limit": limit, "who": who, "error": None, "result": {**result, **more}}


def broken(load, limit, native, limited):
    """Case and broken promises of a made-up measurement, each (work, NVML, latency)."""
    table = compute_report.build([raw(load, 0, "native", *native), raw(load, limit, "vgpu", *limited),
                                  raw(load, 0, "native", *native)])
    row, = table["rows"]
    return row["case"], len(row["broken"])


@test
def promises():
    """a row is held to the promise for its kind of load"""
    full, burst = (1.0, 100), (0.2, 22, 10000)
    for load, limit, native, limited, wanted in (
            ("full-1ms", 20, full, (0.2, 20.9), ("held", 0)), ("full-1ms", 20, full, (0.2, 21.2), ("held", 1)),
            ("full-1ms", 20, full, (0.19, 20), ("held", 1)), ("full-1ms", 20, full, (0.19, 25), ("held", 2)),
            ("full-50ms", 20, full, (0.191, 20), ("held", 0)), ("full-50ms", 20, full, (0.18, 20), ("held", 1)),
            ("burst", 10, burst, (0.05, 11.9, 90000), ("held", 0)), ("burst", 10, burst, (0.1, 13, 1), ("held", 1)),
            ("burst", 50, burst, (0.2, 22, 10050), ("below", 0)), ("burst", 50, burst, (0.19, 22, 10050), ("below", 1)),
            ("burst", 50, burst, (0.2, 22, 10200), ("below", 2)), ("burst", 22, burst, (0.2, 23, 90000), ("at it", 0)),
            ("torch-mlp", 50, (100, 40), (99.5, 40), ("below", 0)),
            ("torch-mlp", 20, (100, 40), (50, 21.5), ("held", 0)),
            ("torch-gemm", 20, (100, 99), (19, 20), ("held", 1))):
        equal(broken(load, limit, native, limited), wanted, f"{load} at {limit}, {limited}")


@test
def parts():
    """processes of one container are held to equal parts"""
    for works, wanted in (((0.1, 0.1), 0), ((0.13, 0.07), 1)):
        processes = [raw("", 0, "", work, 20)["result"] for work in works]
        rows = [raw("processes-2", 0, "native", 1, 100), raw("processes-2", 20, "vgpu", 0.2, 20, processes=processes)]
        row, = compute_report.build(rows)["rows"]
        equal(len(row["broken"]), wanted, f"broken by {works}")


@test
def one_kernel():
    """a load of one process may lack one kernel of the window, and is named then"""
    for load, part, wanted in (("full-1ms", 0.971, (0, False)), ("full-1ms", 0.9685, (0, True)),
                               ("full-1ms", 0.967, (1, False)), ("full-5ms", 0.961, (0, True)),
                               ("full-5ms", 0.959, (1, False)), ("processes-2", 0.9695, (1, False))):
        table = compute_report.build([raw(load, 0, "native", 1, 100), raw(load, 10, "vgpu", 0.1 * part, 10)])
        row, = table["rows"]
        equal((len(row["broken"]), row["by_one_kernel"]), wanted, f"{load}, {part} of limit x native")
        out = io.StringIO()
        compute_report.write_compact(table, out)
        equal("less than one kernel" in out.getvalue(), row["by_one_kernel"], "the table says so")


@test
def charges():
    """a pause or a copy that is charged too much beside its kernels is told of"""
    for load, kernels_ms in (("host-function", 2), ("wait-value", 2), ("copy-1gib", 0.3)):
        native = raw(load, 0, "native", 0.003, 100, 50000)
        for charged_ms, wanted in ((4, 0), (6, 1)):
            limited = raw(load, 20, "vgpu", 0.003, 100, 50000)  # five in five seconds
            limited["watch"] = {"busy": 0, "charged": (charged_ms + kernels_ms) / 1000}
            native["result"]["nvml_utilization"] = 100 if load == "copy-1gib" else 0.3
            row, = compute_report.build([native, limited, native])["rows"]
            equal((row["case"], len(row["broken"])), ("below", wanted), f"{load}, {charged_ms} ms")


@test
def governors():
    """a governor that takes too much of a core is told of, each process's by itself, and what the load got apart"""
    for load, who, processes, took_ms, wanted in (
            ("full-1ms", "vgpu", 1, 4.9, 0), ("full-1ms", "vgpu", 1, 5.1, 1), ("full-1ms", "vgpu-channel", 1, 19, 0),
            ("full-50ms", "vgpu", 1, 19, 0), ("full-50ms", "vgpu", 1, 21, 1), ("persistent", "vgpu", 1, 19, 0),
            ("processes-4", "vgpu", 4, 16, 0), ("processes-4", "vgpu", 4, 21, 1), ("processes-4", "vgpu", 3, 16, 1)):
        limited = dict(raw(load, 20, who, 0.2, 20), watch={"busy": .2, "charged": .2, "closures": 0,
                                                           "governors": processes, "governor_cpu": took_ms / 1000})
        table = compute_report.build([raw(load, 0, "native", 1, 100), limited])
        row, = table["rows"]
        equal((len(row["broken"]), len(row["governor_broken"])), (0, wanted), f"{load} by {who}, {took_ms} ms/s")
        equal(compute_report.cell(row).endswith("^"), bool(wanted), "its mark")
        equal(compute_report.is_kept(table), not wanted or who != "vgpu", "verdict")


@test
def reactions():
    """a reaction is the time until the share over 50 ms is the new limit's"""
    times = [tick / 1000 for tick in range(3001)]
    for late_ms in (0, 30, 200):
        amounts = [0.8 * min(time, 1 + late_ms / 1000) + 0.2 * max(0, time - 1 - late_ms / 1000) for time in times]
        found = compute_watch.reaction(times, amounts, 1.0, 20, 0.05)
        true(late_ms - 5 <= 1000 * found["reaction_s"] <= late_ms, f"{found} of one after {late_ms} ms")
        equal(round(found["share_0_50ms"], 2), {0: 0.2, 30: 0.56, 200: 0.8}[late_ms], "the first 50 ms")
    never = compute_watch.reaction(times, times, 1.0, 20, 0.05)
    equal(never["reaction_s"], None, "the reaction of one that never comes")


def reaction_table(load, measured, region):
    """Of changes that took so long, None never, to 20 and 70 by turns; begun at the table's limit."""
    def steps(delays):
        return [{"limit": 20 if place % 2 == 0 else 70, "reaction_s": delay, "share_0_50ms": .2, "share_50_150ms": .2,
                 "share_150_1150ms": .2} for place, delay in enumerate(delays)]
    begin = compute_loads.BY_NAME[load].limits[0]
    row = raw(load, begin, "vgpu", 0.4, 50, measured=steps(measured), region=steps(region))
    return row, compute_report.build([row])


@test
def several_changes():
    """of several changes the median and the most are told, and one that is late is one too many"""
    row, table = reaction_table("reaction-5ms", [.01, 0, .02, 0, .04, 0], [.2] * 6)
    out = io.StringIO()
    compute_report.write_reactions(table, out)
    true("| reaction-5ms | 20 | the load | 3 | 20 | 40 | 0.200 |" in out.getvalue(), out.getvalue())
    true("| reaction-5ms | 70 | the meter | 3 | 200 | 200! |" in out.getvalue(), out.getvalue())
    equal((compute_report.is_kept(table), compute_report.kept_of([row])), (True, {("reaction-5ms", 70)}), "verdict")
    for delays in ([.01, .06], [None, .01]):
        equal(compute_report.is_kept(reaction_table("reaction-5ms", delays, [0, 0])[1]), False, f"after {delays}")
    # By the meter where the load counts nothing, as persistent ones on the simulator.
    equal([compute_report.is_kept(reaction_table("reaction-persistent", [], [delay])[1]) for delay in (.01, .06)],
          [True, False], "by the meter")


@test
def bad_input():
    """what is not accepted is named, with what is"""
    for arguments, said in ((["--only", "round"], "full-10us"), (["--limits", "20,x"], "percents from 1 to 99"),
                            (["--limits", "100"], "percents from 1 to 99"),
                            (["--library", "a=/no/such"], "of a file that is there"),
                            (["--library", f"vgpu={BUILD}/libvgpu.so"], "LABEL=PATH")):
        done = bench(*arguments)
        equal((done.returncode, said in done.stderr), (2, True), f"{arguments}: {done.stderr}")


tap.main()
