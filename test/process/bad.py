# SPDX-License-Identifier: Apache-2.0
"""What the tests of bad input share: values that somebody may set, the program `slice` run over the
simulator under them, and what a report must be."""
import os
import re
import subprocess
import tempfile

from mine import BUILD, MINE
from tap import equal, true

SLICE = os.path.join(BUILD, "test/process/slice")
SIM = os.path.join(BUILD, "src/sim")
LONG = 100_000

# What no value is, whatever is asked for.
BLANK = (" ", "\t", " \t ")
HUGE = tuple(str(number) for number in (2**63, 2**64, 2**64 + 1, 10**40))
HOSTILE = ("1\n[HAMI-core ERROR (pid:1)]: forged", "1\rforged", "\x1b[2J1", "\x9b2J", "\x7f", "1é", "é",
           b"1\xff\xfe", "x" * LONG, "9" * LONG, "1" + " " * LONG + "x", "0" * LONG + "x",
           "é" * (LONG // 2), "%s%n%s", "1\\n", '"')

# A refusal, which is no report of what is set: at most one a second.
REFUSAL = re.compile(r"account\w*\.c:\d+\)\]: (Device \d+ OOM|device \d+ is treated as full)")


class Done:
    """How a program ended, and what it and the library said."""

    def __init__(self, process):
        self.status = process.returncode
        self.stdout = process.stdout.decode()
        self.stderr = process.stderr.decode()  # well-formed, or it fails here
        self.lines = [line for line in self.stderr.splitlines() if not REFUSAL.search(line)]
        self.devices = [re.findall(r"[-\d]+", line) for line in self.stdout.splitlines()]

    def device(self, index=0):
        """total, NVML's total and free, context's result, its free, small, large allocation."""
        true(index < len(self.devices) and len(self.devices[index]) == 8,
             f"no device {index}: {self.stdout!r} {self.stderr[:600]!r}")
        return [int(number) for number in self.devices[index][1:]]


def encoded(value):
    return value if isinstance(value, bytes) else value.encode()


def run_slice(variables, directory=None, machine=None, program=(SLICE,), bare=False, **options):
    """`slice` with these variables, under the library and the simulator. A region and a machine of
    its own, where it is not told of others. `bare`: the program sees to all that."""
    with tempfile.TemporaryDirectory() as own:
        environment = {encoded(name): encoded(value) for name, value in MINE.items()}
        if not bare:
            environment.update({
                b"LD_PRELOAD": encoded(f"{BUILD}/libvgpu.so:{SIM}/libvgpu-sim-rm.so"),
                b"LD_LIBRARY_PATH": encoded(SIM),
                b"VGPU_SIM_MACHINE": encoded(machine or f"{own}/machine"),
                b"CUDA_DEVICE_MEMORY_SHARED_CACHE": encoded(f"{directory or own}/region")})
        environment.update({encoded(n): encoded(v) for n, v in variables.items()})
        return Done(subprocess.run(program, env=environment, capture_output=True, timeout=60,
                                   check=False, stdin=subprocess.DEVNULL, **options))


def is_full(done, device, what):
    """Nothing is free and nothing can be had."""
    _, _, free, context, context_free, small, large = done.device(device)
    equal((free, context_free), (0, 0), f"{what}: free")
    true(context != 0 and small != 0 and large != 0, f"{what}: memory was given: {done.stdout}")


def is_whole(done, device, what):
    """The card as it is without a limit."""
    total, _, free, context, _, small, large = done.device(device)
    true(total > 100_000 and free > 100_000, f"{what}: {done.stdout}")
    equal((context, small, large), (0, 0, 0), f"{what}: results")


def is_limited(done, device, mib, what):
    total, nvml, _, context, _, small, _ = done.device(device)
    equal((total, nvml, context, small), (mib, mib, 0, 0), what)


def is_silent(done, what):
    equal(done.lines, [], what)


def shown(value):
    """The value as a report must show it, where that is not for the report to choose."""
    text = value if isinstance(value, str) else ""
    return text if text.isprintable() and len(text) <= 40 else ""


def is_report(done, name, value, what=""):
    """One line that names it, shows the value, and says what is accepted."""
    what = f"{what}{name}={value[:40]!r}"
    equal(len(done.lines), 1, f"{what}: lines of {done.stderr[:2000]!r}")
    line = done.lines[0]
    true(done.stderr.endswith("\n") and line.isprintable(), f"{what}: {line!r}")
    true(name in line and "accepted" in line and shown(value) in line, f"{what}: {line!r}")
    true(len(line) < 1024, f"{what}: {len(line)} characters")
    true(not isinstance(value, str) or len(value) < LONG // 2 or value[:30] in line,
         f"{what}: the beginning is not shown: {line!r}")
