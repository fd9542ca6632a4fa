# SPDX-License-Identifier: Apache-2.0
"""Says of a soak's samples whether they are flat: the second quarter's medians beside the last one's.
Usage: soak_report.py DIR [SECONDS TO WAIT FOR ITS END]"""
import json
import os
import sys
import time

from watch import MIB, check, failures, median

# What may differ, in bytes or counts. A DataLoader's workers come and go in each epoch, with queues
# and threads of their own.
RSS_BYTES, FORKING_COUNT, ACCOUNT_BYTES = 8 * MIB, 4, 2 * MIB


def quarters(values):
    count = len(values)
    return values[count // 4:count // 2], values[3 * count // 4:]


def growth(values):
    second, last = quarters(values)
    return median(last) - median(second)


def series(samples, kind, name, field):
    return [s[kind][name][field] for s in samples if field in s[kind].get(name, {})]


def show(field, value):
    return f"{value / MIB:.1f}" if field in ("rss", "region", "nvml") else str(value)


def process_report(samples, name):
    for field, unit in (("rss", "RSS, MiB"), ("fds", "descriptors"), ("threads", "threads"), ("region", "region, MiB"),
                        ("nvml", "NVML, MiB")):
        values = series(samples, "processes", name, field)
        if not values:
            continue
        second, last = quarters(values)
        figures = [values[0], min(values), median(second), median(last), max(values), values[-1]]
        print(f"| {name} | {unit} | {' | '.join(show(field, v) for v in figures)} |")


def process_verdict(samples, name, native_growth):
    rss = growth(series(samples, "processes", name, "rss"))
    # On the simulator device memory is memory of the process.
    check(f"{name}: resident memory is flat", samples[0].get("sim") or rss <= max(RSS_BYTES, native_growth + RSS_BYTES / 2),
          f"{rss / MIB:+.1f} MiB, natively {native_growth / MIB:+.1f}")
    tolerance = FORKING_COUNT if name.startswith("train") else 0
    for field, what in (("fds", "descriptors"), ("threads", "threads")):
        values = series(samples, "processes", name, field)
        second, last = quarters(values)
        check(f"{name}: {what} are flat", abs(growth(values)) <= tolerance and min(last) <= min(second) + tolerance,
              f"{median(second)} and {median(last)}, least {min(second)} and {min(last)}")
    ours, theirs = (series(samples, "processes", name, field) for field in ("region", "nvml"))
    if ours:
        differences = [abs(a - b) for a, b in zip(ours, theirs)]
        equal = sum(d <= ACCOUNT_BYTES for d in differences)
        # A sample may fall between an allocation and its account; a leak stays.
        second, last = quarters(differences)
        check(f"{name}: region and NVML agree", max(median(second), median(last)) <= ACCOUNT_BYTES
              and equal >= 0.9 * len(differences),
              f"within 2 MiB in {equal} of {len(differences)} samples, most {max(differences) / MIB:.1f} MiB")


def slice_verdict(samples, name):
    high = series(samples, "slices", name, "high")
    living = series(samples, "slices", name, "living")
    peak, limit = max(series(samples, "slices", name, "peak")), series(samples, "slices", name, "limit")[0]
    second, last = quarters(high)
    check(f"slice {name}: dead processes' slots are used again", max(last) <= max(second) + 2,
          f"slots used {max(second)} and {max(last)}, living at most {max(living)}")
    check(f"slice {name}: NVML never saw more than the limit", 0 < peak <= limit,
          f"most {peak / MIB:.0f} of {limit / MIB:.0f} MiB")


def end_verdict(end):
    check("every long-lived process ended well", set(end["status"].values()) == {0}, end["status"])
    for name, passers in end["passers"].items():
        check(f"slice {name}: short-lived processes end as they should", passers["bad"] == 0,
              f"{passers['started']}, {passers['killed']} of them killed, {passers['refused']} met refusals")
    check("nobody was refused in the slice with room", end["passers"]["roomy"]["refused"] == 0
          and " refused 0 " in end["said"]["churn"], end["said"]["churn"])
    check("nvidia-smi shows the slice each time", end["smi"]["bad"] == 0, f"{end['smi']['started']} times")
    check("nothing is left on the card or living in the regions",
          not any(left["nvml"] or left["living"] for left in end["left"].values()), end["left"])
    for name, line in end["said"].items():
        print(f"# {name}: {line}")


def main():
    directory, patience = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0
    deadline = time.monotonic() + patience
    while not os.path.exists(f"{directory}/end.json") and time.monotonic() < deadline:
        time.sleep(0.5)
    try:
        with open(f"{directory}/samples.jsonl", encoding="utf-8") as file:
            samples = [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        samples = []
    if len(samples) < 8:
        check("there are samples to judge", False, f"{len(samples)} in {directory}")
        sys.exit(1)
    names = list(samples[0]["processes"])
    print(f"{len(samples)} samples over {samples[-1]['t'] / 60:.1f} minutes\n")
    print("| process | | first | least | median of the 2nd quarter | of the last | most | last |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    native = {name: growth(series(samples, "processes", name, "rss")) for name in names if name.endswith("native")}
    for name in names:
        process_report(samples, name)
    print()
    for name in names:
        check(f"{name}: lives to the end", name in samples[-1]["processes"])
        if name not in native:
            process_verdict(samples, name, max(0, native.get(f"{name.split(',')[0]}, native", 0)))
    for name in samples[-1]["slices"]:
        slice_verdict(samples, name)
    if os.path.exists(f"{directory}/end.json"):
        with open(f"{directory}/end.json", encoding="utf-8") as file:
            end_verdict(json.load(file))
    else:
        check("the soak has ended", False, "no end.json yet: this is what there is so far")
    print(f"{'FLAT' if not failures() else 'NOT FLAT'}")
    sys.exit(failures() != 0)


main()
