# SPDX-License-Identifier: Apache-2.0
"""An all-reduce over several GPUs, native and in a container that has half of each."""
import json
import os
import subprocess
import tempfile
import time

import compute
from compute_loads import HERE

LIMIT, LEAST = 50, 0.45
NATIVE_S, WARMUP_S = 10, 3
LATER_S = 120  # than its windows: the start of PyTorch and NCCL, and what the limit makes of the warm-up


def once(bench, who, seconds):
    """A row. The program kills itself, and says so, where it does not end."""
    with tempfile.TemporaryDirectory(dir=bench.scratch) as place:
        program = [bench.options.python, os.path.join(HERE, "compute_work", "all_reduce.py"), str(seconds),
                   str(WARMUP_S), str(seconds + WARMUP_S + LATER_S)]
        command, environment = bench.command("native" if who == "native" else "vgpu", LIMIT,
                                             os.path.join(place, "region"), program)
        environment["NCCL_NVLS_ENABLE"] = "0"
        row = {"run": bench.run, "who": who, "limit": 0 if who == "native" else LIMIT, "error": None,
               "at": round(time.monotonic() - bench.began, 1), "sim": bench.options.sim}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False,
                                  timeout=seconds + WARMUP_S + LATER_S + 20)
            said = done.stderr.strip().splitlines()[-1:]
            row["result"] = compute.report_in(done.stdout) if not done.returncode else None
            if done.returncode:
                row["error"] = f"exit status {done.returncode}: {said[0][:300] if said else 'nothing said'}"
        except subprocess.TimeoutExpired:
            row["error"] = "killed: it did not end, nor kill itself"
        except ValueError:
            row["error"] = "no report"
    with open(os.path.join(bench.options.output, "gpus.jsonl"), "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return row


def verdict(rows):
    """(lines, whether it is as promised) of the rows native, limited, native."""
    errors = [f"NOT OK - {row['who']}: {row['error']}" for row in rows if row["error"]]
    if errors:
        return errors, False
    natives = [row["result"]["work_per_second"] for row in rows if row["who"] == "native"]
    limited = next(row["result"] for row in rows if row["who"] != "native")
    native = sum(natives) / len(natives)
    ratio = limited["work_per_second"] / native
    line = (f"An all-reduce of 256 MiB over {limited['gpus']} GPUs: natively {native:.1f} a second "
            f"(± {(max(natives) - min(natives)) / 2:.1f}), under {LIMIT} {limited['work_per_second']:.1f} for "
            f"{limited['seconds']:.0f} s, {ratio:.3f} of native; promised: {LEAST}")
    kept = ratio >= LEAST and limited["gpus"] > 1
    return [line] + ([] if kept else [f"NOT OK - {ratio:.3f} on {limited['gpus']} GPUs"]), kept


def measure(bench, seconds):
    if not bench.has_torch():
        print("PyTorch with a GPU is not there: nothing is measured")
        return False
    rows = [once(bench, who, length) for who, length in (("native", NATIVE_S), ("vgpu", seconds), ("native", NATIVE_S))]
    lines, kept = verdict(rows)
    with open(os.path.join(bench.options.output, "gpus.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print("\n".join(lines))
    return kept
