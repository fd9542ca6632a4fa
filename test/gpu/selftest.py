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
import compute_watch  # noqa: E402
import tap  # noqa: E402
import tenants_gpus  # noqa: E402
import tenants_loads  # noqa: E402
import tenants_report  # noqa: E402
import tenants_soak  # noqa: E402
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
def parts():
    """A part that does not exist, and none at all, are refused"""
    for words, named in ((["--sim", BUILD, "graphics"], '"graphics"'), (["--sim", BUILD], "no part")):
        done = subprocess.run([f"{HERE}/run", *words], capture_output=True, text=True, check=False, timeout=60)
        equal((done.returncode, named in done.stderr, done.stderr.count("\n")), (2, True, 1), f"{words}: {done.stderr!r}")


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
def several_contexts():
    """Several contexts are held by NVML, and may not do too little"""
    equal([broken("contexts-4-20ms", *figures) for figures in ((.22, 20), (.22, 21.5), (.19, 20))], [[0], [1], [1]],
          "what is broken")


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


@test
def long_by_ends():
    """Kernels of half a second are judged by what lies between their ends, and not where only one ended"""
    def parts(*windows):
        native = dict(measured("full-500ms", 0, 1, 100, who="native"))
        limited = measured("full-500ms", 50, .4, 50)
        native["result"]["windows"] = [0, 5, 0, 0, 0, 0, 5]
        limited["result"]["windows"] = windows
        row, = compute_report.build([native, limited])["rows"]
        return round(row["of_native"], 3), len(row["broken"])
    equal(parts(0, 0, 5, *[0] * 9, 5, 0, 0), (.5, 0), "held")
    equal(parts(0, 0, 5, *[0] * 7, 5, 0, 0), (.625, 1), "above")
    equal(parts(0, 0, 5, *[0] * 11, 5, 0, 0), (.417, 2), "below")
    equal(parts(0, 0, 5, 0)[1], 0, "what is broken where one ended")


@test
def tenants_plan():
    """What matters most is measured first, each once, with what it is compared with"""
    items = tenants_loads.scenario_items(3, 1) + tenants_loads.window_items(3, 1)
    chosen, left_out, used = tenants_loads.plan(items, set(), 60)
    keys = [item.key for item in chosen]
    true(used <= 60 < used + min(item.cost_s for item in left_out), f"{used} s are used")
    equal(len(keys), len(set(keys)), "measurements, each once")
    for item in chosen:
        equal([key for key in item.needs if key not in keys[:keys.index(item.key)]], [], f"lacking for {item.key}")
    everything, left_out, _ = tenants_loads.plan(items, set(keys), None)
    equal((left_out, {item.key for item in everything} & set(keys)), ([], set()), "what is there already")


def side_by_side(limits, works, who="board"):
    """What tenants got, and how much is broken where they got so much; begun 0.2 s after each other."""
    def tenant(limit, work, late=0.0):
        result = {"begin_ns": int(late * 1e9), "window_ms": 50, "windows": [work] * 60, "seconds": 3, "cpu_seconds": 0,
                  "work_per_second": work}
        return {"load": "full-1ms", "limit": limit, "soft": 0, "priority": None, "result": result}
    rows = [{"table": "alone", "scenario": "full-1ms", "who": "native", "error": None, "tenants": [tenant(0, 1.0)]},
            {"table": "shares", "scenario": "", "who": who, "error": None,
             "tenants": [tenant(*each, .2 * place) for place, each in enumerate(zip(limits, works))]}]
    row, = tenants_report.build(rows)["shares"]
    return [round(part, 3) for part in row["parts"]], len(row["broken"])


@test
def tenants_shares():
    """Tenants are each to have their own part, two halves nearly all, and without a board nobody more"""
    equal(side_by_side((30, 60), (.295, .605)), ([.295, .605], 0), "each its own")
    equal(side_by_side((30, 60), (.28, .62))[1], 2, "one too little, one too much")
    equal(side_by_side((50, 50), (.485, .485))[1], 0, "halves")
    equal(side_by_side((50, 50), (.47, .48))[1], 2, "halves that lose too much")
    equal(side_by_side((30, 60), (.2, .4), "no-board")[1], 0, "less without a board")
    equal(side_by_side((30, 60), (.35, .4), "no-board")[1], 1, "more without a board")
    equal(side_by_side((30, 60), (.46, .46), "native")[1], 0, "the driver's own slicing")


@test
def tenants_long_kernels():
    """Kernels of 150 ms beside each other are counted from end to end, and one that ended once is not judged"""
    def tenant(limit, every):
        windows = [15.0 if place and place % every == 0 else 0 for place in range(1500)]
        return {"load": "full-150ms", "limit": limit, "soft": 0, "priority": None, "result": {
            "begin_ns": 0, "window_ms": 10, "windows": windows, "seconds": 15, "cpu_seconds": 0, "work_per_second": 1}}
    def table(*tenants):
        alone = {"table": "alone", "scenario": "full-150ms", "who": "native", "error": None, "tenants": [tenant(0, 15)]}
        return tenants_report.build([
            alone, {"table": "shares", "scenario": "", "who": "board", "error": None, "tenants": list(tenants)}])
    row, = table(tenant(30, 50), tenant(60, 25))["shares"]
    equal(([round(part, 4) for part in row["parts"]], row["broken"]), ([.3, .6], []), "held")
    row, = table(tenant(30, 46), tenant(60, 27))["shares"]
    equal(len(row["broken"]), 2, f"what is broken by {row['parts']}")
    made = table(tenant(30, 1400), tenant(60, 25))
    equal((made["shares"], len(made["errors"])), ([], 1), "one that ended once")


@test
def tenants_only():
    """What is named is planned, with what it is compared with, and nothing else"""
    named = ["full-100us, 30/60", "persistent, 30/60", "persistent, 50/50", "full-150ms, 30/60",
             "persistent beside full-1ms, 20/20/20/20"]
    words = [part for name in named for part in ("--only", name)]
    done = subprocess.run([sys.executable, f"{HERE}/../../bench/tenants.py", BUILD, "--sim", "--plan", *words],
                          capture_output=True, text=True, check=False, timeout=60)
    planned = [line.partition(" s  shares ")[2] for line in done.stdout.splitlines()]
    boards = {line.removesuffix(" board") for line in planned if line.endswith(" board")}
    equal(boards, set(named), "tenants")
    equal(done.stdout.count(" s  alone "), 4, "loads by themselves")


@test
def tenants_events():
    """How long a neighbour takes is from the other's beginning or end to the share that is promised"""
    step = .005
    bursts = [.1 if place % 200 == 100 else 0 for place in range(1600)]  # of half a second, each second
    for late_ms in (10, 40, 200):
        late = late_ms / 1000
        shares = [.3 if late <= place * step % 1 < .505 + late else 1 for place in range(1600)]
        first = {"begin_ns": 0, "window_ms": 5, "windows": shares, "seconds": 8}
        second = {"begin_ns": 0, "window_ms": 5, "windows": bursts, "seconds": 8}
        raw = {"table": "events", "scenario": "", "who": "board", "error": None, "event": "comes-back", "tenants": [
            {"load": "persistent", "limit": 30, "soft": 100, "result": first},
            {"load": "half-busy", "limit": 60, "soft": 0, "result": second}]}
        back, used = tenants_report.build([raw])["events"]
        delays = back["seconds"] + used["seconds"]
        true(len(delays) > 10 and all(late_ms - 12 <= 1000 * each <= late_ms + 6 for each in delays), (back, used))
        equal((back["late"], used["late"]), (late_ms > 20 + 12, late_ms > 50 + 12), f"late by {late_ms} ms")


@test
def gpus():
    """An all-reduce is held to its part of native, and one that was killed is told of"""
    def rows(work, error=None):
        result = {"work_per_second": work, "gpus": 2, "seconds": 60}
        return [dict(who=who, error=error if who == "vgpu" else None, result=dict(result, work_per_second=each))
                for who, each in (("native", 100.0), ("vgpu", work), ("native", 102.0))]
    equal([tenants_gpus.verdict(rows(*each))[1] for each in ((46,), (45,), (50, "exit status 3: deadlock"))],
          [True, False, False], "verdicts")


@test
def soak_verdict():
    """A soak whose card is not as before is not called well"""
    class Made:
        wrong = []
    before = (1.0, 600)
    for after, log, wrong in (((.97, 610), [], 0), ((.8, 600), [], 1), ((1.0, 700), [], 1), ((1.0, 600), ["Xid 31"], 1),
                              ((1.0, 600), None, 0)):
        found = tenants_soak.judge(Made, [before, after], [["NVRM: loading"], None if log is None else
                                                           ["NVRM: loading", *log]])
        equal(len(found), wrong, f"what is wrong with {after}, {log}")


@test
def closures():
    """What was closed is counted while the window lasts"""
    watch = compute_watch.Watch(0, "", 1)
    watch.began, watch.closures = 0.0, [place / 10 for place in range(40)]
    watch.samples = [(place / 20, place / 40, place / 40, None) for place in range(80)]
    equal(round(watch.over(1, 2)["closures"]), 10, "closures in a second")


tap.main()
