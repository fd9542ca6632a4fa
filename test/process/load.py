# SPDX-License-Identifier: Apache-2.0
"""vgpu-load BUILD: each shape on the simulator, calibration files, bad input, and how it ends."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

import tap
from tap import equal, test, true

BUILD = os.path.abspath(sys.argv[1])
VGPU = os.path.join(BUILD, "vgpu")
LOAD = os.path.join(BUILD, "vgpu-load")
MINE = {name: value for name, value in os.environ.items()
        if not name.startswith(("CUDA_", "VGPU_", "LD_", "NVIDIA_"))}
FORMS = ("full", "one-block", "graph", "cooperative", "persistent")
DIRECTORY = tempfile.TemporaryDirectory()
CALIBRATION = os.path.join(DIRECTORY.name, "calibration")
# What the simulator's kernels do: one step a nanosecond.
with open(CALIBRATION, "w", encoding="ascii") as calibration_file:
    json.dump({"calibrated_on": "NVIDIA H200",
               **{form: {"steps_per_us": 1000, "overhead_us": 0} for form in FORMS}},
              calibration_file)

if not os.path.exists(os.path.join(BUILD, "sim")):
    os.symlink("src/sim", os.path.join(BUILD, "sim"))


def command(*arguments, sim="--sim", program=LOAD):
    return [VGPU, "run", sim, "--", program, *arguments]


def run(*arguments, **options):
    return subprocess.run(command(*arguments, **options), env=MINE, capture_output=True, text=True,
                          timeout=60)


def start(*arguments, **options):
    return subprocess.Popen(command(*arguments, **options), env=MINE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def load(*arguments):
    done = run("--json", "--calibration", CALIBRATION, *arguments)
    equal((done.returncode, done.stderr), (0, ""), "status and messages")
    return json.loads(done.stdout)


def best(*arguments):
    """The attempt with the most work: a busy machine may stop us for longer than what is queued."""
    reports = []
    while len(reports) < 4:
        reports.append(load(*arguments))
        if reports[-1]["work_per_second"] >= 0.9:
            break
    return max(reports, key=lambda report: report["work_per_second"])


def between(value, low, high, what):
    true(low <= value <= high, f"{what} is {value}, not between {low} and {high}")


@test
def saturating():
    """shapes that would use the whole device use nearly all of it"""
    for shape in ("full", "one-block", "graph", "cooperative", "per-thread-stream", "persistent",
                  "streams"):
        report = best("--shape", shape, "--kernel-us", "500", "--seconds", "0.6")
        equal(report["shape"], shape)
        between(report["work_per_second"], 0.8, 1.02, f"{shape}: work per second")
        between(report["kernels"] * 500e-6 / report["seconds"],
                report["work_per_second"] - 0.01, report["work_per_second"] + 0.01, "kernels")


@test
def old_drivers():
    """an old driver's graphs, and the thread's own stream without cuGetProcAddress"""
    for shape, description in (("graph", "driver=440"), ("per-thread-stream", "driver=440"),
                               ("per-thread-stream", "no-procaddress")):
        done = run("--json", "--calibration", CALIBRATION, "--shape", shape, "--kernel-us", "500",
                   "--seconds", "0.3", sim="--sim=" + description)
        equal((done.returncode, done.stderr), (0, ""), f"{shape}, {description}")
        between(json.loads(done.stdout)["work_per_second"], 0.1, 1.02, f"{shape}, {description}")


@test
def short_kernels():
    """kernels of 20 us keep the device busy, too"""
    between(best("--kernel-us", "20", "--seconds", "0.6")["work_per_second"], 0.5, 1.02, "work")


@test
def windows():
    """the report has a figure for each half second, and the process's own time"""
    report = load("--kernel-us", "500", "--seconds", "0.5", "--window-ms", "10")
    between(len(report["windows"]), 50, 300, "windows of 10 ms")
    equal(report["window_ms"], 10, "their length")
    # A host that stood still finds its whole queue, 64 ms, done in the window that is not whole.
    between(sum(report["windows"]) * 0.01 - report["work_per_second"] * report["seconds"], -0.075,
            0.001, "what their sum is off")
    report = best("--kernel-us", "500", "--seconds", "1.2", "--warmup", "0.1")
    between(report["seconds"], 1.2, 3, "seconds")
    equal(len(report["windows"]), int(report["seconds"] * 2), "windows")
    for work in report["windows"]:
        between(work, 0.3, 1.3, "work in a window")
    between(report["cpu_seconds"], 0.0001, 1.2, "CPU seconds")
    between(report["nvml_utilization"], 50, 100, "NVML's utilisation")
    equal((report["latency_us"], report["stopped"]), (None, False), "latency, stopped")


@test
def copies():
    """copies run beside the kernels"""
    report = best("--shape", "copies", "--copy-size", "256k", "--kernel-us", "500", "--seconds",
                  "0.6")
    between(report["work_per_second"], 0.5, 1.02, "work")
    between(report["copies"], 2, 1e9, "copies")


@test
def hostbound():
    """a host-bound load leaves the device idle in between"""
    report = load("--shape", "hostbound", "--seconds", "0.6", "--host-us", "100")
    between(report["work_per_second"], 0.005, 0.21, "work")
    between(report["kernel_us"], 19.9, 20.1, "the shape's own kernel length")


@test
def sync():
    """launch and synchronise tells the latency of each"""
    report = load("--shape", "sync", "--kernel-us", "300", "--seconds", "0.6")
    between(report["work_per_second"], 0.05, 1.0, "work")
    latency = report["latency_us"]
    equal(latency["count"] - report["kernels"] in (0, 1), True, "a latency for each kernel")
    true(300 <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"], latency)


@test
def requests():
    """launch and synchronise each period does no more than that"""
    report = load("--shape", "sync", "--kernel-us", "100", "--period-ms", "20", "--seconds", "0.6")
    between(report["kernels"], 3, 31, "kernels")


@test
def contexts():
    """kernels in several contexts of a process all run"""
    report = load("--contexts", "3", "--kernel-us", "2000", "--seconds", "0.6")
    between(report["work_per_second"], 0.2, 1.02, "work")


@test
def burst():
    """bursts use their share of the time, with the latency of each"""
    report = load("--shape", "burst", "--burst-ms", "10", "--period-ms", "50", "--seconds", "0.6")
    between(report["work_per_second"], 0.05, 0.25, "work")
    true(report["latency_us"]["p50"] >= 10000, report["latency_us"])


@test
def pauses():
    """a host function and a wait take their time on the stream"""
    for shape in ("host-function", "wait"):
        report = load("--shape", shape, "--pause-ms", "150", "--seconds", "0.6")
        between(report["latency_us"]["p50"], 150000, 600000, f"{shape}: latency")
        between(report["latency_us"]["count"], 1, 4, f"{shape}: pauses")
        between(report["work_per_second"], 0.0001, 0.1, f"{shape}: work")


@test
def copy():
    """a copy between kernels, and a kernel beside it, each period"""
    report = load("--shape", "copy", "--copy-size", "256m", "--kernel-us", "100", "--period-ms", "50", "--seconds", "0.6")
    # 25 GB/s, and what the processor takes to move the contents.
    between(report["latency_us"]["p50"], 10000, 600000, "latency")
    between(report["copies"], 1, 13, "copies")
    equal(report["kernels"], 3 * report["copies"], "kernels")


@test
def processes():
    """several processes begin together and share the device"""
    report = best("--processes", "3", "--kernel-us", "500", "--seconds", "0.8")
    works = [each["work_per_second"] for each in report["processes"]]
    equal(len(works), 3, "processes")
    between(min(works), 0.05, 0.7, "the least work of one")
    between(report["work_per_second"], 0.6, 1.03, "the sum")
    between(report["work_per_second"] - sum(works), -0.001, 0.001, "what the sum is off")


@test
def calibrates():
    """it calibrates itself, and a saved calibration or a report can be used by a later run"""
    path = os.path.join(DIRECTORY.name, "saved")
    done = run("--json", "--seconds", "0.2", "--save-calibration", path)
    equal((done.returncode, done.stderr), (0, ""), "status and messages")
    with open(path, encoding="ascii") as saved:
        equal(json.loads(saved.read()), json.loads(done.stdout)["calibration"], "what was saved")
    report = os.path.join(DIRECTORY.name, "report")
    with open(report, "w", encoding="ascii") as file:
        file.write(done.stdout)
    for source in (path, report):
        for shape in ("full", "one-block", "graph", "cooperative", "persistent"):
            done = run("--json", "--seconds", "0.1", "--shape", shape, "--calibration", source)
            equal((done.returncode, done.stderr), (0, ""), shape)
            rate = json.loads(done.stdout)["calibration"][shape]["steps_per_us"]
            between(rate, 300, 1100, f"{shape}: steps per us")


@test
def other_device():
    """a calibration of another device is used, and that said"""
    done = run("--json", "--seconds", "0.1", "--calibration", CALIBRATION, sim="--sim=a100")
    equal(done.returncode, 0, done.stderr)
    true("NVIDIA H200" in done.stderr and "A100" in done.stderr, done.stderr)
    between(json.loads(done.stdout)["kernels"], 1, 1000, "kernels")


@test
def lines():
    """people get a line each half second and a summary, each when it is known"""
    process = start("--seconds", "0", "--calibration", CALIBRATION)
    for _ in range(2):
        line = process.stdout.readline()
        true(re.match(r" +\d+\.\d s  work \d\.\d{3}  \d+ kernels/s", line), line)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    equal((process.returncode, err), (0, ""), "status and messages")
    true(out.splitlines()[-1].startswith("full of 1000.0 us for "), out)


@test
def stopped():
    """SIGTERM ends each shape early with its report"""
    for shape in ("full", "persistent", "sync", "host-function", "wait", "copy"):
        process = start("--seconds", "0", "--shape", shape, "--calibration", CALIBRATION)
        equal(process.stdout.readline()[:2], "  ", "begin of the first line")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        equal((process.returncode, err), (0, ""), f"{shape}: status and messages")
        true(out.splitlines()[-1].startswith(f"{shape} of "), out)
    process = start("--seconds", "0", "--processes", "2", "--calibration", CALIBRATION)
    true(process.stdout.readline().startswith("["), "a process's first line")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    equal((process.returncode, err), (0, ""), "several processes: status and messages")
    true(out.splitlines()[-1].startswith("all: work per second "), out)


@test
def runtime_launch():
    """test_runtime_launch loads the device until it is stopped, a line each second"""
    process = start(program=os.path.join(BUILD, "test_runtime_launch"))
    line = process.stdout.readline()
    true(re.match(r" +[12]\.\d s  work [01]\.\d{3}", line), line)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    equal(process.returncode, 0, "status")


@test
def bad_input():
    """what is not accepted is named, with what is"""
    for option, value, accepted in (
            ("--shape", "round", "one-block, graph"), ("--kernel-us", "0", "from 1 to 1000000"),
            ("--kernel-us", "1.5", "whole number"), ("--streams", "33", "from 1 to 32"),
            ("--seconds", "-1", "seconds"), ("--seconds", "1e9", "seconds"),
            ("--seconds", "", "seconds"), ("--warmup", ".", "seconds"),
            ("--contexts", "17", "from 1 to 16"), ("--processes", "65", "from 1 to 64"), ("--device", "x", "whole number"),
            ("--copy-size", "0", "1024-based"), ("--period-ms", "", "whole number")):
        done = subprocess.run([LOAD, option, value], env=MINE, capture_output=True, text=True)
        equal((done.returncode, done.stdout), (2, ""), f"{option} {value}")
        true(re.fullmatch(rf'vgpu-load: {option} "{re.escape(value)}" is not accepted; '
                          rf'accepted: .*{re.escape(accepted)}.*\n', done.stderr), done.stderr)
    for word, said in (("--none", "is not an option"), ("-z", "is not an option"), ("--seconds", "needs a value"),
                       ("--json=3", "takes no value"), ("more", "is not accepted")):
        done = subprocess.run([LOAD, word], env=MINE, capture_output=True, text=True)
        equal((done.returncode, done.stdout, done.stderr),
              (2, "", f'vgpu-load: "{word}" {said}; --help lists the options\n'))
    for arguments in (["--streams", "2", "--shape", "graph"],
                      ["--contexts", "2", "--shape", "sync"],
                      ["--calibration", "a", "--save-calibration", "b"]):
        done = subprocess.run([LOAD, *arguments], env=MINE, capture_output=True, text=True)
        equal((done.returncode, done.stdout), (2, ""), " ".join(arguments))
        equal(done.stderr.count("\n"), 1, f"lines in {done.stderr!r}")


@test
def calibrates_beside():
    """beside another load it still calibrates itself by its own time, and says that it was disturbed"""
    sim = "--sim=machine=" + os.path.join(DIRECTORY.name, "machine")
    other = start("--seconds", "0", "--calibration", CALIBRATION, sim=sim)
    true("work" in other.stdout.readline(), "the other load works")
    for shape in ("full", "graph"):
        done = run("--seconds", "1", "--shape", shape, sim=sim)
        equal(done.returncode, 0, done.stderr)
        between(float(re.search(r"work per second ([0-9.]+)", done.stdout)[1]), 0.2, 0.7, shape)
        true("calibration was disturbed" in done.stdout, done.stdout)
    other.send_signal(signal.SIGTERM)
    other.communicate(timeout=20)


@test
def failures():
    """a driver's call that fails is named with its error"""
    done = run("--device", "5")
    equal((done.returncode, done.stdout), (1, ""), "status and output")
    equal(done.stderr, "vgpu-load: cuDeviceGet: CUDA_ERROR_INVALID_DEVICE (101)\n")
    done = run("--seconds", "1", "--calibration", CALIBRATION, sim="--sim=fail=cuLaunchKernel:5:999")
    equal((done.returncode, done.stderr), (1, "vgpu-load: cuLaunchKernel: CUDA_ERROR_UNKNOWN (999)\n"))
    done = run("--processes", "2", "--seconds", "0", "--calibration", CALIBRATION,
               sim="--sim=fail=cuLaunchKernel:5:999")
    equal(done.returncode, 1, "status where a process failed")


@test
def bad_files():
    """a calibration that cannot be used is named with the reason"""
    partial = os.path.join(DIRECTORY.name, "partial")
    with open(partial, "w", encoding="ascii") as file:
        json.dump({"full": {"steps_per_us": 1000, "overhead_us": 0}}, file)
    for path, shape, reason in (("/no/such", "full", "No such file"), ("/etc", "full", "directory"),
                                ("/etc/passwd", "full", "is not accepted"),
                                (partial, "graph", "says nothing of graph kernels")):
        done = run("--calibration", path, "--shape", shape)
        equal((done.returncode, done.stdout), (1, ""), path)
        true(path in done.stderr and reason in done.stderr and done.stderr.count("\n") == 1,
             done.stderr)
    done = run("--save-calibration", "/no/such", "--seconds", "0.1")
    equal(done.returncode, 1, done.stderr)


tap.main()
