# SPDX-License-Identifier: Apache-2.0
"""What a refusal costs where other processes of the slice decide it: `cost --refuse` beside 0 to 64
processes that hold memory. Usage: refusal_peers.py BUILD [--sim]"""
import json
import os
import subprocess
import sys
import tempfile

build = sys.argv[1]
directory = tempfile.mkdtemp(prefix="vgpu-peers-")
sim = [f"--sim=machine={directory}/machine"] if "--sim" in sys.argv else []


def command(*arguments):
    return [f"{build}/vgpu", "run", "--memory", "100g", "--region", f"{directory}/region", *sim, *arguments]


print("| peers | refusal, median ns | p10 | p90 |\n| --- | --- | --- | --- |")
holders = []
for peers in (0, 1, 4, 16, 64):
    while len(holders) < peers:
        holder = subprocess.Popen(command(f"{build}/test/driver/hold", "200", "600"), stdout=subprocess.PIPE, text=True)
        holder.stdout.readline()
        holders.append(holder)
    # More than the peers leave, less than the process's own bytes rule out.
    refuse = (100 << 30) - (1100 << 20) if peers else 100 << 30
    output = subprocess.run(command(f"{build}/test/driver/cost", "--refuse", str(refuse)), check=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    refused = json.loads(output)["cuMemAlloc refused"]
    print(f"| {peers} | {refused['p50']} | {refused['p10']} | {refused['p90']} |", flush=True)
for holder in holders:
    holder.terminate()
    holder.wait()
for name in os.listdir(directory):
    os.unlink(os.path.join(directory, name))
os.rmdir(directory)
