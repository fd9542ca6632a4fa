# SPDX-License-Identifier: Apache-2.0
"""compute-sanitizer, Nsight Compute, Nsight Systems and cuda-gdb around a small program, natively and
in a slice: the same result and exit status, and the slice holds inside the tool. With a compute limit (--cores 50),
the tools around 50 launches. (What ncu runs again and again to count is not held: docs/compatibility.md.)
Usage: sanitizer.py BUILD [--cores PERCENT]"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from watch import check, failures

build = os.path.abspath(sys.argv[1])
here = os.path.dirname(os.path.abspath(__file__))
LIMIT_MIB = 8 * 1024
scratch = tempfile.mkdtemp(prefix="vgpu-tools-")
small = f"{scratch}/small"
CORES = sys.argv[2:4] if sys.argv[2:3] == ["--cores"] else []
SLICE = [f"{build}/vgpu", "run", "--memory", f"{LIMIT_MIB}m", *CORES, "--"]
MEMCHECK = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9", "--target-processes", "all"]
NCU = ["ncu", "--metrics", "sm__cycles_elapsed.max", "--clock-control", "none", "--target-processes", "all"]
GDB = ["cuda-gdb", "-batch", "-nx", "-ex", "run", "--args"]
NSYS = ["nsys", "profile", "--force-overwrite", "true", "-o", f"{scratch}/report"]
# (name, the tool's command, the program's argument, what of the tool's output must be the same)
CASES = [
    ("no tool", [], "", None),
    ("no tool, refused", [], "full", None),
    ("memcheck", MEMCHECK, "", r"ERROR SUMMARY: \d+"),
    ("memcheck, a write out of bounds", MEMCHECK, "oob", r"Invalid __global__ write of size \d+"),
    # A refusal does not enter the driver, so the tool may report it of another layer: not compared.
    ("memcheck, refused", MEMCHECK + ["--report-api-errors", "no"], "full", r"ERROR SUMMARY: \d+"),
    ("racecheck", [MEMCHECK[0], "--tool", "racecheck", *MEMCHECK[3:]], "", r"RACECHECK SUMMARY: \d+ haz"),
    ("ncu", NCU, "", r"==PROF== Profiling \"\w+|==ERROR== .*|sm__cycles_elapsed\.max +\w+"),
    ("cuda-gdb", GDB, "", r"exited normally|exited with code \d+|received signal \w+"),
    ("nsys", NSYS, "", None),
]
if CORES:
    CASES = [("no tool", [], "many", None)] + [(name, tool, "many", pattern) for name, tool, argument, pattern in CASES
                                               if tool and not argument]


class Ran:
    def __init__(self, command):
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=60, check=False, cwd=scratch, start_new_session=True)
            self.status, self.output = done.returncode, done.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired as error:
            self.status, self.output = "none after 60 s", (error.stdout or b"").decode(errors="replace")
        except OSError as error:
            self.status, self.output = str(error), ""
        lines = self.output.splitlines()
        self.program = [line for line in lines if line.startswith("small: ")]
        self.total = [int(m) for line in lines for m in re.findall(r"^total (\d+) MiB", line)]

    def report(self, pattern):
        return re.findall(pattern, self.output) if pattern else []

    def show(self):
        for line in self.output.splitlines()[-12:]:
            print(f"#   {line[:180]}")


def case(name, tool, argument, pattern):
    if tool and not shutil.which(tool[0]):
        print(f"SKIP: {name}: no {tool[0]} here")
        return
    program = [small, argument] if argument else [small]
    native = Ran(tool + program)
    ways = [("in a slice", SLICE + tool + program)]
    if tool and tool[0] in ("compute-sanitizer", "ncu"):
        ways.append(("around the slice", tool + SLICE + program))
    seen = native.report(pattern)
    print(f"# {name}, natively: exit status {native.status}; {'; '.join(native.program[-2:])}; {'; '.join(seen)[:160]}")
    if "ERR_NVGPUCTRPERM" in native.output:
        print(f"# {name}: no permission for the card's counters here")
    if not native.program:
        native.show()
    for way, command in ways:
        ours = Ran(command)
        good = check(f"{name}, {way}: exit status and output as natively",
                     (ours.status, ours.program, ours.report(pattern)) == (native.status, native.program, seen),
                     f"exit status {ours.status}; {'; '.join(ours.report(pattern))[:120]}")
        if native.total:
            good = check(f"{name}, {way}: the program is in the slice", ours.total[:1] == [LIMIT_MIB],
                         f"total {ours.total[:1]} MiB, natively {native.total[:1]}") and good
        if not good:
            ours.show()


def main():
    built = Ran(["nvcc", "-arch=sm_90", "-lineinfo", "-o", small, f"{here}/small.cu"])
    if not check("the small program is built", built.status == 0):
        built.show()
        sys.exit(1)
    for row in CASES:
        case(*row)
    shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(failures() != 0)


main()
