# SPDX-License-Identifier: Apache-2.0
"""own BUILD: what a program with CUDA has of its own, the library leaves as it is: state.c prints it
after each step, natively and under the library."""
import difflib
import os
import re
import tempfile

import tap
from simulated import BUILD, MANAGER, run
from tap import equal, test, true

STATE = os.path.join(BUILD, "test/process/process-state")
NOISY = os.path.join(BUILD, "test/process/libtest-noisy.so")


def unchanged(noisy=None, **variables):
    variables["LIBCUDA_LOG_LEVEL"] = "0"
    with tempfile.TemporaryDirectory() as directory:
        both = []
        for ours in (False, True):
            for name in os.listdir(directory):
                os.remove(os.path.join(directory, name))
            if noisy:
                variables["VGPU_TEST_NOISE"] = noisy
                variables["LD_PRELOAD"] = f"{NOISY}:{MANAGER}" if ours else MANAGER
            done = run(directory, STATE, ours=ours, variables=variables, cwd=BUILD)
            true("at exit" in done.stdout, done.stdout[-300:] + done.stderr)
            said = [line for line in done.stderr.splitlines() if " OOM " not in line]
            equal((done.returncode, said), (3, []), "status and stderr")
            both.append(done.stdout.splitlines())
    lines = list(difflib.unified_diff(*both, "native", "ours", "", "", 1, ""))
    true(not lines, "they differ\n" + "\n".join(lines))
    true(len(both[0]) > 300, f"only {len(both[0])} lines")


@test
def noticed():
    """a library that changes anything of it is noticed by these tests"""
    for noise in ("handler", "ignored", "mask", "descriptor", "thread", "environment", "directory"):
        try:
            unchanged(noisy=noise)
        except AssertionError:
            continue
        raise AssertionError(f"nobody notices {noise}")


@test
def limited():
    """signals, masks, threads, low descriptors, environment and limits are the program's at each step"""
    unchanged(CUDA_DEVICE_MEMORY_LIMIT="2g")


@test
def unlimited():
    """also without a limit"""
    unchanged()


@test
def by_api():
    """also under the API ledger"""
    unchanged(CUDA_DEVICE_MEMORY_LIMIT="2g", VGPU_LEDGER="api")
    unchanged(CUDA_DEVICE_MEMORY_LIMIT="2g", VGPU_SIM="no-rm")


@test
def not_understood():
    """also where the limit is not understood, up to the context that is refused"""
    with tempfile.TemporaryDirectory() as directory:
        done = run(directory, STATE, cwd="/", variables={"CUDA_DEVICE_MEMORY_LIMIT": "much"})
    steps = done.stdout.split("\ncuInit\n")
    equal(len(steps), 2, "steps before and after cuInit")
    actions = [[line for line in step.splitlines() if line.startswith("  signal")]
               for step in re.split(r"^(?=\w)", done.stdout, flags=re.M)[1:]]
    true(len(actions) >= 4 and len(actions[0]) >= 3, f"steps: {actions}")
    for step in actions:
        equal(step, actions[0], "signal actions")


tap.main()
