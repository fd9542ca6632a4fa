# SPDX-License-Identifier: Apache-2.0
"""Runs containers beside each other, each with a region of its own, and takes down what each did."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

import compute
import compute_watch
import tenants_loads

LOOK_S = 0.002
WITH_TORCH_S = 25  # seconds that PyTorch takes at most to start; its neighbours run meanwhile


class Running:
    """A tenant's program."""

    def __init__(self, bench, tenant, who, place, number, program):
        self.tenant = tenant
        self.region = os.path.join(place, f"region-{number}")
        command, environment = bench.command(
            "native" if who == "native" else "vgpu", tenant.limit, self.region, program,
            *([] if who == "native" else tenant.settings()))
        # Without this directory there is no board.
        environment["VGPU_BOARD_DIR"] = os.path.join(place, "boards" if who == "board" else "none")
        environment["VGPU_SIM_MACHINE"] = os.path.join(place, "machine")
        self.out = open(os.path.join(place, f"out-{number}"), "w+", encoding="utf-8")
        self.err = open(os.path.join(place, f"err-{number}"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(command, env=environment, stdout=self.out, stderr=self.err,
                                        start_new_session=True)
        self.words = compute_watch.Region(self.region)
        self.marked_s = self.killed_s = None
        self.told = False
        self.meter = []  # (when, busy seconds), where they changed

    def look(self, metered):
        """PyTorch's window begins when it has said something."""
        if self.tenant.load.script and self.marked_s is None and os.fstat(self.out.fileno()).st_size:
            self.marked_s = time.monotonic()
        words = self.words.words() if metered else None
        if words and (not self.meter or words[1] != self.meter[-1][1]):
            self.meter.append((round(time.monotonic(), 4), round(words[1], 5)))

    def works(self):
        words = self.words.words()
        return bool(words and words[1] > 0)

    def tell_to_end(self):
        if not self.told and self.process.poll() is None:
            self.process.terminate()
        self.told = True

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def end(self):
        """(report, error): the report None where it was killed on purpose."""
        self.kill()
        self.out.seek(0)
        self.err.seek(0)
        text, said = self.out.read(), self.err.read().strip()
        self.out.close()
        self.err.close()
        if self.killed_s is not None:
            return None, None
        try:
            report = compute.report_in(text)
        except ValueError:
            report = None
        if self.process.returncode or not report:
            return None, f"exit status {self.process.returncode}: {said.splitlines()[-1][:200] if said else 'silent'}"
        report.pop("calibration", None)
        if self.marked_s is not None:
            report["begin_ns"] = int(self.marked_s * 1e9)
        return report, None


def programs(bench, scenario):
    """Each tenant's. The neighbours of PyTorch run until it has ended."""
    seconds, warmup = scenario.seconds(bench.options.seconds), bench.options.warmup
    for tenant in scenario.tenants:
        load = tenant.load
        longer = WITH_TORCH_S if scenario.has_torch() and not load.script else 0
        # Of bursts each counts, and the first says when the others come.
        program = bench.program(load, seconds + longer + (warmup if scenario.event else 0),
                                0 if scenario.event else warmup)
        yield program if load.script else [*program, "--window-ms", str(scenario.window_ms)]


def follow(scenario, running, limit_s):
    """Until all have ended, or those that the others were there for."""
    began, all_work_s = time.monotonic(), None
    while any(each.process.poll() is None for each in running):
        now = time.monotonic()
        for each in running:
            each.look(metered=scenario.event and each is running[0])
        if now - began > limit_s or any(each.process.poll() for each in running if each.killed_s is None):
            return
        if scenario.has_torch() and all(each.process.poll() == 0 for each in running if each.tenant.load.script):
            for each in running:
                each.tell_to_end()
        if scenario.event == "dies":
            if all_work_s is None and all(each.works() for each in running):
                all_work_s = now
            if all_work_s and now - all_work_s > tenants_loads.DEATH_S and running[1].killed_s is None:
                running[1].killed_s = time.monotonic()
                running[1].kill()
        time.sleep(LOOK_S)


def run(bench, scenario, who):
    """The raw row of one measurement."""
    place = tempfile.mkdtemp(dir=bench.scratch)
    os.mkdir(os.path.join(place, "boards"), 0o777)
    row = {"run": bench.run, "table": scenario.table, "scenario": scenario.name, "who": who, "sim": bench.options.sim,
           "event": scenario.event, "at": round(time.monotonic() - bench.began, 1), "error": None}
    running = []
    try:
        for number, (tenant, program) in enumerate(zip(scenario.tenants, programs(bench, scenario))):
            running.append(Running(bench, tenant, who, place, number, program))
        limit_s = scenario.cost_s(bench.options.seconds, bench.options.warmup) + compute.GRACE_S
        follow(scenario, running, limit_s)
    finally:
        ended = [each.end() for each in running]
        shutil.rmtree(place, ignore_errors=True)
    row["error"] = next((error for _, error in ended if error), None)
    row["killed_s"] = next((each.killed_s for each in running if each.killed_s), None)
    row["meter"] = running[0].meter
    row["tenants"] = [dict(tenant.described(), result=report)
                      for tenant, (report, _) in zip(scenario.tenants, ended)]
    if scenario.event == "dies" and row["killed_s"] is None and not row["error"]:
        row["error"] = "no tenant was killed: they did not work at once"
    return row


def keep(path, row):
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
