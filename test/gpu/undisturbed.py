# SPDX-License-Identifier: Apache-2.0
"""undisturbed.py BUILD [--sim]: programs natively, in a slice without a compute limit, and in one of 50 %: events,
queries, captures and conditional graphs answer and compute as natively. Times are shown, and judged by nobody."""
import os
import shutil
import subprocess
import sys
import tempfile

from watch import check, failures, sim_begin

build = os.path.abspath(sys.argv[1])
sim = "--sim" in sys.argv[2:]
here = os.path.dirname(os.path.abspath(__file__))
scratch = tempfile.mkdtemp(prefix="vgpu-undisturbed-")
RUN_S = 60
WAYS = {"natively": None, "without a compute limit": [], "under 50 %": ["--cores", "50"]}


def command_of(way, program):
    limits = WAYS[way]
    if limits is not None:
        return [f"{build}/vgpu", "run", "--region", f"{scratch}/region-{len(limits)}", *limits,
                *(["--sim"] if sim else []), "--", *program]
    return ["env", f"LD_PRELOAD={build}/src/sim/libvgpu-sim-rm.so", *program] if sim else program


def ran(way, program):
    """(exit status, lines)"""
    try:
        done = subprocess.run(command_of(way, program), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=RUN_S, check=False, start_new_session=True)
        return done.returncode, done.stdout.decode(errors="replace").splitlines()
    except subprocess.TimeoutExpired as error:
        return f"none after {RUN_S} s", (error.stdout or b"").decode(errors="replace").splitlines()


def promises(lines):
    """What is promised, without the figures behind it."""
    return [line.split(": ")[0] for line in lines if line.startswith(("ok - ", "NOT OK - "))]


def case(name, program):
    native_status, native = ran("natively", program)
    skipped = [line for line in native if line.startswith("SKIP: ")]
    if native_status == 77 or skipped:
        print(f"SKIP: {name}: {skipped[0][6:] if skipped else 'not here'}")
        return
    print(f"# {name}, natively: exit status {native_status}, {len(promises(native))} promises")
    for line in native:
        print(f"#   {line}")
    for way in list(WAYS)[1:]:
        status, lines = ran(way, program)
        good = check(f"{name}, {way}: exit status 0 and all that is kept natively",
                     (status, promises(lines)) == (0, promises(native)) and native_status == 0,
                     f"exit status {status}, {len(promises(lines))} of {len(promises(native))}")
        for line in lines:
            if not good or line.startswith("# ") or line.startswith("NOT OK"):
                print(f"#   {line[:180]}")


def conditional():
    program = f"{scratch}/conditional"
    if not shutil.which("nvcc"):
        print("SKIP: conditional graphs: no nvcc here")
        return
    for more in ([], ["-rdc=true"]):  # toolkits differ in where cudaGraphSetConditional is
        done = subprocess.run(["nvcc", "-arch=sm_90", *more, "-o", program, f"{here}/conditional.cu", "-ldl"],
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0:
            break
    if check("the program with conditional graphs is built", done.returncode == 0, done.stdout[-500:]):
        case("conditional graphs", [program])


def main():
    try:
        if sim:
            sim_begin(build)
        case("events, streams and captures", [f"{build}/test/gpu/undisturbed", *(["--sim"] if sim else [])])
        if not sim:
            conditional()
            case("PyTorch", [sys.executable, f"{here}/undisturbed_torch.py"])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(failures() != 0)


main()
