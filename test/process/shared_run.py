# SPDX-License-Identifier: Apache-2.0
"""shared_run BUILD: what runs of `vgpu run` share on one machine: boards, and a user's simulated GPU.
/tmp and /dev/shm are the test's own, in a mount namespace."""
import os
import re
import signal
import subprocess
import time

import own_tmp  # before all others: it runs the script again
import tap
from mine import BUILD, MINE, VGPU
from own_tmp import ALICE, BOB, as_user, begin
from tap import equal, test, true

BOARDS = "/tmp/vgpulock"
HOLD = os.path.join(BUILD, "test/driver/hold")
SLICE = os.path.join(BUILD, "test/process/slice")
LOAD = os.path.join(BUILD, "vgpu-load")
ENVIRONMENT = {name: value for name, value in MINE.items() if not name.startswith("VGPU_")}
CARD_MIB = 140000  # of an H200's 143,771


def run(*arguments, user=None, **variables):
    return subprocess.run([*as_user(user), VGPU, "run", *arguments], env={**ENVIRONMENT, **variables},
                          capture_output=True, text=True, timeout=60, check=False)


def start(*arguments, user=None):
    return subprocess.Popen([*as_user(user), VGPU, "run", *arguments], env=ENVIRONMENT, text=True,
                            stdout=subprocess.PIPE, start_new_session=True)


def stop(process, number=signal.SIGTERM):
    os.killpg(process.pid, number)
    process.communicate(timeout=30)


def hold(*options, mib=1000):
    process = start("--sim", *options, "--", HOLD, str(mib), "100")
    line = process.stdout.readline()
    true("CUDA_SUCCESS" in line, line)
    return process


def directory_of(user=None):
    """The boards' directory that a run's programs use, and what was said."""
    done = run("--", "sh", "-c", f"echo ${{VGPU_BOARD_DIR:-{BOARDS}}}", user=user)
    equal(done.returncode, 0, done.stderr)
    return done.stdout.strip(), done.stderr


def is_own(user, because):
    directory, said = directory_of(user)
    equal(directory, f"/tmp/vgpulock-{user}", said)
    equal(said.count("\n"), 1, said)
    true(because in said and directory in said, said)
    status = os.stat(directory)
    equal((status.st_uid, status.st_mode & 0o7777), (user, 0o700), "owner and mode")


def plant(mode=0o755, owner=BOB):
    begin()
    as_user(owner)
    os.mkdir(BOARDS)
    os.chown(BOARDS, owner, owner)
    os.chmod(BOARDS, mode)


# ---- boards ----

@test
def makes_boards():
    """a run makes the boards' directory where it is missing, open to all and sticky, and says nothing"""
    begin()
    old = os.umask(0o077)
    equal(directory_of(), (BOARDS, ""), "directory")
    os.umask(old)
    equal(os.stat(BOARDS).st_mode & 0o7777, 0o1777, "mode")


@test
def users_share_boards():
    """the directory that one user's run made is used by another's"""
    begin()
    for user in (ALICE, BOB):
        equal(directory_of(user), (BOARDS, ""), "directory")
    equal(os.stat(BOARDS).st_uid, ALICE, "owner")


@test
def keeps_roots_boards():
    """one of root's is used as it is, sticky or not"""
    for mode in (0o777, 0o1777):
        plant(mode, 0)
        equal(directory_of(ALICE), (BOARDS, ""), "directory")
        equal(os.stat(BOARDS).st_mode & 0o7777, mode, "mode")


@test
def keeps_boards_that_are_named():
    """a directory that the environment names is left to it"""
    begin()
    done = run("--", "sh", "-c", "echo $VGPU_BOARD_DIR", VGPU_BOARD_DIR="/tmp/others")
    equal((done.stdout, done.stderr, os.listdir("/tmp")), ("/tmp/others\n", "", []))


@test
def another_users_directory():
    """another user's directory that is not sticky is not used, but one of the user's own"""
    for mode in (0o755, 0o777):
        plant(mode)
        is_own(ALICE, "another user's")
        equal(os.listdir(BOARDS), [], "files in the other's")


@test
def planted_link():
    """a link at the place is not followed"""
    begin()
    as_user(ALICE)
    os.mkdir("/tmp/aim", 0o777)
    os.symlink("/tmp/aim", BOARDS)
    is_own(ALICE, "symbolic link")
    equal(os.listdir("/tmp/aim"), [], "files at its end")


@test
def planted_file():
    """a file at the place is left as it is"""
    begin()
    as_user(ALICE)
    with open(BOARDS, "w", encoding="ascii") as file:
        file.write("mine")
    is_own(ALICE, "no directory")
    equal(os.path.getsize(BOARDS), 4, "size")


@test
def boards_of_root_alone():
    """one of root's that the user may not write, and that has no boards, is of no use to the user"""
    plant(0o755, 0)
    is_own(ALICE, "may not be written")
    with open(f"{BOARDS}/vgpu-board-GPU-1", "w", encoding="ascii"):
        pass
    equal(directory_of(ALICE), (BOARDS, ""), "directory, with boards in it")


@test
def planted_own():
    """nor is another user's used in the place of one's own: then it is elsewhere, or nowhere"""
    plant()
    os.mkdir(f"/tmp/vgpulock-{ALICE}", 0o777)
    os.chown(f"/tmp/vgpulock-{ALICE}", BOB, BOB)
    directory, said = directory_of(ALICE)
    equal(directory, f"/dev/shm/vgpulock-{ALICE}", said)
    os.rmdir(directory)
    os.chmod("/dev/shm", 0o755)
    directory, said = directory_of(ALICE)
    equal((directory, said.count("\n")), (BOARDS, 1), said)
    true("no other directory" in said, said)


@test
def read_only():
    """a /tmp that may not be written stops no run"""
    begin()
    as_user(ALICE)
    os.mkdir("/tmp/region")
    os.chown("/tmp/region", ALICE, ALICE)
    os.chmod("/tmp", 0o755)
    done = run("--region", "/tmp/region/r", "--", "sh", "-c", "echo $VGPU_BOARD_DIR", user=ALICE)
    equal((done.returncode, done.stdout), (0, f"/dev/shm/vgpulock-{ALICE}\n"), done.stderr)


@test
def many_first_runs():
    """first runs of two users at the same moment use one directory"""
    begin()
    as_user(ALICE)
    for _ in range(10):
        runs = [start("--", "sh", "-c", f"echo ${{VGPU_BOARD_DIR:-{BOARDS}}}", user=user)
                for user in (ALICE, BOB) * 2]
        equal([process.communicate(timeout=30)[0] for process in runs], [BOARDS + "\n"] * 4, "directories")
        os.rmdir(BOARDS)


@test
def tenants_meet():
    """two runs are tenants of one board, each with its limit"""
    begin()
    place = f"/tmp/vgpu-sim-{os.geteuid()}/boards"
    loads = [start("--sim", "--cores", cores, "--", LOAD, "--seconds", "60") for cores in ("30", "60")]
    try:
        for load in loads:
            true(load.stdout.readline(), "it works")
        boards = [name for name in os.listdir(place) if name.startswith("vgpu-board-")]
        equal(len(boards), 1, f"boards {boards}")
        with open(f"{place}/{boards[0]}", "rb") as file:
            board = file.read()
        slots = [board[256 + 128 * i:256 + 128 * (i + 1)] for i in range(126)]
        limits = sorted(int.from_bytes(slot[40:44], "little") for slot in slots if any(slot[:8]))
        equal(limits, [30, 60], "limits on the board")
    finally:
        for load in loads:
            stop(load)


# ---- the library alone, without a directory for boards ----

UNKNOWN = "neighbours are unknown"


def bare(region, seconds):
    """A load under a compute limit, without `vgpu run`."""
    sim = os.path.join(BUILD, "src/sim")
    return subprocess.Popen(
        [LOAD, "--seconds", str(seconds)], text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True, env={
            **ENVIRONMENT, "LD_LIBRARY_PATH": sim, "LD_PRELOAD": f"{BUILD}/libvgpu.so:{sim}/libvgpu-sim-rm.so",
            "VGPU_SIM_MACHINE": "/tmp/machine", "CUDA_DEVICE_SM_LIMIT": "30",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"/tmp/{region}"})


@test
def unknown_neighbours():
    """who works under a compute limit beside another container is told once that neighbours are unknown"""
    begin()
    loads = [bare(region, 300) for region in ("one", "two")]
    for load in loads:
        line = load.stderr.readline()  # until it comes, or the load ends
        true(UNKNOWN in line and BOARDS in line, line)
    time.sleep(3)  # it is asked again after one second, two and four
    for load in loads:
        os.killpg(load.pid, signal.SIGTERM)
    equal([load.communicate(timeout=60)[1].count(UNKNOWN) for load in loads], [0, 0], "lines more")


@test
def known_neighbours():
    """no such word comes alone, beside a process of the same container, or with a board"""
    begin()
    for regions in (["one"], ["one", "one"]):
        loads = [bare(region, 4) for region in regions]
        equal([load.communicate(timeout=60)[1].count(UNKNOWN) for load in loads], [0] * len(loads))
    os.mkdir(BOARDS)
    os.chmod(BOARDS, 0o1777)
    loads = [bare(region, 4) for region in ("one", "two")]
    equal([load.communicate(timeout=60)[1].count(UNKNOWN) for load in loads], [0, 0])


# ---- the simulated machine ----

def machine_of(*options, user=None, **variables):
    """(the machine's directory or file by the environment, the boards' directory, the first device's UUID)"""
    done = run("--sim", *options, "--", "sh", "-c",
               f'echo "$VGPU_SIM_MACHINE"; echo "$VGPU_BOARD_DIR"; "{BUILD}/vgpu" doctor --json',
               user=user, **variables)
    uuid = re.search(r"GPU-[0-9a-f-]{36}", done.stdout)
    true(uuid, done.stdout + done.stderr)
    return (*done.stdout.splitlines()[:2], uuid[0])


@test
def one_machine():
    """runs of one user share one simulated machine: what one holds the other lacks"""
    begin()
    first = hold(mib=CARD_MIB)
    done = run("--sim", "--", HOLD, "10000", "0")
    true("CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, done.stdout + done.stderr)
    stop(first)
    done = run("--sim", "--", HOLD, "10000", "0")
    equal(done.returncode, 0, done.stdout + done.stderr)


@test
def crashed_run():
    """a run that was killed with all that it started leaves the shared machine whole and its memory free"""
    begin()
    other = hold(mib=100)
    for _ in range(3):
        crashed = hold(mib=CARD_MIB - 2000)
        stop(crashed, signal.SIGKILL)
    done = run("--sim", "--", HOLD, str(CARD_MIB - 2000), "0")
    equal(done.returncode, 0, done.stdout + done.stderr)
    stop(other)


@test
def machine_is_removed():
    """the shared machine goes with the last run, also after a crash, and not with the first"""
    begin()
    first, second = hold(), hold()
    stop(first)
    true(os.listdir(f"/tmp/vgpu-sim-{os.geteuid()}"), "it went with the first run")
    stop(second, signal.SIGKILL)
    equal(run("--sim", "--", HOLD, "100", "0").returncode, 0)
    true(not os.path.exists(f"/tmp/vgpu-sim-{os.geteuid()}"), "it is left")


@test
def process_outlives_run():
    """a process that outlives its run keeps the machine that later runs find"""
    begin()
    first = start("--sim", "--", "sh", "-c", f"{HOLD} {CARD_MIB} 100 & read line")
    true("CUDA_SUCCESS" in first.stdout.readline(), "it holds")
    os.kill(first.pid, signal.SIGKILL)  # vgpu run itself
    first.wait(timeout=30)
    for _ in range(2):
        done = run("--sim", "--", HOLD, "10000", "0")
        true("CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, done.stdout + done.stderr)
    stop(first, signal.SIGKILL)


@test
def own_machine():
    """a run has a machine of its own where one is named, with boards of its own"""
    begin()
    shared = machine_of()
    equal(machine_of(), shared, "the shared machine")
    equal(machine_of(VGPU_SIM_MACHINE="/tmp/own")[:2], ("/tmp/own", "/tmp/own.boards"))
    equal(machine_of("--sim=h200,machine=/tmp/own2,sms=132")[1], "/tmp/own2.boards")
    first = hold(mib=CARD_MIB)
    done = run("--sim", "--", HOLD, "10000", "0", VGPU_SIM_MACHINE="/tmp/own")
    equal(done.returncode, 0, done.stdout + done.stderr)
    stop(first)


@test
def other_devices():
    """runs that ask for other devices work beside each other, and are not taken for tenants of one GPU"""
    begin()
    equal(len({machine_of(sim)[2] for sim in ("--sim", "--sim=h200", "--sim=2xa100", "--sim=driver=470")}), 3)
    first = hold()
    for sim in ("--sim=2xa100", "--sim=driver=470", "--sim=h200"):
        done = run(sim, "--", HOLD, "100", "0")
        equal((done.returncode, done.stderr), (0, ""), sim)
    stop(first)


@test
def users_have_machines():
    """another user has a machine of its own; a command that changes its user stays on the run's"""
    begin()
    true(machine_of(user=ALICE)[0] != machine_of(user=BOB)[0], "they share one")
    first = hold(mib=CARD_MIB)
    done = run("--sim", "--", *as_user(ALICE), HOLD, "10000", "0")
    true("CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, done.stdout + done.stderr)
    stop(first)
    done = run("--sim", "--", *as_user(ALICE), HOLD, "10000", "0")
    equal(done.returncode, 0, done.stdout + done.stderr)


@test
def planted_machine():
    """where another user has taken the shared machine's place, a run has one of its own and says so"""
    for make in (lambda path: os.mkdir(path, 0o777), lambda path: os.symlink("/tmp", path),
                 lambda path: open(path, "w", encoding="ascii").close()):
        begin()
        as_user(ALICE)
        make(f"/tmp/vgpu-sim-{ALICE}")
        done = run("--sim", "--", HOLD, "100", "0", user=ALICE)
        equal((done.returncode, done.stderr.count("\n")), (0, 1), done.stderr)
        true(f"/tmp/vgpu-sim-{ALICE} cannot be used" in done.stderr, done.stderr)
        true(not [name for name in os.listdir("/tmp") if name.startswith("vgpu-run")], "files of the run")


assert own_tmp
tap.main()
