# SPDX-License-Identifier: Apache-2.0
"""Stopping kernels and sharing between containers: kernels that a launch gate cannot hold, tenants beside each
other, what happens when one comes or goes, latency beside a greedy one; a soak; several GPUs.
docs/benchmarks/README.md, "The tenants' tables"."""
import argparse
import io
import os
import shutil
import signal
import sys

import compute
import compute_report
import tenants_gpus
import tenants_loads
import tenants_report
import tenants_run
import tenants_soak
from compute_loads import BY_NAME

START_S = 12  # for the calibration, and to look for PyTorch


def table_list(text):
    tables = text.split(",")
    if not all(each in tenants_loads.TABLES for each in tables):
        raise argparse.ArgumentTypeError(f'"{text}" is not a list of {", ".join(tenants_loads.TABLES)}')
    return tables


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tenants.py", description=__doc__)
    parser.add_argument("build", nargs="?", default="build", help="build directory (build)")
    parser.add_argument("--output", default="tenants-table", metavar="DIR",
                        help="raw rows, calibration and tables; rows that are there are not measured again")
    parser.add_argument("--report", action="store_true", help="only make the tables from DIR")
    parser.add_argument("--plan", action="store_true", help="only say what would be measured, and how long it takes")
    parser.add_argument("--tables", type=table_list, default=list(tenants_loads.TABLES), metavar="LIST",
                        help="of " + ",".join(tenants_loads.TABLES))
    parser.add_argument("--only", action="append", default=[], metavar="WORDS",
                        help="loads and scenarios whose name contains them; again for others")
    parser.add_argument("--minutes", type=float, metavar="M", help="measure what matters most in M minutes")
    parser.add_argument("--seconds", type=float, default=3, help="measured window (3)")
    parser.add_argument("--warmup", type=float, default=1, help="seconds of the same load before it (1)")
    parser.add_argument("--soak", type=float, nargs="?", const=480, metavar="S",
                        help="instead: tenants under changing limits for that many seconds (480)")
    parser.add_argument("--gpus", type=float, nargs="?", const=60, metavar="S",
                        help="instead: an all-reduce over two GPUs, native and at 50, the latter for that many seconds (60)")
    parser.add_argument("--seed", type=int, default=5, help="of the soak's changes")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--sim", action="store_true", help="on the simulator, without PyTorch")
    return parser.parse_args(arguments)


def bench_of(options):
    more = [flag for flag in ("--sim", "--report", "--plan") if getattr(options, flag[2:])]
    return compute.Bench(compute.parse([options.build, "--output", options.output, "--seconds", str(options.seconds),
                                        "--warmup", str(options.warmup), "--python", options.python, *more]))


class Tables:
    def __init__(self, options):
        self.options, self.bench = options, bench_of(options)
        self.path = os.path.join(options.output, "tenants.jsonl")
        self.rows = [row for row in compute.read_lines(self.path) if row["sim"] == options.sim]

    def there(self):
        """Keys of what is measured."""
        keys = {(row["table"], row["scenario"], row["who"]) for row in self.rows if not row["error"]}
        return keys | {("windows", row["load"], row["limit"], row["who"]) for row in self.bench.rows
                       if not row["error"] and row["sim"] == self.options.sim}

    def items(self):
        options = self.options
        found = tenants_loads.window_items(options.seconds, options.warmup)
        found += tenants_loads.scenario_items(options.seconds, options.warmup)
        has_torch = options.plan and not options.sim or self.bench.has_torch()
        if not has_torch:
            print("PyTorch's loads are left out")
        return [item for item in found if (item.key[0] in options.tables or item.key[0] == "alone")
                and (not options.only or any(word in item.key[1] for word in options.only) or item.rank >= 9)
                and (has_torch or not any(load.script for load in tenants_loads.loads_of(item.key)))]

    def planned(self):
        budget = self.options.minutes and self.options.minutes * 60 - START_S
        return tenants_loads.plan(self.items(), self.there(), budget)

    def show_plan(self):
        chosen, left_out, used = self.planned()
        for item in chosen:
            print(f"{item.cost_s:5.1f} s  {' '.join(map(str, item.key))}")
        print(f"{len(chosen)} measurements in about {used:.0f} s, and {START_S} s for the start")
        self.say_left_out(left_out)

    def say_left_out(self, left_out):
        if left_out:
            print("left out for want of time: " + "; ".join(" ".join(map(str, item.key)) for item in left_out))

    def measure(self, item):
        table, name = item.key[:2]
        if table == "windows":
            self.bench.measure(BY_NAME[name], *item.key[2:])
            return
        row = tenants_run.run(self.bench, tenants_loads.scenario_of(table, name, item.key[2]), item.key[2])
        self.rows.append(row)
        tenants_run.keep(self.path, row)
        works = [f"{tenant['result']['work_per_second']:.4g}" for tenant in row["tenants"] if tenant["result"]]
        print(f"{row['at']:6.1f} s  {table}: {name} {row['who']}: {row['error'] or ' '.join(works)}", file=sys.stderr,
              flush=True)

    def measure_all(self):
        self.bench.calibrate()
        chosen, left_out, _ = self.planned()
        for item in chosen:
            if self.bench.fits_s(item.cost_s, self.options.minutes):
                self.measure(item)
            else:
                left_out.append(item)
        self.say_left_out(left_out)

    def report(self):
        windows = compute_report.build([row for row in self.bench.rows if row["sim"] == self.options.sim])
        table = tenants_report.build(self.rows)
        out = io.StringIO()
        if self.options.sim:
            print("Simulated: this says nothing of a card.", file=out)
        tenants_report.write(table, windows, out)
        for name in ("soak", "gpus"):
            path = os.path.join(self.options.output, name + ".md")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    out.write("\n" + file.read())
        with open(os.path.join(self.options.output, "tables.md"), "w", encoding="utf-8") as file:
            file.write(out.getvalue())
        print(out.getvalue())
        return tenants_report.is_kept(table, windows)


def run(tables):
    options = tables.options
    if options.plan:
        tables.show_plan()
        return True
    if options.report:
        return tables.report()
    if options.soak is not None:
        tables.bench.calibrate()
        return tenants_soak.soak(tables.bench, options.soak, options.seed)
    if options.gpus is not None:
        return tenants_gpus.measure(tables.bench, options.gpus)
    tables.measure_all()
    return tables.report()


def main():
    signal.signal(signal.SIGTERM, compute.stop)  # what was started ends with us
    tables = Tables(parse(sys.argv[1:]))
    try:
        sys.exit(0 if run(tables) else 1)
    finally:
        shutil.rmtree(tables.bench.scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
