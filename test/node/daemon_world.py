# SPDX-License-Identifier: Apache-2.0
"""The world of plugin_world.py with vgpu-device-plugin itself, whose cards are the simulator's."""
import json
import os
import re
import signal
import subprocess

from plugin_world import BUILD, PATIENCE_S, Lines, World

SIM = "8xh200"
SCRIPT = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); assert c.cuInit(0) == 0; "
          "b = ctypes.create_string_buffer(16)\n"
          "for i in range(8): c.cuDeviceGetUuid_v2(b, i); print(b.raw.hex())")


def uuids():
    """Of the simulator's cards."""
    import tempfile
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(["python3", "-c", SCRIPT], check=True, capture_output=True, text=True, env={
            **os.environ, "LD_LIBRARY_PATH": os.path.join(BUILD, "src/sim"), "VGPU_SIM": SIM,
            "VGPU_SIM_MACHINE": directory + "/machine"})
    return ["GPU-" + "-".join((t[:8], t[8:12], t[12:16], t[16:20], t[20:])) for t in done.stdout.split()]


def translate(case, cards):
    """The case with the simulator's UUIDs in the place of its own, as they first occur; None: it needs other
    cards than the simulator's (MIG, few, of 24 GiB), or a mode that the daemon does not have."""
    text = json.dumps(case)
    plugin = case["input"].get("plugin", {})
    if "cards" in plugin or plugin.get("mode") == "mig" or ",NVIDIA,0," in text:
        return None
    named = list(dict.fromkeys(re.findall(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", text)))
    if len(named) > len(cards) or "MIG-" in text:
        return None
    for own, card in zip(named, cards):
        text = text.replace(own, card)
    return json.loads(text)


class DaemonWorld(World):
    def start(self, wait=True, **environment):
        config, mark = self.config, self.kubelet.mark()
        os.makedirs(self.path("driver/usr/lib"), exist_ok=True)
        library = self.path("driver/usr/lib/libnvidia-ml.so.1")
        if not os.path.exists(library):
            os.symlink(os.path.join(BUILD, "src/sim/libnvidia-ml.so.1"), library)
        self.write("device-config.yaml", "nvidia:\n  deviceSplitCount: 20\n  deviceCoreScaling: 10\n")
        self.write("config.json", json.dumps({"nodeconfig": [{
            "name": config["node"], "operatingmode": config["mode"], "devicememoryscaling": config["memory_scaling"],
            "enablegetpreferredallocation": config["preferred"],
            **({"libcudaloglevel": int(config["log_level"])} if config["log_level"] else {})}]}))
        flags = {"--node-name": config["node"], "--config-file": self.path("device-config.yaml"),
                 "--node-config-file": self.path("config.json"), "--hook-path": self.hook,
                 "--nvidia-driver-root": self.path("driver"), "--driver-root-ctr-path": self.path("driver"),
                 "--kubelet-socket": self.path("kubelet/kubelet.sock"),
                 "--pod-resources-socket": self.path("kubelet/resources.sock"),
                 "--device-list-strategy": config["strategies"], "--proof-key-file": self.path("key"),
                 "--device-id-strategy": "index" if config["by_index"] else "uuid", "--library-source": ""}
        switches = {"--disable-core-limit": "core_limit_disabled", "--gdrcopy-enabled": "gdrcopy",
                    "--gds-enabled": "gds", "--mofed-enabled": "mofed", "--require-proof": "require_proof"}
        self.plugin = subprocess.Popen(
            [os.path.join(BUILD, "src/daemon/vgpu-device-plugin"), *(f"{k}={v}" for k, v in flags.items()),
             *(flag for flag, key in switches.items() if config[key])],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "KUBECONFIG": self.path("kubeconfig"), "VGPU_SIM": SIM,
                 "VGPU_SIM_MACHINE": self.path("machine"), **environment})
        self.log = Lines(self.plugin.stderr)
        if wait:
            self.kubelet.wait("devices", mark)
            self.synced()

    def stop(self):
        if self.plugin.poll() is None:
            self.plugin.send_signal(signal.SIGTERM)
        return self.plugin.wait(PATIENCE_S)
