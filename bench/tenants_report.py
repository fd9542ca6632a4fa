# SPDX-License-Identifier: Apache-2.0
"""What tenants beside each other got, from the raw rows of bench/tenants.py, and whether it is what is promised."""
import statistics

import compute_report
import compute_watch
from compute_loads import BY_NAME, LONGEST_COUNTED_US
from compute_report import number

POINT = 0.01             # of each from its own limit, where the limits add up to LIMITS_SUM or less
LIMITS_SUM = 90
EACH_OF_TWO, SUM_OF_TWO = 0.48, 0.96
HALVES = [50, 50]
SHARE_S = 0.020          # the time over which an event's share is taken
METER_SHARE_S = 0.050    # the same where the container's meter is asked, which counts each 10 ms or so
USED_S, GIVEN_BACK_S, ALONE_S = 0.050, 0.020, 0.020
LAST_S = 0.2             # of the measurement: an event then is left out
NEARLY_ALL = 0.9         # of what it may have, when a neighbour has gone
NEARLY_NONE = 0.05       # while a tenant of higher priority works
PERIOD_S = 1.0           # of the load half-busy
ABOVE_LIMIT = 0.08       # for 20 ms, of the device: what 1 ms kernels that wait together make


# ---- one tenant's report ----

def counted(result):
    """(times, amounts): the work that had ended by each time, in seconds of the device; by proportion of PyTorch's
    steps, and of a persistent kernel that the simulator runs."""
    begin = result["begin_ns"] / 1e9
    if not any(result.get("windows") or []):
        return [begin, begin + result["seconds"]], [0.0, result["work_per_second"] * result["seconds"]]
    step = result["window_ms"] / 1000
    times, amounts = [begin], [0.0]
    for window in result["windows"]:
        times.append(times[-1] + step)
        amounts.append(amounts[-1] + window * step)
    return times, amounts


def share_between_ends(times, amounts, begin, end):
    """Of kernels so long that the time holds few: from the end of the first in it to that of the last. None where
    fewer than two ended."""
    ends = [(when, amount) for when, before, amount in zip(times[1:], amounts, amounts[1:])
            if amount > before and begin <= when <= end]
    if len(ends) < 2:
        return None
    return (ends[-1][1] - ends[0][1]) / (ends[-1][0] - ends[0][0])


def share_of(tenant, begin, end):
    times, amounts = counted(tenant["result"])
    if BY_NAME[tenant["load"]].kernel_us >= LONGEST_COUNTED_US:
        return share_between_ends(times, amounts, begin, end)
    return compute_watch.share(times, amounts, begin, end - begin)


def works_together(tenants):
    """([work per second of each], seconds) over the time in which all were measured."""
    everything = [counted(tenant["result"]) for tenant in tenants]
    begin, end = max(times[0] for times, _ in everything), min(times[-1] for times, _ in everything)
    if end - begin < 0.5:
        return None, end - begin
    works = [share_of(tenant, begin, end) for tenant in tenants]
    return (None if None in works else works), end - begin


# ---- shares ----

def broken_of_shares(row, who):
    limits, parts, broken = row["limits"], row["parts"], []
    if who == "native" or not all(limits):
        return broken
    for limit, part in zip(limits, parts):
        if part > limit / 100 + POINT:
            broken.append(f"{part:.3f} is above {limit} %")
        if who == "board" and sum(limits) <= LIMITS_SUM and part < limit / 100 - POINT:
            broken.append(f"{part:.3f} is below {limit} %")
    if who == "board" and limits == HALVES:
        broken += [f"{part:.3f} is below {EACH_OF_TWO}" for part in parts if part < EACH_OF_TWO]
        if sum(parts) < SUM_OF_TWO:
            broken.append(f"together {sum(parts):.3f}, not {SUM_OF_TWO}")
    return broken


def share_row(raw, alone):
    """None where a load's figure by itself is not there yet, or too little was measured of one."""
    results = [tenant["result"] for tenant in raw["tenants"]]
    names = [tenant["load"] for tenant in raw["tenants"]]
    works, seconds = works_together(raw["tenants"])
    if not works or not all(alone.get(name) for name in names):
        return None
    row = {"scenario": raw["scenario"], "who": raw["who"], "loads": names, "seconds": seconds,
           "limits": [tenant["limit"] for tenant in raw["tenants"]],
           "parts": [work / alone[name] for work, name in zip(works, names)],
           "cpu": sum(result["cpu_seconds"] / result["seconds"] for result in results)}
    row["broken"] = broken_of_shares(row, raw["who"])
    return row


# ---- events ----

def bursts_of(result, period_s):
    """[(begin, end)] in seconds: each period one begins, and its work counts when it has ended."""
    begin, step = result["begin_ns"] / 1e9, result["window_ms"] / 1000
    ends = [begin + (place + 1) * step for place, work in enumerate(result["windows"]) if work]
    found = []
    for turn in range(int(result["seconds"] / period_s)):
        start = begin + turn * period_s
        end = next((end for end in ends if end > start), None)
        if end is None or end > start + period_s:
            break  # late: the schedule is lost
        found.append((start, end))
    return found


def followed(raw):
    """(times, amounts, seconds of a share, seen by) of the first tenant. A persistent kernel counts its work itself;
    what other loads did is counted by a thread that may wait in a launch, so that the meter is asked."""
    first = raw["tenants"][0]
    if first["load"] == "persistent" and any(first["result"]["windows"]):
        return (*counted(first["result"]), SHARE_S, "the load")
    return [when for when, _ in raw["meter"]], [busy for _, busy in raw["meter"]], METER_SHARE_S, "the meter"


def delays(raw, whens, wanted):
    """Seconds from each of the times until the first tenant's share over the time that follows is as wanted; None:
    never."""
    times, amounts, seconds, _ = followed(raw)
    return [compute_watch.delay_until(times, amounts, when, seconds, wanted) for when in whens
            if times and times[0] < when < times[-1] - LAST_S]


def event_rows(raw):
    """[(what, seconds each time, promised)]"""
    limit, soft = raw["tenants"][0]["limit"] / 100, raw["tenants"][0]["soft"] / 100
    high = NEARLY_ALL * (soft or limit)
    if raw["event"] == "dies":
        return [("its time is used after", delays(raw, [raw["killed_s"]], lambda now: now >= high), USED_S)]
    bursts = bursts_of(raw["tenants"][1]["result"], PERIOD_S)[1:]
    begins, ends = [begin for begin, _ in bursts], [end for _, end in bursts]
    if raw["event"] == "comes-back":
        low = ("given back after", delays(raw, begins, lambda now: now <= limit + ABOVE_LIMIT), GIVEN_BACK_S)
    else:
        low = ("runs alone after", delays(raw, begins, lambda now: now <= NEARLY_NONE), ALONE_S)
    return [low, ("its time is used after", delays(raw, ends, lambda now: now >= high), USED_S)]


def event_table(raw):
    rows = []
    for what, seconds, promised in event_rows(raw):
        late = not seconds or any(each is None or each > promised for each in seconds)
        rows.append({"scenario": raw["scenario"], "what": what, "seconds": seconds, "promised": promised,
                     "late": late, "by": followed(raw)[3]})
    return rows


# ---- all ----

def latest_of(rows):
    """({key: raw row}, [error rows]): of several of one key the last that succeeded."""
    latest, errors = {}, {}
    for raw in rows:
        key = (raw["table"], raw["scenario"], raw["who"])
        if raw["error"]:
            errors[key] = raw
        else:
            errors.pop(key, None)
            latest[key] = raw
    return latest, [raw for key, raw in errors.items() if key not in latest]


def build(rows):
    """{"shares", "events", "latency", "errors"} of the raw rows."""
    latest, errors = latest_of(rows)
    alone = {name: statistics.mean(works_together(raw["tenants"])[0] or [0])
             for (table, name, _), raw in latest.items() if table == "alone"}
    table = {"shares": [], "events": [], "latency": [], "errors": errors, "alone": alone}
    for (kind, _, _), raw in latest.items():
        if kind == "shares":
            row = share_row(raw, alone)
            table["shares"] += [row] if row else []
            if not row:
                errors.append(dict(raw, error="a load has no figure by itself, or too little was measured of one"))
        elif kind == "events":
            table["events"] += event_table(raw)
        elif kind == "latency":
            table["latency"].append(latency_row(raw))
    return table


def latency_row(raw):
    small, greedy = [tenant["result"] for tenant in raw["tenants"]]
    return {"scenario": raw["scenario"], "who": raw["who"], **small["latency_us"],
            "greedy": greedy["work_per_second"]}


def write_shares(rows, out):
    if not rows:
        return
    print("\nTenants beside each other: what each got, of what its load does alone and natively\n", file=out)
    print("| tenants | by | each | together | CPU of all, ms/s | promise |", file=out)
    print("| --- | --- | --- | --- | --- | --- |", file=out)
    for row in sorted(rows, key=lambda row: (row["scenario"].split(",")[0], len(row["limits"]), row["scenario"],
                                             row["who"])):
        parts = " ".join(f"{part:.3f}" for part in row["parts"])
        print(f"| {row['scenario']} | {row['who']} | {parts} | {sum(row['parts']):.3f} | {1000 * row['cpu']:.0f} | "
              f"{'; '.join(row['broken']) or ('-' if row['who'] == 'native' else 'kept')} |", file=out)


def write_events(rows, out):
    if not rows:
        return
    print("\nWhen a neighbour goes or comes: ms until the share over the next 20 ms (50 ms by the meter) "
          "is as it is to be\n", file=out)
    print("| | | seen by | times | median | most | promised |", file=out)
    print("| --- | --- | --- | --- | --- | --- | --- |", file=out)
    for row in rows:
        found = [1000 * each for each in row["seconds"] if each is not None]
        never = f" ({len(row['seconds']) - len(found)} never)" if len(found) < len(row["seconds"]) else ""
        middle = f"{statistics.median(found):.0f}" if found else "-"
        print(f"| {row['scenario']} | {row['what']} | {row['by']} | {len(row['seconds'])}{never} | {middle} | "
              f"{number(max(found, default=None), '{:.0f}')}{'!' if row['late'] else ''} | "
              f"{1000 * row['promised']:.0f} |", file=out)


def write_latency(rows, out):
    if not rows:
        return
    print("\nA request of 100 µs each 10 ms, ms from its launch to its end\n", file=out)
    print("| | by | p50 | p90 | p99 | most | requests | the other's work/s |", file=out)
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", file=out)
    for row in rows:
        figures = " | ".join(f"{row[key] / 1000:.2f}" for key in ("p50", "p90", "p99", "max"))
        print(f"| {row['scenario']} | {row['who']} | {figures} | {row['count']} | {row['greedy']:.3f} |",
              file=out)


def write_windows(table, out):
    """Rows of compute_report.build."""
    if not table["rows"]:
        return
    print("\nLoads that a launch gate cannot hold within a point, and the gates beside each other\n", file=out)
    print("| load | limit | by | NVML | work | of limit × native | governor, ms/s | switches/s | promise |", file=out)
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", file=out)
    for row in table["rows"]:
        governor = number(row["governor_cpu"] and 1000 * row["governor_cpu"])
        work = "one end | -" if row["few_ends"] else f"{row['of_native']:.3f} | {row['of_limit']:.3f}"
        print(f"| {row['load']} | {row['limit']} | {row['who']} | {compute_report.nvml_text(row)} | {work} | "
              f"{governor} | {number(row['closures'])} | {'; '.join(compute_report.missed(row)) or 'kept'} |", file=out)


def write(table, windows, out):
    write_windows(windows, out)
    write_shares(table["shares"], out)
    write_events(table["events"], out)
    write_latency(table["latency"], out)
    for raw in windows["errors"]:
        print(f"not measured: {raw['load']} at {raw['limit'] or 'no limit'}, {raw['who']}: {raw['error']}", file=out)
    for raw in table["errors"]:
        print(f"not measured: {raw['scenario']}, {raw['who']}: {raw['error']}", file=out)


def is_kept(table, windows):
    return not (table["errors"] or windows["errors"] or any(compute_report.missed(row) for row in windows["rows"])
                or any(row["broken"] for row in table["shares"]) or any(row["late"] for row in table["events"]))
