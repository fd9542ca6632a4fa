# SPDX-License-Identifier: Apache-2.0
"""The accuracy table of compute limits: each load at each limit beside the same load natively and, if
asked for, under another preload library. docs/benchmarks/README.md, "The accuracy table"."""
import argparse
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import compute_loads
import compute_report
import compute_watch

OWN = {"vgpu": None, "vgpu-launch": "launch", "vgpu-channel": "channel"}  # the library, with the gate forced
LOOK_S = 0.05
REACTION_LOOK_S = 0.001
GRACE_S = 60  # seconds beyond its time after which a load is ended
FOREIGN = ("CUDA_DEVICE_", "CUDA_MEM_", "CUDA_CORE_", "CUDA_REDIRECT", "VGPU_", "LD_PRELOAD", "GPU_CORE_",
           "LIBCUDA_LOG")


class Library:
    """LABEL=PATH[,ENV=VALUE...]: another library, put before a program by LD_PRELOAD."""

    def __init__(self, text):
        label, found, rest = text.partition("=")
        path, *settings = rest.split(",")
        if not found or not label or label in ("native", *OWN) or not os.path.isfile(path):
            raise argparse.ArgumentTypeError(f'"{text}" is not LABEL=PATH[,ENV=VALUE...] of a file that is there')
        for setting in settings:
            if "=" not in setting:
                raise argparse.ArgumentTypeError(f'"{setting}" in "{text}" is not ENV=VALUE')
        self.label, self.path = label, os.path.abspath(path)
        self.settings = dict(setting.split("=", 1) for setting in settings)


def limit_list(text):
    limits = sorted({int(word) for word in text.split(",") if word.isdigit()})
    if not limits or not all(0 < limit < 100 for limit in limits) or not all(w.isdigit() for w in text.split(",")):
        raise argparse.ArgumentTypeError(f'"{text}" is not a list of percents from 1 to 99, as 20,50')
    return limits


def load_list(text):
    try:
        return compute_loads.loads_named(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse(arguments):
    parser = argparse.ArgumentParser(prog="compute.py", description=__doc__)
    parser.add_argument("build", nargs="?", default="build", help="build directory (build)")
    parser.add_argument("--output", default="compute-table", metavar="DIR",
                        help="raw rows, calibration and table; rows that are there are not measured again")
    parser.add_argument("--report", action="store_true", help="only make the table from DIR")
    parser.add_argument("--seconds", type=float, default=5, help="measured window (5)")
    parser.add_argument("--warmup", type=float, default=1, help="seconds of the same load before it (1)")
    parser.add_argument("--minutes", type=float, metavar="M", help="measure what matters most in M minutes")
    parser.add_argument("--only", type=load_list, default=compute_loads.LOADS, metavar="LOADS",
                        help="comma-separated, * matches: " + ", ".join(compute_loads.BY_NAME))
    parser.add_argument("--earlier", action="append", default=[], metavar="FILE",
                        help="raw rows of other runs: what kept its promise there is not measured again, and the table "
                             "shows them")
    parser.add_argument("--plan", action="store_true", help="only say what would be measured, and how long it takes")
    parser.add_argument("--limits", type=limit_list, default=[10, 20, 50, 80, 95], metavar="LIST")
    parser.add_argument("--library", type=Library, action="append", default=[], metavar="LABEL=PATH[,ENV=VALUE...]",
                        help="measure another preload library, too, with HAMi-core's variables")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--sim", action="store_true", help="on the simulator, without PyTorch")
    return parser.parse_args(arguments)


def read_lines(path):
    """Whole lines only: a call that was ended may have left a part of one."""
    rows = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    continue
    return rows


def read_rows(path):
    return [dict(row, file=path) for row in read_lines(path) if row.get("load") in compute_loads.BY_NAME]


def report_in(text):
    """The JSON object at the end; a library may have talked before it. ValueError where there is none."""
    lines = text.splitlines(keepends=True)
    for place, line in enumerate(lines):
        if line.startswith("{"):
            try:
                return json.loads("".join(lines[place:]))
            except ValueError:
                continue
    raise ValueError("no report")


def say_left_out(left_out):
    by_load = {}
    for name, limit in left_out:
        by_load.setdefault(name, []).append(str(limit))
    if by_load:
        print("left out for want of time: "
              + "; ".join(f"{name} at {', '.join(limits)}" for name, limits in by_load.items()))


class Bench:
    def __init__(self, options):
        self.options = options
        self.build = os.path.abspath(options.build)
        self.vgpu = os.path.join(self.build, "vgpu")
        self.load = os.path.join(self.build, "vgpu-load")
        if not options.report and not options.plan:
            os.makedirs(options.output, exist_ok=True)
        self.rows_path = os.path.join(options.output, "rows.jsonl")
        self.rows = read_rows(self.rows_path)
        self.earlier = [row for path in options.earlier for row in read_rows(path)]
        self.kept_earlier = compute_report.kept_of(row for row in self.earlier if row["sim"] == options.sim)
        self.run = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
        self.calibration = os.path.join(options.output, "calibration.json")
        self.began = time.monotonic()
        self.scratch = tempfile.mkdtemp(prefix="vgpu-compute-")

    def whos(self, load):
        return ["vgpu"] + ([] if load.kind == "reaction" else [library.label for library in self.options.library])

    def missing(self, load, limit):
        """What was not measured yet at that limit."""
        there = {row["who"] for row in self.rows if not row.get("error") and row["sim"] == self.options.sim
                 and (row["load"], row["limit"]) == (load.name, limit)}
        if (load.name, limit) in self.kept_earlier:
            there.add("vgpu")
        return [who for who in self.whos(load) if who not in there]

    def natives_missing(self, load):
        """How many native runs the load still needs: those of an earlier call into the same directory count."""
        there = sum(row["who"] == "native" and not row.get("error") and row["sim"] == self.options.sim
                    and row["load"] == load.name for row in self.rows)
        return max(0, load.natives - there)

    def program(self, load, seconds=None, warmup=None):
        """Of the load, for the table's seconds or for others."""
        seconds = self.options.seconds * load.windows if seconds is None else seconds
        warmup = self.options.warmup if warmup is None else warmup
        if load.kind == "reaction":
            seconds = compute_loads.REACTION_STEP_S * len(compute_loads.REACTION_STEPS)
        if load.script:
            return [self.options.python, load.script, str(seconds), str(warmup), *load.arguments[1:]]
        return [self.load, *load.arguments, "--seconds", str(seconds), "--warmup", str(warmup), "--json",
                "--calibration", self.calibration]

    def command(self, who, limit, region, program, *settings):
        """(command, environment); settings: more options of vgpu run."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        sim = os.path.join(self.build, "src", "sim", "libvgpu-sim-rm.so")
        if who in OWN:
            if OWN[who]:
                environment["VGPU_GATE"] = OWN[who]
            more = [*settings, "--sim"] if self.options.sim else settings
            return [self.vgpu, "run", "--cores", str(limit), "--region", region, *more, "--", *program], environment
        preload = []
        if who != "native":
            library = next(each for each in self.options.library if each.label == who)
            environment.update({"CUDA_DEVICE_SM_LIMIT": str(limit), "CUDA_DEVICE_MEMORY_SHARED_CACHE": region,
                                "CUDA_REDIRECT": library.path, "LIBCUDA_LOG_LEVEL": "0", **library.settings})
            preload = [library.path]
        if self.options.sim:
            preload = [*preload, sim]
            program = [self.vgpu, "run", "--sim", "--", "env", "LD_PRELOAD=" + " ".join(preload), *program]
        elif preload:
            environment["LD_PRELOAD"] = " ".join(preload)
        return program, environment

    def measure(self, load, limit, who, order=""):
        """Runs the load once; its row is in the file afterwards."""
        place = tempfile.mkdtemp(dir=self.scratch)
        region = os.path.join(place, "region")
        command, environment = self.command(who, limit, region, self.program(load))
        row = {"run": self.run, "load": load.name, "limit": limit, "who": who, "order": order,
               "sim": self.options.sim, "seconds": self.options.seconds * load.windows, "warmup": self.options.warmup,
               "at": round(time.monotonic() - self.began, 1), "error": None}
        watch = compute_watch.Watch(0, region, load.processes)
        with open(place + "/out", "w+", encoding="utf-8") as out, open(place + "/err", "w+", encoding="utf-8") as err:
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=err, start_new_session=True)
            watch.root = process.pid
            try:
                changes = self.follow(load, process, watch, out, region)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            out.seek(0)
            err.seek(0)
            text, said = out.read(), err.read().strip()
        try:
            row["result"] = report_in(text)
            (row["result"].get("calibration") or {}).clear()
        except ValueError:
            row["error"] = "no report"
        if process.returncode or row["error"]:
            last = said.splitlines()[-1][:200] if said else "nothing said"
            row["error"] = f"exit status {process.returncode}: {last}"
        if not row["error"] and load.kind == "reaction":
            self.judge_reaction(load, row, watch, changes)
        elif not row["error"] and who in OWN:
            row["watch"] = watch.over(0 if load.script else self.options.warmup, row["seconds"])
        shutil.rmtree(place, ignore_errors=True)
        self.keep(row)
        return row

    def follow(self, load, process, watch, out, region):
        """Until the load has ended. Returns when the limit was changed, by its word in the region."""
        changing = load.kind == "reaction"
        left = list(compute_loads.REACTION_STEPS[1:]) if changing else []
        changes, was, asked = [], None, []
        limit_s = self.options.seconds * load.windows + self.options.warmup + GRACE_S
        began = time.monotonic()
        while process.poll() is None:
            if time.monotonic() - began > limit_s:
                os.killpg(process.pid, signal.SIGKILL)
            watch.look(os.fstat(out.fileno()).st_size > 0 if load.script else None)
            words = watch.region.words() if changing else None
            if words and was not in (None, words[0]) and watch.began:
                changes.append((time.monotonic(), words[0]))
            was = words[0] if words else None
            due = self.options.warmup + compute_loads.REACTION_STEP_S * (1 + len(asked))
            if left and watch.began and time.monotonic() - watch.began >= due:
                asked.append(subprocess.Popen([self.vgpu, "set", "--cores", str(left.pop(0)), "--region", region],
                                              stdout=subprocess.DEVNULL))
            watch.rest(REACTION_LOOK_S if changing else LOOK_S)
        for each in asked:
            each.wait()
        return changes

    def judge_reaction(self, load, row, watch, changes):
        """The share after each change, by the kernels that ended and by the container's own meter."""
        result = row["result"]
        step = result["window_ms"] / 1000
        times, work = [result["begin_ns"] / 1e9], [0.0]
        for window in result.pop("windows"):
            times.append(times[-1] + step)
            work.append(work[-1] + window * step)
        seen = [(each[0], each[1]) for each in watch.samples]
        if len(changes) != len(compute_loads.REACTION_STEPS) - 1 or len(seen) < 2:
            row["error"] = f"{len(changes)} changes of the limit were seen"
            return
        seconds = load.share_ms / 1000
        if "persistent" in load.arguments:
            work = compute_watch.as_busy_time(times, work, seen)
        # A persistent kernel counts nothing on the simulator.
        result["measured"] = [compute_watch.reaction(times, work, *change, seconds) for change in changes if any(work)]
        result["region"] = [compute_watch.reaction(*map(list, zip(*seen)), *change, seconds) for change in changes]
        result["series"] = {"begin": times[0], "step": step, "changes": changes,
                            "work": [round(later - before, 6) for before, later in zip(work, work[1:])]}

    def keep(self, row):
        self.rows.append(dict(row, file=self.rows_path))
        with open(self.rows_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        figure = row["error"] or f"{row['result']['work_per_second']:.4g}"
        print(f"{row['at']:6.1f} s  {row['load']} {row['limit'] or ''} {row['who']}: {figure}", file=sys.stderr,
              flush=True)

    def calibrate(self):
        """Once for each output directory, without a limit."""
        if os.path.exists(self.calibration):
            return
        command, environment = self.command("native", 0, "", [
            self.load, "--seconds", "0.2", "--json", "--save-calibration", self.calibration])
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=GRACE_S, check=False)
        if done.returncode:
            sys.exit(f"compute.py: the calibration failed: {done.stderr.strip()}")

    def has_torch(self):
        if self.options.sim:
            return False
        look = "import sys, torch; sys.exit(not torch.cuda.is_available())"
        try:
            return subprocess.run([self.options.python, "-c", look], capture_output=True, timeout=120,
                                  check=False).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def fits_s(self, cost_s, minutes):
        return minutes is None or time.monotonic() - self.began + cost_s <= minutes * 60

    def fits(self, load, measurements):
        cost = measurements * compute_loads.cost_s(load, self.options.seconds, self.options.warmup)
        return self.fits_s(cost, self.options.minutes)

    def measure_load(self, load, limits):
        """Natively, at each limit by each library, and natively again. Returns the limits left out."""
        if load.kind == "reaction":
            if not self.fits(load, 1):
                return limits
            self.measure(load, limits[0], "vgpu")
            return []
        left_out, natives = [], self.natives_missing(load)
        begun = False
        for limit in limits:
            whos = self.missing(load, limit)
            if not self.fits(load, len(whos) + natives):
                left_out.append(limit)
                continue
            if not begun and natives:
                if self.measure(load, 0, "native", "first")["error"]:
                    return limits
                natives -= 1
            begun = True
            for who in whos:
                self.measure(load, limit, who)
        if begun and natives:
            self.measure(load, 0, "native", "last")
        return left_out

    def loads(self):
        """Those asked for that this machine can run."""
        loads, options = self.options.only, self.options
        if any(load.kind == "torch" for load in loads) and not options.plan and not self.has_torch():
            reason = "simulated" if options.sim else f"{options.python} has none with a GPU"
            print(f"PyTorch's loads are left out: {reason}")
            loads = [load for load in loads if load.kind != "torch"]
        return loads

    def planned(self, loads):
        options = self.options
        budget = options.minutes and options.minutes * 60 - (time.monotonic() - self.began)
        return compute_loads.plan(loads, options.limits, lambda load, limit: len(self.missing(load, limit)),
                                  self.natives_missing, options.seconds, options.warmup, budget)

    def show_plan(self):
        chosen, left_out, used = self.planned(self.loads())
        for name, limits in chosen.items():
            natives = self.natives_missing(compute_loads.BY_NAME[name])
            print(f"{name} at {', '.join(map(str, limits))}, natively {natives} times")
        print(f"{sum(map(len, chosen.values()))} pairs in about {used:.0f} s, and 10 s for the start")
        say_left_out(left_out)

    def measure_all(self):
        loads = self.loads()
        self.calibrate()
        chosen, left_out, _ = self.planned(loads)
        for name, limits in chosen.items():
            left_out += [(name, limit) for limit in self.measure_load(compute_loads.BY_NAME[name], limits)]
        say_left_out(left_out)

    def report(self):
        rows = [row for row in self.earlier + self.rows if row["sim"] == self.options.sim]
        if not rows:
            print(f"{self.options.output} has no {'simulated ' if self.options.sim else ''}rows")
            return False
        table = compute_report.build(rows)
        table["simulated"] = self.options.sim
        with open(os.path.join(self.options.output, "table.json"), "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)
        compact = io.StringIO()
        if self.options.sim:
            print("Simulated: this says nothing of a card.", file=compact)
        compute_report.write_compact(table, compact)
        with open(os.path.join(self.options.output, "table.md"), "w", encoding="utf-8") as file:
            file.write(compact.getvalue() + "\n")
            compute_report.write_full(table, file)
        print(compact.getvalue())
        return compute_report.is_kept(table)


def stop(*_):
    sys.exit(1)


def main():
    signal.signal(signal.SIGTERM, stop)  # what was started ends with us
    bench = Bench(parse(sys.argv[1:]))
    try:
        if bench.options.plan:
            bench.show_plan()
            return
        if not bench.options.report:
            bench.measure_all()
        sys.exit(0 if bench.report() else 1)
    finally:
        shutil.rmtree(bench.scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
