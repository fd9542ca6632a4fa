# SPDX-License-Identifier: Apache-2.0
"""selftest.py BUILD: what test/gpu judges by, judged itself: the region's reader beside the program's
own ledger on the simulator, the soak's verdict on samples that were made up, and the accuracy table's on rows."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [f"{HERE}/../process", f"{HERE}/../../bench"]

import compute_loads  # noqa: E402
import compute_report  # noqa: E402
import tap  # noqa: E402
from tap import equal, test, true  # noqa: E402
from watch import MIB, Card, Slice, Talker, sim_begin, until  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])


def made_up(change=lambda process, index: None, end=True):
    """Samples of a soak that is flat, but for what `change` does to a process's figures."""
    with tempfile.TemporaryDirectory() as directory:
        with open(f"{directory}/samples.jsonl", "w", encoding="utf-8") as file:
            for index in range(80):
                process = {"rss": 300 * MIB, "threads": 5, "fds": 9, "region": 900 * MIB, "nvml": 900 * MIB}
                change(process, index)
                native = {"rss": 290 * MIB, "threads": 5, "fds": 8}
                slices = {"roomy": {"limit": 2048 * MIB, "high": 4, "living": 2, "peak": 1000 * MIB}}
                file.write(json.dumps({"t": index * 5.0, "processes": {"churn": process, "churn, native": native},
                                       "slices": slices}) + "\n")
        if end:
            with open(f"{directory}/end.json", "w", encoding="utf-8") as file:
                json.dump({"minutes": 6, "status": {"churn": 0}, "smi": {"started": 1, "bad": 0},
                           "passers": {"roomy": {"started": 1, "killed": 0, "refused": 0, "bad": 0}},
                           "said": {"churn": "ended pid 1 granted 5 refused 0 ledger 518"},
                           "left": {"roomy": {"nvml": 0, "living": 0}}}, file)
        done = subprocess.run([sys.executable, f"{HERE}/soak_report.py", directory], stdout=subprocess.PIPE,
                              text=True, check=False, timeout=60)
        return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("NOT OK")]


def judged(sentence, wrong, change):
    def body():
        status, lines = made_up(change)
        equal(status, 1, "exit status")
        equal([wrong in line for line in lines], [True], "lines with what is wrong")
    body.__doc__ = sentence
    test(body)


@test
def flat():
    """A soak that is flat is called so"""
    equal(made_up(), (0, []), "verdict")


judged("Descriptors that leak are found", "descriptors", lambda p, i: p.update(fds=9 + i // 20))
judged("Threads that leak are found", "threads", lambda p, i: p.update(threads=5 + i // 30))
judged("Resident memory that grows is found", "resident memory", lambda p, i: p.update(rss=(300 + i) * MIB))
judged("An account that drifts from NVML is found", "region and NVML", lambda p, i: p.update(region=(900 + i) * MIB))


@test
def unended():
    """A soak that has not ended is not called flat"""
    status, lines = made_up(end=False)
    equal(status, 1, "exit status")
    equal(len(lines), 1, "lines")


@test
def reader():
    """The region's reader and NVML, asked from outside, find the program's own ledger"""
    sim_begin(BUILD)
    card = Card(BUILD, True)
    where = Slice(BUILD, "selftest", 4096, True)
    worker = Talker(where, [f"{BUILD}/test/gpu/churn", "--threads", "2", "--max", "256", "--block", "16"])
    true(worker.hear().startswith("ready"), "the program is ready")
    words = worker.ask("pause").split()
    equal(words[0], "paused", "answer")
    ledger_mib = int(words[8])
    true(ledger_mib > 500, f"a context counts: {ledger_mib} MiB")
    slots = where.region().slots()
    equal([(s["pid"], s["locked"]) for s in slots], [(worker.pid, True)], "slots")
    true(abs(where.region().bytes_of(worker.pid) / MIB - ledger_mib) < 1, "the region's bytes are the ledger's")
    equal(card.bytes_of(where.tag), where.region().bytes_of(worker.pid), "NVML's bytes")
    worker.process.kill()
    worker.process.wait()
    true(until(lambda: not any(s["locked"] for s in where.region().slots()), 20), "a dead process is seen as dead")
    equal(card.bytes_of(where.tag), 0, "NVML's bytes of a dead process")
    where.end()


def measured(load, limit, work, nvml, run="one", who="vgpu"):
    result = {"work_per_second": work, "nvml_utilization": nvml, "cpu_seconds": 0.1, "seconds": 15, "latency_us": None}
    return {"run": run, "file": "rows", "load": load, "limit": limit, "who": who, "error": None, "result": result}


def broken(load, work, nvml):
    """Of a row at 20 % beside a native one."""
    table = compute_report.build([measured(load, 0, 1, 100, who="native"), measured(load, 20, work, nvml)])
    return [len(row["broken"]) for row in table["rows"]]


@test
def long_kernels():
    """Kernels of 50 ms are within a point by NVML and by their work"""
    equal([broken("full-50ms", *figures) for figures in ((.205, 20.9), (.205, 21.1), (.211, 20.9), (.188, 20.0))],
          [[0], [1], [1], [1]], "what is broken")


@test
def copies():
    """Kernels beside copies are judged by their work alone"""
    equal([broken("copies-1ms", *figures) for figures in ((.2, 100), (.212, 100), (.18, 20))], [[0], [1], [2]],
          "what is broken")


@test
def other_calls():
    """A row stands beside the native ones of another call into the same file, and says so"""
    rows = [measured("full-1ms", 0, 1, 100, who="native"), measured("full-1ms", 20, .2, 20, run="two")]
    equal([row["native_elsewhere"] for row in compute_report.build(rows)["rows"]], [True], "rows")
    equal(compute_report.build([dict(rows[0], file="other"), rows[1]])["rows"], [], "rows without native ones")


def planned(there, budget_s=None, natives=1):
    """What is measured of two loads at 20, 50 and 80 where some is there."""
    loads = [compute_loads.BY_NAME[name] for name in ("full-1ms", "one-block-5ms")]
    chosen, left_out, _ = compute_loads.plan(loads, [20, 50, 80], lambda load, limit: (load.name, limit) not in there,
                                             lambda load: natives, 5, 1, budget_s)
    return list(chosen.items()), len(left_out)


@test
def plan():
    """A table is completed where the least was measured, and native runs count where they are lacking"""
    there = {("full-1ms", 20), ("full-1ms", 50)}
    wanted = [("one-block-5ms", [20, 50, 80]), ("full-1ms", [80])]
    equal(planned(there), (wanted, 0), "all that is lacking")
    equal(planned(there, 13), ([("one-block-5ms", [20])], 3), "in 13 s")
    equal(planned(there, 13, 0), ([("one-block-5ms", [20, 50])], 2), "in 13 s, with native runs there")
    equal(planned({("full-1ms", 20), ("one-block-5ms", 20)}, 26)[0], [("full-1ms", [50]), ("one-block-5ms", [50])],
          "each load before any load's next limit")


tap.main()
