# SPDX-License-Identifier: Apache-2.0
"""What a framework's program found, as one line of JSON for ../frameworks.py. In a slice
VGPU_TEST_LIMIT_MIB says which; without it the program runs natively and fills nothing."""
import ctypes
import gc
import json
import os
import time

MIB = 1 << 20
BLOCK_MIB = 64
NATIVE_BLOCKS = 8
limit_mib = int(os.environ.get("VGPU_TEST_LIMIT_MIB", "0"))


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def nvml_memory():
    """(free, total) of the first card, as NVML tells this process."""
    library, handle, memory = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), _Memory()
    if (library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
            or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))):
        return 0, 0
    return memory.free, memory.total


class Outcome:
    def __init__(self):
        self.values = {"checks": []}
        self.held = []

    def check(self, what, good, detail=""):
        self.values["checks"].append([what, bool(good), str(detail)])

    def note(self, name, value):
        self.values[name] = value

    def sees(self, memory):
        """What the program is told at its start: (free, total) in bytes."""
        free, total = memory
        self.values["total_mib"], self.values["free_mib"] = total / MIB, free / MIB
        if limit_mib:
            self.check("the total is the slice", total == limit_mib * MIB, f"{total / MIB:.1f} MiB")
            self.check("less than that is free", 0 < free < total, f"{free / MIB:.1f} MiB")

    def fill(self, take, is_refusal, memory=None, slack_mib=0):
        """Takes blocks of BLOCK_MIB until one is refused, and holds them for a moment, so that who
        looks from outside sees them. `slack_mib`: what an allocator keeps for itself beside that."""
        most = limit_mib // BLOCK_MIB + 8 if limit_mib else NATIVE_BLOCKS
        refusal = None
        while len(self.held) < most and refusal is None:
            try:
                self.held.append(take(BLOCK_MIB * MIB))
            except Exception as error:  # each framework has its own
                refusal = type(error).__name__, is_refusal(error), str(error).replace("\n", " ")[:200]
        if not limit_mib:
            return
        self.values["filled_mib"] = len(self.held) * BLOCK_MIB
        self.values["refusal"] = refusal[0] if refusal else "none"
        self.check("a refusal is the framework's out of memory", refusal and refusal[1],
                   " ".join(map(str, refusal or ("nothing was refused",))))
        if memory:
            free = memory()[0] / MIB
            self.values["free_at_refusal_mib"] = free
            self.check("refused when less than a block is free", free < BLOCK_MIB + slack_mib, f"{free:.1f} MiB free")
        time.sleep(0.5)

    def release(self, empty, memory=None, slack_mib=512):
        """Lets go of all blocks; with `memory`, they are free again, but for what libraries have
        loaded since the start."""
        self.held.clear()
        gc.collect()
        empty()
        if memory and limit_mib:
            free = memory()[0] / MIB
            self.check("what is let go is free again", free >= self.values["free_mib"] - slack_mib,
                       f"{free:.0f} of {self.values['free_mib']:.0f} MiB at the start")

    def computed(self, checksum, seconds):
        self.values["checksum"], self.values["seconds"] = float(checksum), seconds

    def again(self, checksum):
        """The same work after the refusal gives the same."""
        first = self.values["checksum"]
        self.check("the same work after the refusal gives the same", abs(checksum - first) <= 1e-4 * max(1, abs(first)),
                   f"{first!r} and {checksum!r}")

    def say(self):
        print("OUTCOME " + json.dumps(self.values), flush=True)
