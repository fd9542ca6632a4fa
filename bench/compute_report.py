# SPDX-License-Identifier: Apache-2.0
"""The accuracy table from its raw rows: what each limit gave, and whether it is what is promised."""
import statistics

from compute_loads import BY_NAME, LONGEST_COUNTED_US, ORDER

THROUGHPUT_LEAST = 0.97  # of limit x native, where the load alone would use more than the limit
SAME = 0.01              # of native, where it would not
POINTS, POINTS_PACED = 1.0, 2.0
KERNEL_PER_S = 5         # utilisation may be off by one kernel in this number of seconds, where that is more than a point
SATURATED = 95.0         # percent of the device used natively: nothing waits for the host
BORDER = 1.0             # a load that natively uses this near to the limit may go either way
FAIR = 0.1               # each process's part, of an equal one
REACTION_S = 0.050
LEAST_ENTITLED = 20      # of a limit below, kernels that a launch gate cannot hold may lose more
OF_A_CORE = 0.005        # a process's governor
OF_A_CORE_WINDOWS = 0.02 # the same where the channel gate holds the load
WINDOWS_US = 10000       # microseconds; kernels and graphs from here on may be held by the channel gate
CHARGED_S = 0.005        # for a host function, a wait or a copy, at most
# The kernels of each.
CHARGED_BESIDE = {"host-function": 2, "wait-value": 2, "copy-1gib": 3}


def work_between_ends(result):
    """Of kernels so long that a window holds few: from the end of the first in it to that of the last. None where
    fewer than two ended."""
    windows = result.get("windows") or []
    ends = [place for place, work in enumerate(windows) if work]
    return sum(windows[ends[0] + 1:]) / (ends[-1] - ends[0]) if len(ends) > 1 else None


def has_few_ends(raw):
    """Its work cannot be told."""
    return BY_NAME[raw["load"]].kernel_us >= LONGEST_COUNTED_US and work_between_ends(raw["result"]) is None


def work_of(raw):
    work = raw["result"]["work_per_second"]
    if BY_NAME[raw["load"]].kernel_us < LONGEST_COUNTED_US:
        return work
    return work_between_ends(raw["result"]) or work


def figures(raw):
    """A report of one process or of several, as one of one."""
    result = raw["result"]
    parts = result.get("processes")
    if not parts:
        return {"work": work_of(raw), "nvml": result["nvml_utilization"],
                "cpu": result["cpu_seconds"] / result["seconds"], "latency": result.get("latency_us"),
                "seconds": result["seconds"], "parts": None}
    nvml = [part["nvml_utilization"] for part in parts if part["nvml_utilization"] is not None]
    return {"work": result["work_per_second"], "nvml": statistics.mean(nvml) if nvml else None,
            "cpu": sum(part["cpu_seconds"] / part["seconds"] for part in parts), "latency": None,
            "seconds": statistics.mean(part["seconds"] for part in parts),
            "parts": [part["work_per_second"] for part in parts]}


def mean_of(values):
    values = [value for value in values if value is not None]
    return statistics.mean(values) if values else None


def native_of(rows):
    """What the native rows of one load and call say together, with how far they are apart."""
    all_figures = [figures(row) for row in rows]
    works = [each["work"] for each in all_figures]
    latencies = [each["latency"] for each in all_figures if each["latency"]]
    native = {"work": statistics.mean(works), "nvml": mean_of(each["nvml"] for each in all_figures),
              "cpu": statistics.mean(each["cpu"] for each in all_figures),
              "drift": (max(works) - min(works)) / max(statistics.mean(works), 1e-9), "latency": None, "count": len(rows)}
    if latencies:
        native["latency"] = {key: statistics.mean(each[key] for each in latencies) for key in ("p50", "p99")}
        native["latency_drift"] = {key: (max(each[key] for each in latencies) - min(each[key] for each in latencies))
                                   / max(native["latency"][key], 1e-9) for key in ("p50", "p99")}
    return native


def used_natively(load, native):
    """Percent of the device that the load uses by itself; what limits are compared with."""
    if load.kind in ("saturating", "shared", "long"):
        return 100.0
    if load.by_work:
        return 100 * native["work"]
    return 100.0 if native["nvml"] is None else native["nvml"]


def broken_of_utilisation(load, row, limit):
    """By NVML, or by the kernels' work where NVML counts what is no kernel; of long kernels by both,
    because a window's ends cut one of them."""
    points = max(POINTS if row["used_natively"] >= SATURATED else POINTS_PACED, load.kernel_us / 1e4 / KERNEL_PER_S)
    if load.kind == "long":
        points = POINTS
    by_work = 100 * row["of_native"]
    broken = []
    if row["nvml"] is not None and not load.by_work and abs(row["nvml"] - limit) > points:
        broken.append(f"utilisation {row['nvml']:.1f}, not within {points:.1f} of {limit}")
    counts = load.by_work or load.windows > 1 or load.kind == "long"
    if counts and not load.changes and not row["few_ends"] and abs(by_work - limit) > points:
        broken.append(f"{by_work:.1f} by its work, not within {points:.1f} of {limit}")
    return broken


def broken_of_long(row, limit):
    broken, part = [], row["of_native"] * 100 / limit
    if limit >= LEAST_ENTITLED and not row["few_ends"] and part < THROUGHPUT_LEAST:
        broken.append(f"{part:.3f} of limit x native, not {THROUGHPUT_LEAST}")
    return broken


def governor_of(load, watched):
    """Share of a core of one process's governor: the mean where several share the limit. None: not known."""
    if not watched or watched.get("governor_cpu") is None:
        return None
    return watched["governor_cpu"] / (watched.get("governors") or load.processes)


def broken_of_governor(load, row):
    """Apart from the others: what the load got is not concerned."""
    in_windows = load.kind == "long" or load.kernel_us >= WINDOWS_US or row["who"] == "vgpu-channel"
    promised = OF_A_CORE_WINDOWS if in_windows else OF_A_CORE
    if row["governor_cpu"] is None or row["governor_cpu"] <= promised:
        return []
    return [f"governor {1000 * row['governor_cpu']:.2f} ms/s of a core, not {1000 * promised:g}"]


def missed(row):
    """All that it breaks, in words."""
    return row["broken"] + row["governor_broken"]


def one_kernel(load, row, limit):
    """Of limit x native: a kernel that the window's end cuts is not counted, so that one may be lacking."""
    if load.kind != "saturating" or not row["native_work"]:
        return 0
    return load.kernel_us / 1e6 / row["seconds"] / row["native_work"] * 100 / limit


def broken_of_held(load, row, limit):
    """What a load that would use more than its limit breaks of the promise. Of those that wait for the
    host, and of long kernels, the utilisation alone is promised."""
    broken = broken_of_utilisation(load, row, limit)
    if load.kind == "long":
        return broken + broken_of_long(row, limit)
    if load.kind != "paced" and load.windows == 1:
        part, least = row["of_native"] * 100 / limit, THROUGHPUT_LEAST - one_kernel(load, row, limit)
        row["by_one_kernel"] = least <= part < THROUGHPUT_LEAST
        if part < least:
            broken.append(f"{part:.4f} of limit x native, not {least:.4f}")
    if row["parts"]:
        equal = row["work"] / len(row["parts"])
        if any(abs(part - equal) > FAIR * equal for part in row["parts"]):
            broken.append("parts " + " ".join(f"{part / equal:.2f}" for part in row["parts"]))
    return broken


def broken_of_below(load, row, native):
    """The same for one that uses less than its limit anyway: nothing is to change, but for native drift."""
    broken = []
    if row["of_native"] < 1 - max(SAME, native["drift"]):
        broken.append(f"{row['of_native']:.3f} of native (drift {native['drift']:.3f})")
    for key in ("p50", "p99"):
        if not native["latency"] or not row["latency"]:
            continue
        ratio = row["latency"][key] / max(native["latency"][key], 1e-9)
        if ratio > 1 + max(SAME, native["latency_drift"][key]):
            broken.append(f"{key} {ratio:.3f} of native (drift {native['latency_drift'][key]:.3f})")
    if row.get("charged_each") is not None and row["charged_each"] > CHARGED_S:
        broken.append(f"each is charged {1000 * row['charged_each']:.1f} ms beside its kernels")
    return broken


def charged_each(load, measured, watched):
    """Seconds charged for each host function, wait or copy beside its kernels; None elsewhere."""
    per_second = (measured["latency"] or {}).get("count", 0) / measured["seconds"]
    if load.name not in CHARGED_BESIDE or not watched or not per_second:
        return None
    return watched["charged"] / per_second - CHARGED_BESIDE[load.name] * load.kernel_us / 1e6


def limited_row(raw, native):
    load, limit = BY_NAME[raw["load"]], raw["limit"]
    row = figures(raw)
    row.update(few_ends=has_few_ends(raw), load=raw["load"], limit=limit, who=raw["who"], native_work=native["work"],
               used_natively=used_natively(load, native), native_drift=native["drift"],
               of_native=row["work"] / native["work"] if native["work"] else 0, by_one_kernel=False)
    row["of_limit"] = row["of_native"] * row["used_natively"] / limit
    row["cpu_added"] = row["cpu"] - native["cpu"]
    watched = raw.get("watch")
    row["busy"] = 100 * watched["busy"] if watched else None
    row["governor_cpu"] = governor_of(load, watched)
    row["governor_broken"] = broken_of_governor(load, row)
    row["closures"] = watched.get("closures") if watched else None
    if raw["who"] == "vgpu":
        row["charged_each"] = charged_each(load, row, watched)
    if row["used_natively"] > limit + BORDER:
        row["case"], row["broken"] = "held", broken_of_held(load, row, limit)
    elif row["used_natively"] < limit - BORDER:
        row["case"], row["broken"] = "below", broken_of_below(load, row, native)
    else:
        row["case"], row["broken"] = "at it", []
        if row["nvml"] is not None and not load.by_work and row["nvml"] > limit + POINTS_PACED:
            row["broken"] = [f"utilisation {row['nvml']:.1f}, above {limit}"]
    return row


def reaction_rows(raw):
    rows = []
    for source in ("measured", "region"):
        for step in raw["result"].get(source) or []:
            late = step["reaction_s"] is None or step["reaction_s"] > REACTION_S
            rows.append(dict(step, load=raw["load"], begin=raw["limit"], source=source, late=late))
    return rows


def late_loads(table):
    """Loads of which a change came into force too late; by their own count, where they have one."""
    counted = {step["load"] for step in table["reactions"] if step["source"] == "measured"}
    return {step["load"] for step in table["reactions"]
            if step["late"] and (step["source"] == "measured" or step["load"] not in counted)}


def natives_beside(natives, raw):
    """Those of the row's own call; where it made none, of the last call into the same file that did."""
    own = natives.get((raw["load"], raw.get("file"), raw["run"]))
    if own:
        return own, False
    others = [rows for (load, file, _), rows in natives.items() if (load, file) == (raw["load"], raw.get("file"))]
    return (others[-1], True) if others else (None, True)


def build(rows):
    """{"rows", "natives", "reactions", "errors"} of the raw rows; of several of one kind the last."""
    natives, latest, errors = {}, {}, {}
    for raw in rows:
        # The limit of a reaction is the one that it begins with: other runs may have begun with another.
        key = (raw["load"], 0 if BY_NAME[raw["load"]].kind == "reaction" else raw["limit"], raw["who"])
        if raw.get("error"):
            errors[key] = raw
        elif raw["who"] == "native":
            natives.setdefault((raw["load"], raw.get("file"), raw["run"]), []).append(raw)
        else:
            errors.pop(key, None)
            latest[key] = raw
    table = {"rows": [], "natives": {}, "reactions": [], "errors": list(errors.values())}
    for key in sorted(latest, key=lambda key: (ORDER[key[0]], key[1], key[2])):
        raw = latest[key]
        if BY_NAME[raw["load"]].kind == "reaction":
            table["reactions"] += reaction_rows(raw)
            continue
        beside, elsewhere = natives_beside(natives, raw)
        if beside:
            native = native_of(beside)
            table["natives"].setdefault(raw["load"], native)
            table["rows"].append(dict(limited_row(raw, native), native_elsewhere=elsewhere))
    table["rows"].sort(key=lambda row: (ORDER[row["load"]], row["limit"], row["who"] != "vgpu", row["who"]))
    return table


def kept_of(rows):
    """(load, limit) of the library's own rows that keep their promise."""
    table = build(rows)
    kept = {(row["load"], row["limit"]) for row in table["rows"] if row["who"] == "vgpu" and not missed(row)}
    late = late_loads(table)
    return kept | {(step["load"], step["begin"]) for step in table["reactions"] if step["load"] not in late}


def is_kept(table):
    """Whether everything was measured and the library's rows keep all that is promised."""
    return not (table["errors"] or any(missed(row) for row in table["rows"] if row["who"] == "vgpu")
                or late_loads(table))


def number(value, form="{:.1f}"):
    return "-" if value is None else form.format(value)


def nvml_text(row):
    """In brackets where the load is not judged by it."""
    text = number(row["nvml"])
    return f"({text})" if BY_NAME[row["load"]].by_work else text


def drift_text(native):
    return f"± {native['drift'] / 2:.3f}" if native["count"] > 1 else "measured once"


def latency_text(latency):
    return f"{latency['p50']:.0f} / {latency['p99']:.0f}" if latency else "-"


def write_full(table, out):
    """One line for each measurement."""
    print("| load | limit | by | NVML | work/s | of limit × native | of native | latency p50 / p99, µs | "
          "CPU added, ms/s | governor, ms/s | case | promise |", file=out)
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |", file=out)
    before = None
    for row in table["rows"]:
        native = table["natives"][row["load"]]
        if row["load"] != before:
            print(f"| {row['load']} | none | native | {number(native['nvml'])} | {native['work']:.4g} | - | "
                  f"{drift_text(native)} | {latency_text(native['latency'])} | - | - | - | - |", file=out)
        before = row["load"]
        governor = number(row["governor_cpu"] and 1000 * row["governor_cpu"])
        print(f"| {row['load']} | {row['limit']} | {row['who']} | {nvml_text(row)} | {row['work']:.4g} | "
              f"{row['of_limit']:.3f} | {row['of_native']:.3f} | {latency_text(row['latency'])} | "
              f"{1000 * row['cpu_added']:.1f} | {governor} | {row['case']} | "
              f"{'; '.join(missed(row)) or 'kept'} |", file=out)


def cell(row):
    """Utilisation and throughput, as a share of the limit's or, below the limit, of native ("n")."""
    if row is None:
        return "-"
    ratio = f"{row['of_limit']:.3f}" if row["case"] == "held" else f"{row['of_native']:.3f}n"
    return f"{nvml_text(row)} {ratio}{'!' if row['broken'] else ''}{'^' if row['governor_broken'] else ''}"


def write_verdict(who, rows, out):
    """How many of its rows keep their promise; of the library's own which do not, and why."""
    kept = sum(not row["broken"] for row in rows)
    costly = sum(bool(row["governor_broken"]) for row in rows)
    print(f"\n{who}: {kept} of {len(rows)} rows keep their promise"
          + (f"; of {costly} the governor takes more than is promised" if costly else ""), file=out)
    near = [f"{row['load']} at {row['limit']} {row['of_limit']:.4f}" for row in rows if row["by_one_kernel"]]
    if near:
        print(f"below {THROUGHPUT_LEAST} of limit × native by less than one kernel of the window: {', '.join(near)}",
              file=out)
    for row in rows if who == "vgpu" else []:
        if missed(row):
            print(f"  {row['load']} at {row['limit']}: {'; '.join(missed(row))}", file=out)


def write_compact(table, out):
    """One line for each load, and what was broken."""
    whos = sorted({row["who"] for row in table["rows"]}, key=lambda who: (who != "vgpu", who))
    for who in whos:
        rows = {(row["load"], row["limit"]): row for row in table["rows"] if row["who"] == who}
        limits = sorted({limit for _, limit in rows})
        print(f"\n{who}: NVML's utilisation, and throughput / (limit × native / what the load uses natively); n: / "
              "native, of a load below its limit; !: a promise is broken; ^: a process's governor takes more of a core "
              f"than is promised, {1000 * OF_A_CORE:g} ms/s, {1000 * OF_A_CORE_WINDOWS:g} where the channel gate may "
              "hold the load; (): judged by its kernels' work, because NVML counts its copies\n", file=out)
        print("| load | native | " + " | ".join(map(str, limits)) + " | governor, ms/s |", file=out)
        print("| --- " * (len(limits) + 3) + "|", file=out)
        for name in sorted({load for load, _ in rows}, key=ORDER.get):
            native = table["natives"][name]
            own = [rows[name, limit]["governor_cpu"] for limit in limits if (name, limit) in rows]
            own = max((1000 * each for each in own if each is not None), default=None)
            print(f"| {name} | {number(native['nvml'])} {drift_text(native)} | "
                  + " | ".join(cell(rows.get((name, limit))) for limit in limits) + f" | {number(own)} |", file=out)
        write_verdict(who, list(rows.values()), out)
    write_reactions(table, out)
    elsewhere = sum(row["native_elsewhere"] for row in table["rows"])
    if elsewhere:
        print(f"{elsewhere} rows stand beside native ones of another call", file=out)
    for raw in table["errors"]:
        print(f"not measured: {raw['load']} at {raw['limit'] or 'no limit'}, {raw['who']}: {raw['error']}", file=out)


def reaction_line(name, limit, source, steps):
    """Of all changes of a load to that limit."""
    found = [1000 * step["reaction_s"] for step in steps if step["reaction_s"] is not None]
    never = f" ({len(steps) - len(found)} never)" if len(found) < len(steps) else ""
    shares = " | ".join(f"{statistics.median(step[key] for step in steps):.3f}"
                        for key in ("share_0_50ms", "share_50_150ms", "share_150_1150ms"))
    late = "!" if any(step["late"] for step in steps) else ""
    return (f"| {name} | {limit} | {'the load' if source == 'measured' else 'the meter'} | {len(steps)}{never} | "
            f"{number(statistics.median(found) if found else None, '{:.0f}')} | "
            f"{number(max(found, default=None), '{:.0f}')}{late} | {shares} |")


def write_reactions(table, out):
    groups = {}
    for step in table["reactions"]:
        groups.setdefault((step["load"], step["source"], step["limit"]), []).append(step)
    if not groups:
        return
    spans = ", ".join(f"{name} {BY_NAME[name].share_ms} ms" for name in dict.fromkeys(name for name, _, _ in groups))
    print(f"\nA limit changed while the load runs: ms until the share over the time that follows ({spans}) is within "
          f"10 % of it, {1000 * REACTION_S:.0f} are promised; shares: the medians\n", file=out)
    print("| load | new limit | seen by | times | median | most | share of 0-50 ms | 50-150 ms | 150-1150 ms |",
          file=out)
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", file=out)
    for (name, source, limit), steps in groups.items():
        print(reaction_line(name, limit, source, steps), file=out)
