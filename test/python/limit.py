# SPDX-License-Identifier: Apache-2.0
"""What the limit tests of the frameworks share: a tensor that fits the limit is computed, one that
does not is refused with the framework's own error, and the program goes on.

Exit status 0 where all of that held, 1 where not, 77 with a line SKIP where something is missing."""
import argparse
import os
import re
import sys

FLOAT_BYTES = 4
SMALL = (16, 1024, 1024)  # 64 MiB
UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


class Missing(Exception):
    """The framework, or its GPU."""


def limit_bytes(device):
    """The limit of the device that the container's variables set; 0: none."""
    for name in (f"CUDA_DEVICE_MEMORY_LIMIT_{device}", "CUDA_DEVICE_MEMORY_LIMIT"):
        text = os.environ.get(name, "")
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.I)
        if text and not found:
            raise SystemExit(f"FAILED: {name}={text!r} is not a size")
        if found:
            return int(float(found[1]) * (1 << UNITS[found[2].lower()]))
    return 0


def bytes_of(shape):
    size = FLOAT_BYTES
    for extent in shape:
        size *= extent
    return size


def shape_of(text):
    return tuple(int(extent) for extent in text.split(",") if extent.strip())


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", type=int, default=0, help="the device's number, 0")
    parser.add_argument("--tensor_shape", type=shape_of, default=None,
                        help="extents of one more float32 tensor, as 1024,1024,1024: granted or "
                             "refused as its size says")
    return parser.parse_args()


class Run:
    """`ones(shape, device)` makes a tensor of ones on the device and sums it up there."""

    def __init__(self, ones, errors, device):
        self.ones, self.errors, self.device, self.failed = ones, errors, device, False

    def say(self, good, text):
        print(f"{'ok' if good else 'FAILED'}: {text}", flush=True)
        self.failed |= not good

    def try_shape(self, shape, granted, why):
        size = f"a tensor of {bytes_of(shape) >> 20} MiB {shape}"
        try:
            total = self.ones(shape, self.device)
        except self.errors as error:
            first = (str(error).splitlines() or [""])[0][:100]
            self.say(not granted, f"{size} is refused with {type(error).__name__}: {first}")
            return
        wanted = bytes_of(shape) // FLOAT_BYTES
        self.say(granted and abs(total - wanted) <= 1e-3 * wanted, f"{size} is granted, {why}; its sum is {total:.0f}")

    def all(self, extra):
        limit = limit_bytes(self.device)
        over = (limit // bytes_of((1, 1024, 1024)) + 1, 1024, 1024)
        self.try_shape(SMALL, True, "which fits")
        if limit:
            self.try_shape(over, False, f"over the limit of {limit >> 20} MiB: is libvgpu.so preloaded?")
            self.try_shape(SMALL, True, "and the program goes on")
        else:
            print("no CUDA_DEVICE_MEMORY_LIMIT is set: nothing is refused")
        if extra:
            self.try_shape(extra, not limit or bytes_of(extra) <= limit, "as it was given")


def main(load):
    """`load` imports the framework and returns its name and version, `ones` and the errors that say
    out of memory; it raises Missing."""
    arguments = parse()
    try:
        name, ones, errors = load(arguments.device)
    except (ImportError, Missing) as error:
        print(f"SKIP: {error}")
        sys.exit(77)
    print(name)
    run = Run(ones, errors, arguments.device)
    run.all(arguments.tensor_shape)
    print("FAILED" if run.failed else "passed")
    sys.exit(run.failed)
