# SPDX-License-Identifier: Apache-2.0
"""bad_input BUILD: variables and options with values that nobody can mean. One line says so; a memory
limit that is not understood is never none."""
import os
import re
import subprocess
import sys
import tempfile

import tap
from bad import (BLANK, HOSTILE, HUGE, LONG, SIM, SLICE, Done, encoded, is_full, is_limited, is_report,
                 is_silent, is_whole, run_slice, shown)
from mine import BUILD, MINE, VGPU
from tap import equal, test, true

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

MEMORY = ("CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_MEM_LIMIT",
          "CUDA_MEM_LIMIT_0")
CORES = ("CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_SM_LIMIT_0", "CUDA_CORE_LIMIT", "CUDA_CORE_LIMIT_0")
LISTS = ("GPU_DEVICES_UUID", "MANAGER_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
OTHERS = ("VGPU_LEDGER", "LIBCUDA_LOG_LEVEL", "LOGGER_LEVEL", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "VGPU_SIM",
          "VGPU_SIM_MACHINE", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "GPU_CORE_UTILIZATION_POLICY",
          "VGPU_GATE", "CUDA_CORE_SOFT_LIMIT", "CUDA_CORE_SOFT_LIMIT_0", "CUDA_TASK_PRIORITY", "VGPU_BOARD_DIR",
          "VGPU_REPORT_DIR", "RECORD_KERNEL_INTERVAL", "VGPU_TURN_OVERHEAD")
MORE_MEMORY = ("CUDA_OVERSUBSCRIBE", "CUDA_MEMORY_OVERSUBSCRIBE", "CUDA_MEM_OVERSOLD", "CUDA_MEM_OVERSOLD_0",
               "CUDA_MEM_RATIO", "CUDA_MEM_RATIO_0", "CUDA_MEMORY_RATIO")
HOST_MEMORY = ("VGPU_HOST_POOL",)
IDLE = ("VGPU_IDLE_RELEASE",)
READY = ("VGPU_HOST_POOL_READY",)
IGNORED = ("ACTIVE_OOM_KILLER",
           "VGPU_POD_NAME", "VGPU_POD_NAMESPACE",
           "VGPU_POD_UID", "VGPU_CONTAINER_NAME", "POD_NAME", "CUDA_REDIRECT", "VGPU_REGION_PATH")
NO_SIZE = BLANK + HUGE + HOSTILE + (
    "-1", "-0", "-1g", "+1g", "much", "unlimited", "2x", "1gx", "1g 1g", "1g,2g", "1,5g", "0x10",
    "1e9", "1.", ".5g", "nan", "8388608t", "1000mx")
NO_PERCENT = BLANK + HUGE + HOSTILE + ("-1", "+5", "50%", "much", "4.5", "0x10", "50,20", "1e1")
NO_INDEX = ("64", "-1", "01", "00", "99999999999", str(2**64), "", "x", "0 ", "+1", "1_0", "é",
            "0" * 200)
BAD_SIM = BLANK[:0] + HOSTILE[:6] + (
    "x" * LONG, "h100", "-1", "0xh200", "17xh200", f"{2**64 + 1}xh200", "devices=0", "devices=-1",
    "devices=17", f"devices={2**64 + 1}", "devices=", "devices=two", "memory=", "memory=-1",
    "memory=1", "memory=much", "memory=1e400", f"memory={10**40}", "memory=80GiBx", "sms=0",
    "sms=-1", "sms=99999", "driver=", "driver=new", "driver=" + "1" * 40, "cuda=", "cuda=-1",
    "cuda=12", f"cuda={2**64 + 12000}", "context=", "context=-1", "context=lots", "unlisted=", "unlisted=much", "machine=",
    "machine=/" + "m" * 600, "nvml-pid=", "nvml-pid=their", "rm-status=", "rm-status=0x51",
    "rm-status=0@0x40", "rm-status=-1@0x40", "rm-status=0x51@", "rm-status=0x51@0x40:0",
    "rm-status=0x51@0x40:x", "rm-status=" + "1" * 200, "fail=", "fail=malloc", "fail=cuInit:x",
    "fail=cuInit:1:0", "fail=cuInit:-1", "fail=cu" + "x" * 70, ",".join(["fail=cuInit"] * 33),
    "no-rm=1", "NO-RM", "machine", "h200 a100")


def run_vgpu(*arguments, variables=None):
    """vgpu run in a directory of its own; its command leaves a mark there when it starts."""
    with tempfile.TemporaryDirectory() as directory:
        environment = dict(MINE, **(variables or {}))
        done = Done(subprocess.run([VGPU, "run", *arguments], env=environment, cwd=directory,
                                   stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                                   check=False))
        return done, os.path.exists(f"{directory}/started")


@test
def memory_values():
    """a memory limit that is not understood is one line, and the device is full"""
    for name in MEMORY:
        for value in NO_SIZE if name == MEMORY[0] else ("-1", "much", HUGE[1], HOSTILE[0], " "):
            done = run_slice({name: value})
            equal(done.status, 7, f"{name}={value[:40]!r}: exit status")
            is_report(done, name, value)
            is_full(done, 0, f"{name}={value[:40]!r}")


@test
def ledgers():
    """it is so under each ledger, and where the resource manager is closed"""
    for ledger, sim in (("api", ""), ("rm", ""), ("auto", "no-rm"), ("auto", "nvos21")):
        done = run_slice({"CUDA_DEVICE_MEMORY_LIMIT": "much", "VGPU_LEDGER": ledger, "VGPU_SIM": sim})
        equal(done.status, 7, "exit status")
        done.lines = [line for line in done.lines if "counted by the API ledger" not in line]
        is_report(done, "CUDA_DEVICE_MEMORY_LIMIT", "much", f"{ledger} {sim}: ")
        is_full(done, 0, f"{ledger} {sim}")


@test
def bounds():
    """the smallest and the largest limit are limits, and nought is none"""
    for value in ("1", "1k", "0.5m", "0" * LONG + "1"):
        done = run_slice({"CUDA_DEVICE_MEMORY_LIMIT": value})
        is_silent(done, f"{value[:9]!r}")
        is_full(done, 0, f"{value[:9]!r}")
    for value in (str(2**63 - 1), "8388607t", "0", "0g", " 0 ", "0.0", "0" * LONG):
        done = run_slice({"CUDA_DEVICE_MEMORY_LIMIT": value})
        is_silent(done, f"{value[:9]!r}")
        is_whole(done, 0, f"{value[:9]!r}")


@test
def compute_values():
    """a compute limit that is not understood is one line, and the program runs"""
    for name in CORES:
        for value in NO_PERCENT if name == CORES[0] else ("-1", "much", HUGE[1], HOSTILE[0], " "):
            done = run_slice({name: value})
            equal(done.status, 7, f"{name}={value[:40]!r}: exit status")
            is_report(done, name, value)
            is_whole(done, 0, f"{name}={value[:40]!r}")
    for value in ("0", "1", "100", "101", str(2**32 - 1)):
        done = run_slice({CORES[0]: value})
        is_silent(done, value)
        is_whole(done, 0, value)


@test
def nothing():
    """a variable that is set to nothing is not set"""
    done = run_slice({name: "" for name in MEMORY + CORES + LISTS + OTHERS + MORE_MEMORY + HOST_MEMORY + IDLE + IGNORED
                      if name not in ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "VGPU_SIM_MACHINE",
                                      "CUDA_VISIBLE_DEVICES")})
    is_silent(done, "all")
    is_whole(done, 0, "all")
    done = run_slice({name + "_64": "" for name in MEMORY[:1] + CORES[:1]})
    is_silent(done, "no device")
    is_whole(done, 0, "no device")


@test
def indices():
    """a limit whose index none can be is one line, and a device without a limit of its own is full"""
    for family in ("CUDA_DEVICE_MEMORY_LIMIT_", "CUDA_MEM_LIMIT_"):
        for index in NO_INDEX if family == "CUDA_DEVICE_MEMORY_LIMIT_" else ("64", "01", "-1"):
            done = run_slice({family + index: "1g"})
            equal(done.status, 7, "exit status")
            is_report(done, (family + index)[:60].strip(), "1g")
            is_full(done, 0, family + index[:40])
    for family in ("CUDA_DEVICE_SM_LIMIT_", "CUDA_CORE_LIMIT_", "CUDA_CORE_SOFT_LIMIT_", "CUDA_MEM_OVERSOLD_",
                   "CUDA_MEM_RATIO_"):
        done = run_slice({family + "64": "10"})
        is_report(done, family + "64", "10")
        is_whole(done, 0, family)


@test
def one_device():
    """a value that is not understood closes the device that it is of, and no other"""
    variables = {"VGPU_SIM": "3xh200", "CUDA_DEVICE_MEMORY_LIMIT": "3g",
                 "CUDA_DEVICE_MEMORY_LIMIT_1": "1gg", "CUDA_DEVICE_MEMORY_LIMIT_2": "2g"}
    done = run_slice(variables)
    is_report(done, "CUDA_DEVICE_MEMORY_LIMIT_1", "1gg")
    is_limited(done, 0, 3072, "device 0")
    is_full(done, 1, "device 1")
    is_limited(done, 2, 2048, "device 2")
    done = run_slice(dict(variables, CUDA_DEVICE_MEMORY_LIMIT="3gg", CUDA_DEVICE_MEMORY_LIMIT_1="1g"))
    is_report(done, "CUDA_DEVICE_MEMORY_LIMIT", "3gg")
    is_full(done, 0, "device 0")
    is_limited(done, 1, 1024, "device 1")


@test
def precedence():
    """the first variable that is set holds, and one behind it that is not understood is reported"""
    done = run_slice({"CUDA_DEVICE_MEMORY_LIMIT_0": "1g", "CUDA_MEM_LIMIT_0": "bad"})
    is_report(done, "CUDA_MEM_LIMIT_0", "bad")
    is_limited(done, 0, 1024, "the first")
    done = run_slice({"CUDA_DEVICE_MEMORY_LIMIT_0": "bad", "CUDA_MEM_LIMIT_0": "1g"})
    is_report(done, "CUDA_DEVICE_MEMORY_LIMIT_0", "bad")
    is_full(done, 0, "the first is bad")
    for value, check in (("0", is_whole), ("2g", None)):
        done = run_slice({"CUDA_DEVICE_MEMORY_LIMIT_0": value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        is_silent(done, value)
        if check:
            check(done, 0, value)
        else:
            is_limited(done, 0, 2048, value)
    done = run_slice({"CUDA_DEVICE_MEMORY_LIMIT": "0", "CUDA_MEM_LIMIT": "1g"})
    is_silent(done, "0 and 1g")
    done = run_slice({"CUDA_MEM_LIMIT_0": "bad", "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
    is_full(done, 0, "indexed and bad")


@test
def twice():
    """of a variable that is given twice the first holds, as for getenv"""
    code = ("import ctypes, sys\n"
            "argv = (ctypes.c_char_p * 2)(sys.argv[1].encode(), None)\n"
            "envp = (ctypes.c_char_p * (len(sys.argv) - 1))(*[a.encode() for a in sys.argv[2:]], None)\n"
            "ctypes.CDLL(None).execve(argv[0], argv, envp)\n")
    name = "CUDA_DEVICE_MEMORY_LIMIT"
    for values, limit in ((("1g", "2g"), 1024), (("1g", "much"), 1024), (("much", "1g"), None)):
        with tempfile.TemporaryDirectory() as directory:
            variables = [f"{name}={value}" for value in values] + [
                f"LD_PRELOAD={BUILD}/libvgpu.so:{SIM}/libvgpu-sim-rm.so", f"LD_LIBRARY_PATH={SIM}",
                f"VGPU_SIM_MACHINE={directory}/machine",
                f"CUDA_DEVICE_MEMORY_SHARED_CACHE={directory}/region"]
            done = Done(subprocess.run([sys.executable, "-c", code, SLICE, *variables], env=MINE,
                                       capture_output=True, timeout=60, check=False))
        equal(done.status, 7, done.stderr)
        if limit:
            is_silent(done, values)
            is_limited(done, 0, limit, values)
        else:
            is_report(done, name, "much")
            is_full(done, 0, values)


@test
def words():
    """a ledger or log level that is not known is one line, and the limit holds"""
    for name, more in (("VGPU_LEDGER", ("RM", "auto ", "1")), ("LIBCUDA_LOG_LEVEL", ("5", "-1", "4x")),
                       ("LOGGER_LEVEL", ("6", "-1", "5x"))):
        for value in BLANK + HUGE[:1] + HOSTILE + more:
            done = run_slice({name: value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
            equal(done.status, 7, "exit status")
            is_report(done, name, value)
            is_limited(done, 0, 1024, f"{name}={value[:40]!r}")


@test
def device_lists():
    """a device list that names no device is at most one line, and the limits hold in turn"""
    values = HOSTILE + ("-1", HUGE[2], ",", ",,,,", "GPU-", "GPU-x,GPU-y", "0" * LONG, "7,8",
                        ("GPU-" + "f" * 60 + ",") * 1000)
    for value in values:
        for name in LISTS if value == "-1" else LISTS[:1]:
            variables = {name: value, "VGPU_SIM": "2xh200", "CUDA_DEVICE_MEMORY_LIMIT_0": "1g",
                         "CUDA_DEVICE_MEMORY_LIMIT_1": "2g"}
            done = run_slice(variables)
            equal(done.status, 7, "exit status")
            what = f"{name}={value[:40]!r}"
            true(len(done.lines) <= 1 and all(line.isprintable() for line in done.lines),
                 f"{what}: {done.stderr[:1000]!r}")
            totals = sorted(done.device(device)[0] for device in (0, 1))
            true(totals[1] <= 2048, f"{what}: totals are {totals}")
    is_silent(run_slice({LISTS[0]: "nonsense", "CUDA_DEVICE_MEMORY_LIMIT": "1g"}), "no index is set")


@test
def visible_devices():
    """CUDA_VISIBLE_DEVICES is the driver's to judge, and moves no limit to another card"""
    variables = {"VGPU_SIM": "2xh200", "CUDA_DEVICE_MEMORY_LIMIT_0": "1g",
                 "CUDA_DEVICE_MEMORY_LIMIT_1": "2g"}
    for value in ("", "-1", "9", "x", "x" * LONG, HUGE[1], HOSTILE[0], ",0", "1,1"):
        done = run_slice(dict(variables, CUDA_VISIBLE_DEVICES=value))
        is_silent(done, value[:40])
        true("total 14" not in done.stdout, f"{value[:40]!r}: {done.stdout}")
    done = run_slice(dict(variables, CUDA_VISIBLE_DEVICES="1,x,0"))
    equal([int(device[1]) for device in done.devices], [2048], "totals")


@test
def launch_blocking():
    """CUDA_LAUNCH_BLOCKING is the driver's to judge, and the limit holds"""
    for value in ("", "0", "1", "-1", "x", "x" * LONG, HUGE[1], HOSTILE[0]):
        done = run_slice({"CUDA_LAUNCH_BLOCKING": value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        is_silent(done, value[:40])
        is_limited(done, 0, 1024, value[:40])


@test
def policies():
    """a policy or a gate for compute limits that is not understood is one line, and memory is limited all the same"""
    for value in ("1", " ", "Force", "disable ", HOSTILE[0], "x" * LONG):
        done = run_slice({"GPU_CORE_UTILIZATION_POLICY": value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        is_report(done, "GPU_CORE_UTILIZATION_POLICY", value)
        is_limited(done, 0, 1024, value[:40])
    for value in ("channels", "LAUNCH", "1", HOSTILE[0], "x" * LONG):
        done = run_slice({"VGPU_GATE": value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        is_report(done, "VGPU_GATE", value)
        is_limited(done, 0, 1024, value[:40])
    for value in ("default", "FORCE", "disable"):
        done = run_slice({"GPU_CORE_UTILIZATION_POLICY": value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        is_silent(done, value)
        is_limited(done, 0, 1024, value)


@test
def tenants():
    """what is said of other tenants and not understood is one line, and the limits hold"""
    for name in ("CUDA_CORE_SOFT_LIMIT", "CUDA_CORE_SOFT_LIMIT_0", "CUDA_TASK_PRIORITY"):
        for value in NO_PERCENT if name.endswith("LIMIT") else ("-1", "high", HUGE[1], HOSTILE[0], " "):
            done = run_slice({name: value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
            equal(done.status, 7, f"{name}={value[:40]!r}: exit status")
            is_report(done, name, value)
            is_limited(done, 0, 1024, value[:40])
    for value in BLANK + HOSTILE + ("boards", "./boards", "/" + "b" * LONG):
        done = run_slice({"VGPU_BOARD_DIR": value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        is_report(done, "VGPU_BOARD_DIR", value)
        is_limited(done, 0, 1024, value[:40])
        done = run_slice({"VGPU_REPORT_DIR": value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        is_report(done, "VGPU_REPORT_DIR", value)
        is_limited(done, 0, 1024, value[:40])
    for value in ("-1", "often", HUGE[1], HOSTILE[0], " "):
        done = run_slice({"RECORD_KERNEL_INTERVAL": value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        is_report(done, "RECORD_KERNEL_INTERVAL", value)
        is_limited(done, 0, 1024, value[:40])
    done = run_slice({"CUDA_CORE_SOFT_LIMIT": "20", "CUDA_DEVICE_SM_LIMIT": "30"})
    is_report(done, "CUDA_CORE_SOFT_LIMIT", "20")
    for variables in ({"CUDA_CORE_SOFT_LIMIT": "40", "CUDA_DEVICE_SM_LIMIT": "30"},
                      {"CUDA_CORE_SOFT_LIMIT": "0"}, {"CUDA_TASK_PRIORITY": "0"},
                      {"VGPU_BOARD_DIR": "/no/such/directory"},
                      {"VGPU_REPORT_DIR": "/no/such/directory"}):
        is_silent(run_slice(variables), variables)


@test
def ignored():
    """variables that are known and not acted on change nothing, whatever they say"""
    for value in ("1", "-1", HOSTILE[0], "x" * LONG):
        names = IGNORED if len(value) < 100 else IGNORED[:8]
        done = run_slice(dict({name: value for name in names}, CUDA_DEVICE_MEMORY_LIMIT="1g"))
        is_silent(done, value[:40])
        is_limited(done, 0, 1024, value[:40])


@test
def more_memory():
    """what asks for more memory than the card has in no known way is one line, and the limit holds"""
    for name in MORE_MEMORY:
        for value in BLANK[:1] + HOSTILE + ("-1", "maybe", "1.5x", "1,5", "0x2", "1.", ".5") \
                if name == MORE_MEMORY[0] else ("-1", "maybe", HOSTILE[0]):
            done = run_slice({name: value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
            is_report(done, name, value)
            is_limited(done, 0, 1024, f"{name}={value[:40]!r}")


def beside_limit(name, bad, good):
    """Values of a variable that is about memory beyond the card: the limit holds, whatever it says."""
    for value in bad:
        done = run_slice({name: value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        is_report(done, name, value)
        is_limited(done, 0, 1024, f"{name}={value[:40]!r}")
    for value in good:
        is_silent(run_slice({name: value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"}), value)


@test
def host_memory():
    """a budget of host memory that is not understood is one line, and the limit holds"""
    beside_limit(HOST_MEMORY[0], NO_SIZE, ("0", "1", "4096t", "1.5g"))


@test
def idle_release():
    """a time without work that is not understood is one line, and idle memory stays"""
    beside_limit(IDLE[0], BLANK[:1] + HOSTILE + ("-1", "soon", "1.5", "31536001"), ("0", "1", "31536000"))


@test
def host_pool_ready():
    """a size of host memory to be made ahead that is not understood is one line, and none is made"""
    beside_limit(READY[0], BLANK[:1] + HOSTILE + ("-1", "lots", "1.5.5g"), ("0", "1g", "512MiB"))


@test
def all_variables():
    """every variable that docs/environment.md lists is among those tried here"""
    tried = set(MEMORY + CORES + LISTS + OTHERS + MORE_MEMORY + HOST_MEMORY + IDLE + READY + IGNORED)
    with open(f"{ROOT}/docs/environment.md", encoding="utf-8") as text:
        rows = [line.split("|")[1] for line in text if line.startswith("| `")]
    named = {name.replace("<i>", "0").replace("[_0]", "") for row in rows
             for name in re.findall(r"`([A-Z][A-Z_]+(?:\[?_<i>\]?)?)`", row)}
    true(len(named) > 25, f"only {named}")
    equal(named - tried, set(), "not tried")


@test
def descriptions():
    """a machine's description that is not understood is one line, and there is no device"""
    for value in BAD_SIM:
        done = run_slice({"VGPU_SIM": value, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        what = f"VGPU_SIM={value[:60]!r}"
        equal(done.status, 1, what)
        true("CUDA_ERROR_NO_DEVICE" in done.stdout, f"{what}: {done.stdout}")
        equal(len(done.lines), 1, f"{what}: {done.stderr[:1000]!r}")
        line = done.lines[0]
        true(line.startswith("VGPU_SIM: ") and line.isprintable(), f"{what}: {line!r}")
        true(not value.isascii() or shown(value) in line, f"{what}: {line!r}")
        true(re.search("accepted|expected|too long", line), f"{what}: {line!r}")


@test
def machines():
    """a machine's file that cannot be one is one line, and there is no device"""
    for value in ("/no/such/directory/machine", "/etc/passwd", "/etc", "/dev/null", "/etc/passwd/x",
                  "/" + "m" * 300, "/" + "m" * 5000, "/x\ny/z"):
        done = run_slice({"VGPU_SIM_MACHINE": value})
        what = f"VGPU_SIM_MACHINE={value[:40]!r}"
        equal(done.status, 1, what)
        equal(len(done.lines), 1, f"{what}: {done.stderr[:1000]!r}")
        true(done.lines[0].isprintable() and len(done.lines[0]) < 600, f"{what}: {done.lines[0]!r}")
        true(value[:30] in done.lines[0] or "\n" in value, f"{what}: {done.lines[0]!r}")


def refused(option, value, *more):
    """vgpu run refuses the option before anything is started: one line, status 2."""
    done, started = run_vgpu(*more, option, value, "--", "touch", "started")
    what = f"{option} {value[:40]!r}"
    equal((done.status, started, done.stdout), (2, False, ""), what)
    equal(len(done.lines), 1, f"{what}: {done.stderr[:1000]!r}")
    line = done.lines[0]
    true(line.startswith("vgpu: run: ") and line.isprintable() and len(line) < 1024, f"{what}: {line!r}")
    true(option in line and shown(value) in line, f"{what}: {line!r}")
    return line


@test
def option_values():
    """vgpu run refuses a value that is not understood, in one line"""
    for option, values in (("--memory", NO_SIZE), ("--cores", NO_PERCENT + ("101",))):
        for value in values:
            if b"," not in encoded(value):
                true("accepted" in refused(option, value), f"{option} {value[:40]!r}")
        for value in ("", ",", "1,", ",1", "1,x", ",".join("1" * 65), "0" * 70 + "1g,1", "-1,1",
                      "1," + "1" + " " * 70 + "x"):
            done, started = run_vgpu(option, value, "--", "touch", "started")
            equal((done.status, started, len(done.lines)), (2, False, 1), f"{option} {value[:40]!r}")
            true(option in done.lines[0] and "accepted" in done.lines[0], done.lines[0])


@test
def region_option():
    """vgpu run refuses a region's path that can be none, in one line"""
    for value in ("", "/etc", "/dev/null", "/etc/passwd/x", "/" + "r" * 300, "/" + "r" * 5000,
                  "r" * 4095, "/etc/passwd/\n\x1b[2J", "."):
        true("accepted" in refused("--region", value, "--memory", "1g"), f"{value[:40]!r}")


@test
def unknown_options():
    """vgpu run refuses what is no option, and an option without its value, in one line"""
    for word in ("--nonsense", "--nonsense=1", "--Memory=1g", "-m", "-xh", "--non\nsense\x1b[2J",
                 "--" + "x" * LONG, "--help=1", "--é"):
        done, started = run_vgpu(word, "touch", "started")
        equal((done.status, started, done.stdout, len(done.lines)), (2, False, "", 1), word[:40])
        true(shown(word) in done.lines[0] and done.lines[0].isprintable(), done.lines[0])
    for word in ("--memory", "--cores", "--region"):
        done, _ = run_vgpu(word)
        equal((done.status, done.stdout, len(done.lines)), (2, "", 1), word)
        true(word in done.lines[0], done.lines[0])


@test
def option_given_twice():
    """of an option that is given twice the last holds"""
    done, _ = run_vgpu("--memory", "1g", "--memory=2g", "--sim", "--", SLICE)
    equal(done.status, 7, done.stderr)
    is_silent(done, "twice")
    is_limited(done, 0, 2048, "twice")


@test
def outer_values():
    """an outer limit that is not understood is the command's to report, and replaced by an option"""
    bad = {"CUDA_DEVICE_MEMORY_LIMIT_0": "much", "CUDA_MEM_LIMIT": "more"}
    done, _ = run_vgpu("--memory", "1g", "--sim", "--", SLICE, variables=bad)
    is_silent(done, "replaced")
    is_limited(done, 0, 1024, "replaced")
    done, _ = run_vgpu("--sim", "--", SLICE, variables={"CUDA_MEM_LIMIT": "more"})
    equal(done.status, 7, done.stderr)
    is_report(done, "CUDA_MEM_LIMIT", "more")
    is_full(done, 0, "passed on")


@test
def sim_option():
    """a bad description given to vgpu run is one line, and nothing is run"""
    for value in ("h100", "devices=0", "x" * LONG, "h200\nforged", "memory=x"):
        done, _ = run_vgpu(f"--sim={value}", "--", "sh", "-c", "echo ran; exit 7")
        equal((done.status, done.stdout), (2, ""), value[:40])
        equal(len(done.lines), 1, f"{value[:40]!r}: {done.stderr[:600]!r}")
        true(done.lines[0].startswith("vgpu: run: --sim: ") and done.lines[0].isprintable(),
             done.lines[0])


@test
def commands():
    """a command that cannot be one is one line, and 126 or 127"""
    for command in ("", "no-such\n\x1b[2J", "x" * 5000, "/etc/passwd/x", "/"):
        done, _ = run_vgpu("--", command)
        true(done.status in (126, 127) and len(done.lines) == 1, f"{command[:40]!r}: {done.stderr[:600]!r}")
        true(done.lines[0].isprintable(), done.lines[0])


tap.main()
