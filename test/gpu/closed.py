# SPDX-License-Identifier: Apache-2.0
"""closed.py BUILD [--sim]: a kernel that never ends, under a limit of 10 and so in windows of the channel gate, and
what becomes of its program and of others that is stopped, looked at by a debugger, killed, forked, replaced by another, or
ends or gives up its context while it is closed, whose governor does not run, or whose limit is taken away."""
import ctypes
import json
import os
import signal
import subprocess
import sys
import time

from watch import MIB, Card, Slice, Talker, check, failures, sim_begin, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
import compute_watch  # noqa: E402

build = os.path.abspath(sys.argv[1])
sim = "--sim" in sys.argv[2:]
PROGRAM, LOAD, VGPU = f"{build}/test/gpu/closed", f"{build}/vgpu-load", f"{build}/vgpu"
LIMIT = 10
POINTS = 3          # of utilisation, over so long as HELD_S: one window of a period more or less, and rounding
HELD_S = 2.0
LEFT_S = 0.060      # a closure with less left is not begun in
SETTLED_S = 0.010   # the channels are off the GPU so long after a closure began
CLOSES_S = 5        # a container that never is, is not in windows
RUN_S = 20          # a program that says nothing for so long is killed
ENDS_S = 1.0        # promised: of what is killed or ends, and of the next one's kernel
GOES_ON_S = 0.100   # the kernel, when the closure is over
RUNS_S = 0.002      # of GPU time, and a kernel is seen to run
FULL, FULL_S = 0.9, 0.050
TRIES = 5           # of a step that came too late for its closure
LOOK_S = 0.001
OVERDUE_S = 0.15    # after 0.1 s whoever calls opens
OPEN_S = 0.7        # two of NVML's samples, or three


LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WAIT_ALL = 0x4206, 0x4207, 17, 0x40000000


class Late(Exception):
    """The closure was over when the step began."""


class Scene:
    """A program under the limit, in a container of its own."""

    def __init__(self, command):
        self.where = Slice(build, "closed", 0, sim)
        self.talker = Talker(self.where, command, {"CUDA_DEVICE_SM_LIMIT": str(LIMIT)}, RUN_S)
        self.region = compute_watch.Region(self.where.path)

    def busy_s(self):
        words = self.region.words()
        return words[1] if words else 0.0

    def await_closed(self):
        """Until its GPU is closed and stays so for a while; until when, in seconds of time.monotonic()."""
        end = time.monotonic() + CLOSES_S
        while time.monotonic() < end:
            now = time.monotonic()
            self.region.words()
            closed_s, until_s = self.region.closed_ns() / 1e9, self.region.closed_until_ns() / 1e9
            if until_s - now > LEFT_S and now - closed_s > SETTLED_S:
                return until_s
            time.sleep(LOOK_S)
        raise RuntimeError(f"the container was not closed within {CLOSES_S} s")

    def ask_closed(self, line):
        """Tells the program something while it is closed; its answer's words, the first number of which says when it
        began."""
        until_s = self.await_closed()
        words = self.talker.ask(line).split()
        if len(words) > 1 and int(words[1]) / 1e9 > until_s:
            raise Late
        return words

    def goes_on_s(self):
        """How long until its kernel runs again, from now or from the end of the closure on."""
        began, busy_s = time.monotonic(), self.busy_s()
        over_s = max(began, self.region.closed_until_ns() / 1e9)
        until(lambda: self.busy_s() > busy_s + RUNS_S, RUN_S, LOOK_S)
        return max(0.0, time.monotonic() - over_s)

    def end(self):
        self.where.end()


def seconds_of(words):
    """Of an answer "ended BEGAN_NS ENDED_NS"; a day where it is none."""
    return (int(words[2]) - int(words[1])) / 1e9 if len(words) > 2 else 86400.0


def ms(seconds):
    return f"{1000 * seconds:.1f} ms"


def ptrace(request, thread):
    if LIBC.ptrace(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {thread}")


def hold(threads):
    """As a debugger that attaches: none of them runs from here on."""
    for thread in threads:
        ptrace(PTRACE_SEIZE, thread)
        ptrace(PTRACE_INTERRUPT, thread)
        os.waitpid(thread, WAIT_ALL)


def let_go(threads):
    for thread in threads:
        ptrace(PTRACE_DETACH, thread)


def threads_of(pid):
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def stays_held(what, begin=None, owes=False):
    """By the card's utilisation, on which nothing else is; who owes time has less."""
    begin = begin or time.time()
    time.sleep(max(0.0, begin + HELD_S - time.time()))
    samples = card.utilisation(begin, time.time())
    mean = sum(samples) / len(samples) if samples else -1.0
    held = samples and mean <= LIMIT + POINTS and (owes or mean >= LIMIT - POINTS)
    check(f"{what}: held as before", held, f"NVML {mean:.1f} % over {HELD_S:.0f} s")


def next_is_free(what, began, used):
    """From the end of a program on: another one's kernel on the card, a fresh program's in the same container, and
    the memory."""
    words = beside.ask("kernel").split()
    check(f"{what}: the card is free for another program", words[:1] == ["ran"] and time.monotonic() - began < ENDS_S,
          f"a kernel of 1 ms took {ms(seconds_of(words))}, to {ms(time.monotonic() - began)} after the end began")
    back = until(lambda: card.used() <= used + 16 * MIB, ENDS_S)
    check(f"{what}: its memory is back", back,
          f"{card.used() / MIB:.0f} MiB in use, {used / MIB:.0f} before, after {ms(time.monotonic() - began)}")


def fresh(scene, what):
    """A program that starts now in the same container."""
    began = time.monotonic()
    once = Talker(scene.where, [PROGRAM, "once"], {"CUDA_DEVICE_SM_LIMIT": str(LIMIT)}, RUN_S)
    words = once.hear().split()
    took = time.monotonic() - began
    check(f"{what}: a fresh program of the container runs", words[:1] == ["ready"] and took < native_s + ENDS_S,
          f"{ms(took)} with its start, natively {ms(native_s)}")
    once.end()


# ---- the steps ----

def stands(what, hold_still, go_on):
    """The program does not run for 0.5 s, beginning while it is closed."""
    scene = Scene([LOAD, "--shape", "persistent", "--seconds", "0", "--json", "--calibration", calibration])
    try:
        until_s = scene.await_closed()
        begin = time.time()
        hold_still(scene.talker.pid)
        try:
            if time.monotonic() > until_s:
                raise Late
            time.sleep(0.5)
            end = time.time()
        finally:
            go_on(scene.talker.pid)
        took = scene.goes_on_s()
        check(f"{what}: the kernel goes on", took < GOES_ON_S, f"after {ms(took)}")
        stays_held(what, end)
        samples = card.utilisation(begin, end)
        check(f"{what}: it stood meanwhile", samples and max(samples) == 0, f"NVML's samples {samples}")
        scene.talker.process.terminate()
        status = scene.talker.process.wait(RUN_S)
        check(f"{what}: the program ends with its report", status == 0, f"exit status {status}")
    finally:
        scene.end()


def stopped():
    stands("SIGSTOP and SIGCONT 0.5 s later", lambda pid: os.kill(pid, signal.SIGSTOP),
           lambda pid: os.kill(pid, signal.SIGCONT))


def debugged():
    stands("a debugger attaches and leaves 0.5 s later", lambda pid: hold(threads_of(pid)),
           lambda pid: let_go(threads_of(pid)))


def frozen():
    """As one that has crashed, or gets no processor: nobody opens when the closure is over, until the program calls."""
    what = "the governor does not run"
    scene = Scene([PROGRAM, "primary"])
    try:
        scene.talker.hear()
        until_s = scene.await_closed()
        governor = [int(os.path.basename(task)) for task in compute_watch.governors(scene.talker.pid)]
        hold(governor)
        try:
            if time.monotonic() > until_s:
                raise Late
            time.sleep(max(0.0, until_s + OVERDUE_S - time.monotonic()))
            words = scene.talker.ask("call").split()
            check(f"{what}: a call of the program returns", len(governor) == 1 and words[:1] == ["called"] and
                  seconds_of(words) < ENDS_S, f"in {ms(seconds_of(words))}")
            begin = time.time()
            time.sleep(OPEN_S)
            samples = card.utilisation(begin, time.time())
            check(f"{what}: the call opens, and the kernel goes on", samples and max(samples) > FULL * 100,
                  f"NVML's samples {samples}")
        finally:
            let_go(governor)
        stays_held(f"{what} for a while", owes=True)
    finally:
        scene.end()


def killed():
    what, used = "SIGKILL", card.used()
    scene = Scene([PROGRAM, "primary"])
    try:
        scene.talker.hear()
        until_s = scene.await_closed()
        began = time.monotonic()
        if began > until_s:
            raise Late
        scene.talker.process.kill()
        scene.talker.process.wait(RUN_S)
        took = time.monotonic() - began
        check(f"{what}: the program is gone", took < ENDS_S, f"after {ms(took)}")
        next_is_free(what, began, used)
        fresh(scene, what)
    finally:
        scene.end()


def exits():
    what, used = "exit()", card.used()
    scene = Scene([PROGRAM, "primary"])
    try:
        scene.talker.hear()
        words = scene.ask_closed("exit")
        status = scene.talker.process.wait(RUN_S)
        began = int(words[1]) / 1e9
        took = time.monotonic() - began
        check(f"{what}: the program is gone", status == 0 and took < ENDS_S, f"exit status {status} after {ms(took)}")
        next_is_free(what, began, used)
        fresh(scene, what)
    finally:
        scene.end()


def forks():
    what = "fork, and two children that exit"
    scene = Scene([PROGRAM, "primary"])
    try:
        scene.talker.hear()
        words = scene.ask_closed("fork")
        check(f"{what}: they end", words[:1] + words[3:] == ["forked", "bad", "0"] and seconds_of(words) < ENDS_S,
              f"in {ms(seconds_of(words))}")
        took = scene.goes_on_s()
        check(f"{what}: the kernel goes on", took < GOES_ON_S, f"after {ms(took)}")
        stays_held(what)
    finally:
        scene.end()


def execs():
    what, used = "exec of a CUDA program", card.used()
    scene = Scene([PROGRAM, "primary"])
    try:
        scene.talker.hear()
        words = scene.ask_closed("exec")
        began = int(words[1]) / 1e9
        words = scene.talker.hear().split()
        took = time.monotonic() - began
        check(f"{what}: its kernel runs", words[:1] == ["ready"] and took < native_s + ENDS_S,
              f"{ms(took)} with its start, natively {ms(native_s)}")
        status = scene.talker.end()
        check(f"{what}: it ends", status == 0, f"exit status {status}")
        next_is_free(what, time.monotonic(), used)
    finally:
        scene.end()


def ends_context(which, what):
    scene = Scene([PROGRAM, which])
    try:
        scene.talker.hear()
        words = scene.ask_closed("end")
        check(f"{what}: the call returns, and the program goes on", words[:1] == ["ended"] and
              seconds_of(words) < ENDS_S, f"in {ms(seconds_of(words))}; its kernel was told to end after 100 ms")
        words = scene.talker.ask("kernel").split()
        check(f"{what}: its next kernel runs", words[:1] == ["ran"], f"in {ms(seconds_of(words))}")
        status = scene.talker.end()
        check(f"{what}: the program ends", status == 0, f"exit status {status}")
    finally:
        scene.end()


def destroyed():
    ends_context("own", "cuCtxDestroy")


def reset():
    ends_context("primary", "cuDevicePrimaryCtxReset")


def full_after_s(report, seconds, changed, busy_s):
    """How long after the change the kernel ran at full speed: by its own count, over the 20 ms that follow; on the
    simulator, where it counts nothing, by when it ended, because so much of its time was left."""
    if sim:
        return report["begin_ns"] / 1e9 + report["seconds"] - changed - (seconds - busy_s)
    step = report["window_ms"] / 1000
    times, amounts = [report["begin_ns"] / 1e9], [0.0]
    for window in report["windows"]:
        times.append(times[-1] + step)
        amounts.append(amounts[-1] + window * step)
    return compute_watch.delay_until(times, amounts, changed, 0.020, lambda share: share >= FULL)


def unlimited():
    what, seconds = "the last limit is removed", 2.5
    scene = Scene([LOAD, "--shape", "persistent", "--seconds", str(seconds), "--window-ms", "5", "--json",
                   "--calibration", calibration])
    try:
        scene.await_closed()
        time.sleep(0.5)
        until_s = scene.await_closed()
        busy_s = scene.busy_s()
        asked = subprocess.Popen([VGPU, "set", "--cores", "0", "--region", scene.where.path],
                                 stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        until(lambda: scene.region.words()[0] == 0, RUN_S, LOOK_S)
        changed = time.monotonic()
        asked.wait(RUN_S)
        if changed > until_s:
            raise Late
        text, _ = scene.talker.process.communicate(timeout=RUN_S)
        took = full_after_s(json.loads(text), seconds, changed, busy_s)
        check(f"{what}: the kernel goes on at full speed", took is not None and took < FULL_S,
              "never" if took is None else f"after {ms(took)}")
    finally:
        scene.end()


# ---- all ----

def run(step):
    """Again where the closure was over too soon: a busy machine may take us its time."""
    for _ in range(TRIES):
        try:
            step()
            return
        except Late:
            print(f"# {step.__name__}: too late for its closure, once more")
        except Exception as error:  # the others are run all the same
            check(f"{step.__name__} runs", False, f"{type(error).__name__}: {error}")
            return
    check(f"{step.__name__} runs", False, f"too late for its closure {TRIES} times")


def native_once_s(where):
    """A program's start and one kernel, without the library."""
    began = time.monotonic()
    once = Talker(where, [PROGRAM, "once"], seconds=RUN_S)
    once.hear()
    took = time.monotonic() - began
    once.end()
    return took


if sim:
    sim_begin(build)
card = Card(build, sim)
outside = Slice(build, "closed", None, sim)
calibration = f"{outside.directory}/calibration"
outside.start([LOAD, "--seconds", "0.2", "--json", "--save-calibration", calibration],
              stdout=subprocess.DEVNULL).wait(RUN_S)
native_s = native_once_s(outside)
beside = Talker(outside, [PROGRAM, "none"], seconds=RUN_S)
beside.hear()
for each in (stopped, debugged, frozen, killed, exits, forks, execs, destroyed, reset, unlimited):
    run(each)
beside.end()
sys.exit(failures() != 0)
