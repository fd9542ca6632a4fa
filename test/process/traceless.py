# SPDX-License-Identifier: Apache-2.0
"""traceless BUILD: `vgpu doctor` leaves nothing behind."""
import os
import signal
import subprocess

import own_tmp  # before all others: it runs the script again
import tap
from mine import BUILD, MINE, VGPU
from own_tmp import ALICE, PLACES, as_user, begin, left
from tap import equal, test, true

SIM = os.path.join(BUILD, "src/sim")
HOLD = os.path.join(BUILD, "test/driver/hold")
MACHINE = "/machine"  # is in none of the places: it is the simulated GPU, no file of the doctor's
BOARDS = "/tmp/vgpulock"


def variables(**more):
    clean = {name: value for name, value in MINE.items() if not name.startswith("VGPU_")}
    return {**clean, "LD_LIBRARY_PATH": SIM, "LD_PRELOAD": f"{BUILD}/libvgpu.so:{SIM}/libvgpu-sim-rm.so",
            "VGPU_SIM": f"machine={MACHINE}", "CUDA_DEVICE_MEMORY_LIMIT": "2g", "CUDA_DEVICE_SM_LIMIT": "30", **more}


def command(user, *arguments, **more):
    """Variables of the loader are set behind setpriv, which is not under the library."""
    return [*as_user(user), "env", *(f"{name}={value}" for name, value in variables(**more).items()), *arguments]


def new_place():
    """Everybody's, with a directory for boards and the machine of all users in none of the places."""
    begin()
    os.mkdir(BOARDS)
    os.chmod(BOARDS, 0o1777)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", "/mnt"], check=True)
    global MACHINE
    MACHINE = "/mnt/machine"


def doctor(*arguments, user=None, prefix=(), **more):
    done = subprocess.run(command(user, *prefix, VGPU, "doctor", *arguments, **more), env={"PATH": MINE["PATH"]},
                          capture_output=True, text=True, timeout=60, check=False)
    if os.path.exists(MACHINE):
        os.chmod(MACHINE, 0o666)
    return done


def leaves_nothing(user, *arguments, **more):
    before = left()
    done = doctor(*arguments, user=user, **more)
    true(done.returncode in (0, 1), done.stdout + done.stderr)
    equal(left(), before, "files")
    return done


@test
def by_default():
    """neither region nor board nor report is left, by root nor by a user"""
    new_place()
    for user in (None, ALICE):
        true("/tmp/cudevshr.cache" in leaves_nothing(user).stdout, "it used no region")
        leaves_nothing(user, "--json")


@test
def named():
    """nor a region that is named, nor the directories that were made for it"""
    new_place()
    os.mkdir("/tmp/kept")
    os.chmod("/tmp/kept", 0o777)
    for region in ("/tmp/kept/region", "/tmp/a/b/c/region", "/tmp/kept/d/region"):
        for user in (None, ALICE):
            true(region in leaves_nothing(user, CUDA_DEVICE_MEMORY_SHARED_CACHE=region).stdout, "region")


@test
def ended():
    """nor where it is ended by a signal in the midst"""
    new_place()
    before = left()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for moment in range(12):
            process = subprocess.Popen(command(None, VGPU, "doctor"), stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env={"PATH": MINE["PATH"]})
            try:
                process.wait(timeout=0.02 * moment)
            except subprocess.TimeoutExpired:
                process.send_signal(number)
            true(process.wait(timeout=60) in (-number, 0, 1), f"status {process.returncode}")
            equal(left(), before, f"files after signal {number}")


@test
def unmade():
    """nor a region that could not be made whole"""
    new_place()
    before = left()
    doctor(prefix=["prlimit", "--fsize=4096"])
    equal(left(), before, "files")


@test
def what_was_there():
    """a region and a board that were there stay"""
    new_place()
    holder = subprocess.Popen(command(None, HOLD, "100", "100"), stdout=subprocess.PIPE, text=True,
                              env={"PATH": MINE["PATH"]})
    true("CUDA_SUCCESS" in holder.stdout.readline(), "it holds")
    board = f"{BOARDS}/vgpu-board-GPU-other"
    with open(board, "w", encoding="ascii"):
        pass
    before = left()
    leaves_nothing(None)
    true("/tmp/cudevshr.cache" in before and board in before, f"{before}")
    holder.kill()
    holder.wait()
    leaves_nothing(None)


@test
def of_a_command():
    """with a command nothing is left but what that leaves by itself"""
    new_place()
    before = left()
    doctor("--", "true")
    equal(left(), before, "files")
    doctor("--", HOLD, "10", "0")
    equal(left(), [*sorted([*before, "/tmp/cudevshr.cache"])], "files")


assert own_tmp and PLACES
tap.main()
