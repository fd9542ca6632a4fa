# SPDX-License-Identifier: Apache-2.0
"""checkpoint BUILD: `vgpu pause --release --checkpoint` takes all of a container off the card, and `vgpu
resume` brings it back to programs that work all the time. The simulator's driver ends whoever calls it
meanwhile, but for calls that give the GPU work, and does not restore a process whose host memory is mapped."""
import fcntl
import json
import os
import signal
import subprocess
import time

import tap
from tap import equal, test, true

from mine import BUILD, MINE, VGPU
from place import Place, child_of, refused_line

MIB = 256
SIM = "1xh200,checkpoint"


class Worker:
    """process-parked in a container with oversubscription."""

    def __init__(self, place, *options, sim=SIM, environment=None, before=(), arguments=(str(MIB),)):
        self.place, self.sim = place, sim
        self.process = subprocess.Popen(
            [*before, VGPU, "run", "--region", place.region, f"--sim={sim},machine={place.directory}/machine",
             "--memory", "8g", *(options or ("--oversubscribe",)), "--", f"{BUILD}/test/process/process-parked",
             *arguments], env={**MINE, **(environment or {})}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        equal(self.process.stdout.readline(), "ready\n", "what it says first")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.kill()
        self.process.stdin.close()
        try:
            status = self.process.wait(timeout=60)
            true(kind or status == 0, f"its exit status is {status}")
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.process.stderr.close()

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def rounds(self):
        self.tell("")
        said = self.process.stdout.readline()
        true(said and "wrong" not in said, f"{said!r}, {'' if said else self.process.stderr.read()}")
        return [int(word) for word in said.split()]

    def works(self):
        """Each of its threads makes a round, and finds what it wrote."""
        start, end = self.rounds(), time.monotonic() + 60
        while any(now < then + 2 for now, then in zip(self.rounds(), start)) and time.monotonic() < end:
            time.sleep(0.01)
        true(all(now >= then + 2 for now, then in zip(self.rounds(), start)), "a thread makes no rounds")

    def is_still(self):
        start = self.rounds()
        time.sleep(0.3)
        equal(self.rounds(), start, "rounds while it is paused")


def vgpu(place, command, *options, sim=SIM, status=0):
    """With the simulated driver in the place of the machine's."""
    done = subprocess.run([VGPU, command, *options, "--region", place.region], capture_output=True, text=True,
                          timeout=60, check=False,
                          env={**MINE, "VGPU_SIM": f"{sim},machine={place.directory}/machine",
                               "LD_LIBRARY_PATH": f"{BUILD}/src/sim"})
    equal((done.returncode, done.stderr), (status, ""), f"{command} {options}: {done.stdout}")
    return done.stdout


def start(place, *command):
    return subprocess.Popen([VGPU, *command, "--region", place.region], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL,
                            env={**MINE, "VGPU_SIM": f"{SIM},machine={place.directory}/machine",
                                 "LD_LIBRARY_PATH": f"{BUILD}/src/sim"})


def resume_is_refused(place, *words, sim=SIM, **variables):
    """It says these words on stderr, and the process stays checkpointed."""
    done = subprocess.run([VGPU, "resume", "--region", place.region], capture_output=True, text=True, check=False,
                          env={**MINE, "VGPU_SIM": f"{sim},machine={place.directory}/machine",
                               "LD_LIBRARY_PATH": f"{BUILD}/src/sim", **variables})
    equal((done.returncode, done.stdout), (1, ""), "resume")
    for word in (*words, "nothing is changed"):
        true(word in done.stderr, f"no {word!r} in {done.stderr}")
    equal(state(place), "checkpointed")


def pause(place, **more):
    return vgpu(place, "pause", "--release", "--checkpoint", **more)


def pause_json(place):
    return vgpu(place, "pause", "--release", "--checkpoint", "--json")


def container(place):
    return json.loads(vgpu(place, "ps", "--json"))["containers"][0]


def state(place):
    return container(place)["processes"][0]["release"]


def held(place):
    """MiB on the card that the container's processes hold."""
    memory = container(place)["devices"][0]["memory"]
    return (memory["bytes"] - memory["spilled"]) >> 20


@test
def comes_back():
    """a program that works all the time leaves the card as a whole, and comes back with all that it had"""
    with Place() as place, Worker(place) as worker:
        for _ in range(3):
            worker.works()
            said = pause(place)
            for words in ("paused: its programs wait", "1 process checkpointed: nothing of it is on the card",
                          "in host memory, until 'vgpu resume'"):
                true(words in said, f"no {words!r} in {said}")
            equal((state(place), held(place)), ("checkpointed", 0), "in vgpu ps")
            true("checkpointed" in vgpu(place, "ps"), "the container's state")
            worker.is_still()
            true("resumed" in vgpu(place, "resume"), "resumed")
            equal((state(place), container(place)["devices"][0]["memory"]["spilled"]), (None, 0), "afterwards")
        worker.works()


@test
def spilled_memory():
    """so does one that has spilled memory, which stays spilled"""
    with Place() as place, Worker(place, "--oversubscribe=10", arguments=("512",)) as worker:
        before = container(place)["devices"][0]["memory"]["spilled"] >> 20
        true(before > 100, f"{before} MiB are spilled")
        for _ in range(2):
            worker.works()
            pause(place)
            equal(state(place), "checkpointed")
            vgpu(place, "resume")
        worker.works()


@test
def limited():
    """so does one with a compute limit, and where the API ledger counts; the limit holds afterwards"""
    for options, sim in ((("--oversubscribe", "--cores", "30"), SIM), (("--oversubscribe",), SIM + ",sandbox")):
        with Place() as place, Worker(place, *options, sim=sim) as worker:
            for _ in range(2):
                worker.works()
                pause(place, sim=sim)
                equal(state(place), "checkpointed")
                vgpu(place, "resume", sim=sim)
            worker.works()


@test
def long_kernel():
    """afterwards a kernel that runs for long is not taken off the card, which the driver cannot, and ends well"""
    for options in ((), ("--oversubscribe", "--cores", "30")):
        with Place() as place, Worker(place, *options) as worker:
            pause(place)
            vgpu(place, "resume")
            worker.works()
            worker.tell("long")
            worker.process.stdout.readline()
            vgpu(place, "pause")
            time.sleep(0.5)
            vgpu(place, "resume")
            worker.works()


@test
def many_times():
    """at any moment of its work, also when it was paused before, and where what it allocates has to spill"""
    for options in ((), ("--oversubscribe=10",)):
        with Place() as place, Worker(place, *options) as worker:
            for number in range(30):
                time.sleep(number * 7919 % 31 / 1000)
                if number % 4 == 3:
                    vgpu(place, "pause")
                pause(place)
                equal(state(place), "checkpointed", f"the {number}th time, {options}")
                vgpu(place, "resume")
            worker.works()


@test
def two_processes():
    """of a container with two processes both go, and come back"""
    with Place() as place, Worker(place) as one, Worker(place) as other:
        said = json.loads(pause_json(place))
        equal((said["release"]["checkpointed"], said["release"]["context"]), (2, 0), said)
        equal(held(place), 0)
        vgpu(place, "resume")
        one.works()
        other.works()


@test
def all_spilled():
    """so does one all of whose memory is spilled, and has nothing to move"""
    with Place() as place, Worker(place, "--oversubscribe=16") as worker:
        equal(held(place) < 700, True, "context and pool")
        said = pause(place)
        true("1 process checkpointed" in said and "nothing released" not in said, said)
        equal((state(place), held(place)), ("checkpointed", 0))
        vgpu(place, "resume")
        worker.works()


@test
def one_of_two():
    """a second command checkpoints the process that was stopped during the first"""
    with Place() as place, Worker(place) as one, Worker(place) as other:
        os.kill(child_of(other), signal.SIGSTOP)
        said = pause(place)
        true("1 process checkpointed" in said and "1 process did not answer" in said, said)
        os.kill(child_of(other), signal.SIGCONT)
        said = json.loads(pause_json(place))
        equal((said["release"]["checkpointed"], held(place)), (2, 0), said)
        vgpu(place, "resume")
        one.works()
        other.works()


@test
def two_commands():
    """commands that come at the same time do one after the other what they do"""
    with Place() as place, Worker(place) as worker:
        for _ in range(10):
            commands = [start(place, *words) for words in
                        (("pause", "--release", "--checkpoint"), ("resume",), ("pause", "--release"), ("resume",))]
            for command in commands:
                command.wait(60)
        vgpu(place, "resume")
        worker.works()
        pause(place)
        equal(state(place), "checkpointed")
        vgpu(place, "resume")
        worker.works()


def is_released_alone(kind, *words):
    """A program with memory of that kind is released and not checkpointed, with these words, and comes back."""
    with Place() as place, Worker(place, arguments=(str(MIB), kind)) as worker:
        said = pause(place)
        for word in words:
            true(word in said, f"no {word!r} in {said}")
        equal(state(place), "released")
        vgpu(place, "resume")
        worker.works()


@test
def refused():
    """what the driver refuses is said; the memory is released all the same, and comes back"""
    is_released_alone("managed", "not checkpointed: 1, because the driver refuses (cuCheckpointProcessCheckpoint: 801)")


@test
def own_host_memory():
    """one that has host memory of its own, which the driver would not restore, is not checkpointed"""
    is_released_alone("host", "1 process not checkpointed", "released: ")


@test
def prepared_for_rdma():
    """nor is one that has memory which it has prepared for RDMA: that stays on the card"""
    is_released_alone("rdma", "1 process not checkpointed", "movable")


@test
def nothing_to_move():
    """one all of whose memory is to stay where it is goes, and comes back"""
    with Place() as place, Worker(place, arguments=(str(MIB), "exported")) as worker:
        for _ in range(2):
            said = pause(place)
            true("1 process checkpointed: nothing of it is on the card" in said, said)
            equal((state(place), held(place)), ("checkpointed", 0), "in vgpu ps")
            vgpu(place, "resume")
            worker.works()


def run(place, *arguments):
    """A program that says a line and then does nothing."""
    process = subprocess.Popen([VGPU, "run", "--region", place.region, f"--sim={SIM},machine={place.directory}/machine",
                                *arguments], env=MINE, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline()


@test
def lowered_limit():
    """one whose limit was lowered meanwhile comes back, and so it counts"""
    with Place() as place:
        held_one, line = run(place, "--memory", "8g", "--oversubscribe", "--", f"{BUILD}/test/driver/hold", "1000", "100")
        with held_one:
            true("CUDA_SUCCESS" in line, line)
            pause(place)
            away = container(place)["devices"][0]["memory"]
            true(away["bytes"] >= 1518 << 20 and away["bytes"] == away["spilled"], f"it is {away} while checkpointed")
            done = subprocess.run([VGPU, "set", "--region", place.region, "--memory", "600m"], env=MINE,
                                  capture_output=True, text=True, check=True)
            true("in use, over the new limit" in done.stderr, done.stderr)
            vgpu(place, "resume")
            memory = container(place)["devices"][0]["memory"]
            equal((memory["bytes"], memory["spilled"]), (away["bytes"], 0), "afterwards")
            held_one.terminate()


@test
def place_is_kept():
    """another process of the container does not get the place of one that is checkpointed"""
    with Place() as place, Worker(place) as worker:
        pause(place)
        other, line = run(place, "--", f"{BUILD}/test/driver/hold", "7800", "0")
        with other:
            true("CUDA_ERROR_OUT_OF_MEMORY" in line, line)
        vgpu(place, "resume")
        worker.works()


@test
def full_card():
    """where a neighbour has filled the card nothing is restored, and all of it once there is room"""
    small = SIM + ",memory=2GiB"
    with Place() as place, Worker(place, sim=small) as worker:
        pause(place, sim=small)
        other = subprocess.Popen([VGPU, "run", "--region", f"{place.directory}/other",
                                  f"--sim={small},machine={place.directory}/machine", "--",
                                  f"{BUILD}/test/driver/hold", "1000", "100"], env=MINE, stdout=subprocess.PIPE, text=True)
        with other:
            true("CUDA_SUCCESS" in other.stdout.readline(), "the neighbour was refused")
            for _ in range(2):
                resume_is_refused(place, "the card is short of room: ", sim=small)
            other.terminate()
        vgpu(place, "resume", sim=small)
        worker.works()


@test
def other_restores():
    """while another command restores on the machine nothing is restored; that is waited for, and refused after 30 s"""
    boards = MINE["VGPU_BOARD_DIR"]
    os.makedirs(boards, exist_ok=True)
    with Place() as place, Worker(place) as worker:
        pause(place)
        held_lock = os.open(boards, os.O_RDONLY)
        fcntl.flock(held_lock, fcntl.LOCK_EX)
        waiting = start(place, "resume")
        resume_is_refused(place, "another command restores")
        equal((waiting.wait(timeout=60), state(place)), (1, "checkpointed"))
        waiting = start(place, "resume")
        time.sleep(0.5)
        equal((waiting.poll(), state(place)), (None, "checkpointed"), "while the lock is held")
        os.close(held_lock)
        equal(waiting.wait(timeout=60), 0, "resume")
        worker.works()


@test
def no_calls():
    """so is it where the driver has no such calls"""
    with Place() as place, Worker(place, sim="1xh200") as worker:
        said = pause(place, sim="1xh200")
        true("not checkpointed: 1, because the driver refuses (cuCheckpointProcessLock: 801)" in said, said)
        equal(state(place), "released")
        vgpu(place, "resume", sim="1xh200")
        worker.works()


@test
def preloaded_command():
    """a command under the library, which hides the card, restores nothing and says so"""
    with Place() as place, Worker(place) as worker:
        pause(place)
        resume_is_refused(place, "preloaded into this command", LD_PRELOAD=f"{BUILD}/libvgpu.so")
        vgpu(place, "resume")
        worker.works()


@test
def no_driver():
    """where the command finds no driver the memory is released, and nobody is parked"""
    with Place() as place, Worker(place) as worker:
        done = subprocess.run([VGPU, "pause", "--release", "--checkpoint", "--region", place.region], env=MINE,
                              capture_output=True, text=True, check=True)
        if "libcuda.so.1 cannot be loaded here" not in done.stdout:
            raise tap.Skip("a driver is installed here")
        equal(state(place), "released")
        vgpu(place, "resume")
        worker.works()


@test
def without_oversubscription():
    """of a container without oversubscription nothing is released or checkpointed, and it is paused"""
    with Place() as place, Worker(place, "--cores", "90") as worker:
        said = pause(place)
        true("nothing released" in said and "paused" in said, said)
        vgpu(place, "resume")
        worker.works()


@test
def repeated():
    """a second order, a plain pause and a plain release change nothing of what is checkpointed"""
    with Place() as place, Worker(place) as worker:
        pause(place)
        for options in (("--release", "--checkpoint"), (), ("--release",), ("--release", "--on-demand")):
            said = vgpu(place, "pause", *options)
            true("--on-demand" not in options or "checkpointed: 'vgpu resume' alone brings it back" in said, said)
            equal((state(place), held(place)), ("checkpointed", 0), options)
        vgpu(place, "resume")
        worker.works()


@test
def tool_killed():
    """whenever the command is killed, a resume brings the program back"""
    with Place() as place, Worker(place) as worker:
        for number in range(40):
            command = "resume" if number % 2 else "pause"
            tool = start(place, command, *(("--release", "--checkpoint") if command == "pause" else ()))
            time.sleep(number * 7919 % 41 / 1000)
            tool.kill()
            tool.wait()
            if number % 2:
                vgpu(place, "resume")
                worker.works()
        worker.works()


@test
def killed():
    """a process that is killed while it is checkpointed leaves nothing on the card or on the host"""
    with Place() as place:
        worker = Worker(place)
        pause(place)
        os.kill(child_of(worker), signal.SIGKILL)
        worker.process.communicate(timeout=60)
        for left in json.loads(vgpu(place, "ps", "--json"))["containers"]:
            true(not left["processes"], left)
        vgpu(place, "resume")
        with Worker(place) as worker:
            worker.works()


@test
def exits():
    """one that exits while it is checkpointed ends when it is resumed, and one that is parked at once"""
    for sim, waits in ((SIM, True), ("1xh200", False)):
        with Place() as place, Worker(place, sim=sim) as worker:
            pause(place, sim=sim)
            worker.tell("exit")
            if waits:
                time.sleep(0.3)
                equal(worker.process.poll(), None, "it has ended")
                vgpu(place, "resume", sim=sim)
            equal(worker.process.wait(60), 0, "its exit status")


@test
def descriptors():
    """its descriptors are no others' numbers; a low hard limit of open files is a reason not to checkpoint"""
    with Place() as place, Worker(place, before=("prlimit", "--nofile=64:4096")) as worker:
        pause(place)
        equal(state(place), "checkpointed")
        numbers = sorted(int(name) for name in os.listdir(f"/proc/{child_of(worker)}/fd"))
        true(any(number >= 64 for number in numbers) and not any(20 <= number < 64 for number in numbers), numbers)
        true("64 " in limits_of(child_of(worker)), "the limit is another")
        vgpu(place, "resume")
        worker.works()
        true(all(int(name) < 64 for name in os.listdir(f"/proc/{child_of(worker)}/fd")), "they are closed")
    with Place() as place, Worker(place, before=("prlimit", "--nofile=30:30"), arguments=("1024",)) as worker:
        said = pause(place)
        true("1 process not checkpointed" in said and "released: " in said, said)
        vgpu(place, "resume")
        worker.works()


def limits_of(pid):
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        return next(line for line in file if line.startswith("Max open files"))


@test
def arguments():
    """--checkpoint without --release, and with --on-demand, is refused"""
    for options in (("--checkpoint",), ("--release", "--on-demand", "--checkpoint")):
        done = subprocess.run([VGPU, "pause", *options], capture_output=True, text=True, check=False)
        refused_line(done, 2, "--checkpoint goes with --release")


tap.main()
