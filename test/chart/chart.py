# SPDX-License-Identifier: Apache-2.0
"""chart BUILD: deploy/chart as helm renders it: for several versions of Kubernetes and sets of values, against
Kubernetes' API, the daemons' own flags, and the manifest of the same DaemonSet in deploy/kubernetes."""
import os
import re
import subprocess
import tempfile

import helm
from tap import Skip, equal, test, true
import tap

from mine import BUILD, MINE

VERSIONS = ["1.18.20", "1.19.16", "1.20.15", "1.22.17", "1.25.16", "1.26.15", "1.30.4", "1.33.1", "1.35.2"]
CHECK = os.path.join(helm.ROOT, "scripts/check-yaml")
PLUGIN, MONITOR = (os.path.join(BUILD, "src/daemon", name) for name in ("vgpu-device-plugin", "vgpu-monitor"))
DAEMONS = {"device-plugin": PLUGIN, "monitor": MONITOR}

# Every value with another than its default.
ALL = {
    "global": {"imageRegistry": "r.example:5000", "imagePullSecrets": ["one"], "imageTag": "9", "gpuHookPath": "/opt/x",
               "labels": {"team": "a"}, "annotations": {"note": "b"}},
    "namespaceOverride": "gpu", "resourceName": "example.com/gpu", "resourceMem": "example.com/mem",
    "resourceMemPercentage": "example.com/percent", "resourceCores": "example.com/cores",
    "resourcePriority": "example.com/priority",
    "scheduler": {"overwriteEnv": "true", "defaultSchedulerPolicy": {"gpuSchedulerPolicy": "topology-aware"}},
    "devicePlugin": {
        "image": {"repository": "a/vgpu", "pullPolicy": "Always", "pullSecrets": ["two", "one"]},
        "monitor": {"image": {"repository": "b/monitor", "tag": "7"}, "resyncInterval": "7m", "extraArgs": ["-v=4", "--verbose"],
                    "extraEnvs": {"A": 1}, "resources": {}},
        "deviceSplitCount": 7, "deviceMemoryScaling": 1.5, "deviceCoreScaling": 2, "enableNumaTopology": True,
        "preConfiguredDeviceMemory": 131072, "nodeConfiguration": {"config": '{"nodeconfig": [{"name": "n", "devicesplitcount": 3}]}'},
        "runtimeClassName": "nvidia", "createRuntimeClass": True, "migStrategy": "mixed", "disablecorelimit": "true",
        "passDeviceSpecsEnabled": "true", "deviceListStrategy": "volume-mounts", "registerFormat": "csv",
        "nvidiaDriverRoot": "/run/nvidia/driver", "gdrcopyEnabled": True, "gdsEnabled": "true", "mofedEnabled": True,
        "extraArgs": ["-v=4", "--verbose", "--rescan-interval=60"], "extraEnvs": {"DP_DISABLE_HEALTHCHECKS": "xids"},
        "service": {"type": "LoadBalancer", "httpPort": 9000, "labels": {"l": "1"}, "annotations": {"a": "2"}},
        "pluginPath": "/k/device-plugins", "podResourcesPath": "/k/pod-resources", "podAnnotations": {"p": "3"},
        "hostPID": False, "hostNetwork": True, "nvidiaNodeSelector": {"gpu": None, "pool": "gpu"}, "tolerations": [],
        "priorityClassName": "", "updateStrategy": {"type": "OnDelete"}, "resources": {}},
    "devices": {"nvidia": {"gpuCorePolicy": "force", "libCudaLogLevel": 3}}, "legacyMetrics": True}

# As somebody has it who comes from HAMi's chart: today's names, and an older chart's.
HAMI = {
    "schedulerName": "hami-scheduler", "podSecurityPolicy": {"enabled": False},
    "scheduler": {"kubeScheduler": {"imageTag": "v1.29.0"}, "replicas": 2, "leaderElect": True,
                  "defaultSchedulerPolicy": {"nodeSchedulerPolicy": "spread", "gpuSchedulerPolicy": "binpack"}},
    "devicePlugin": {"image": {"repository": "mine/vgpu", "tag": "1"}, "libPath": "/usr/local/vgpu",
                     "monitor": {"ctrPath": "/usr/local/vgpu/containers", "extraArgs": ["-v=4"]}, "extraArgs": ["-v=4"],
                     "nvidiaDriverRoot": "auto", "nvidiaHookPath": None, "gdrcopyEnabled": None, "disablecorelimit": "false",
                     "deviceSplitCount": 5, "passDeviceSpecsEnabled": True, "gpuOperatorToolkitReady": {"enabled": False}},
    "devices": {"kunlun": {"enabled": True}}, "mockDevicePlugin": {"enabled": False}}
OLD = {"devicePlugin": {"image": "mine/vgpu", "imagePullPolicy": "Always", "migStrategy": "none"}}
SETS = {"no values": {}, "all values": ALL, "HAMi's values": HAMI, "an old chart's values": OLD,
        "no device plugin": {"devicePlugin": {"enabled": False}}, "a ClusterIP": {"devicePlugin": {"service": {"type": "ClusterIP"}}}}


def daemonset(found):
    (one,) = [value for (kind, _), value in found.items() if kind == "DaemonSet"]
    return one


def containers(found):
    return {one["name"]: one for one in daemonset(found)["spec"]["template"]["spec"]["containers"]}


def of_kind(found, kind):
    return {name: value for (own, name), value in found.items() if own == kind}


@test
def linted():
    """helm lint finds nothing, with any set of values"""
    for name, values in SETS.items():
        done = helm.run("lint", "--strict", helm.CHART, values=[values])
        equal((done.returncode, "[ERROR]" in done.stdout or "[WARNING]" in done.stdout), (0, False), f"{name}: {done.stdout}")


@test
def versions():
    """what it renders is as Kubernetes' API has it, for each version and any set of values"""
    with tempfile.TemporaryDirectory() as directory:
        files, api = [], {}
        for version in VERSIONS:
            for number, values in enumerate(SETS.values()):
                files.append(os.path.join(directory, f"{version}-{number}.yaml"))
                with open(files[-1], "w", encoding="utf-8") as file:
                    file.write(helm.template(values, version=version))
            found = helm.objects(ALL, version=version)
            api[version] = found["RuntimeClass", "nvidia"]["apiVersion"]
        done = subprocess.run([CHECK, *files], env=MINE, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 77:
            raise Skip(done.stderr.strip())
        equal((done.returncode, done.stderr), (0, ""), "scripts/check-yaml")
    equal([api["1.19.16"], api["1.20.15"]], ["node.k8s.io/v1beta1", "node.k8s.io/v1"], "RuntimeClass")


@test
def too_old():
    """a Kubernetes below 1.18 is refused"""
    done = helm.run("template", "x", helm.CHART, "--kube-version", "1.17.0")
    true(done.returncode and "kubeVersion" in done.stderr, done.stderr)


@test
def flags():
    """the daemons know every flag that it gives them"""
    seen = set()
    for values in SETS.values():
        if values.get("devicePlugin", {}).get("enabled") is False:
            continue
        for name, container in containers(helm.objects(values)).items():
            usage = subprocess.run([DAEMONS[name], "--help"], env=MINE, capture_output=True, text=True, check=True).stdout
            equal(container["command"][0], os.path.basename(DAEMONS[name]), "the program")
            for word in container["command"][1:]:
                flag = word.partition("=")[0]
                true(re.search(rf"^  {re.escape(flag)}\s", usage, re.MULTILINE), f"{name}: {word}")
                seen.add((name, flag))
    true({("device-plugin", "--gds-enabled"), ("monitor", "--legacy-metrics")} <= seen, f"flags: {seen}")


def placed(word, directory):
    for path in ("/device-config/", "/config/"):
        word = word.replace(f"={path}", f"={directory}/")
    return word


@test
def taken():
    """the daemons take the commands and the files that it gives them without a word about a setting"""
    for name, values in SETS.items():
        if values.get("devicePlugin", {}).get("enabled") is False:
            continue
        with tempfile.TemporaryDirectory() as directory:
            found = helm.objects(values)
            for config in of_kind(found, "ConfigMap").values():
                for file_name, text in config["data"].items():
                    with open(os.path.join(directory, file_name), "w", encoding="utf-8") as file:
                        file.write(text)
            for container in containers(found).values():
                command = [DAEMONS[container["name"]], *(placed(word, directory) for word in container["command"][1:])]
                # It ends at the kubeconfig, which it reads after its settings.
                done = subprocess.run([*command, "--node-name=n", f"--hook-path={directory}"],
                                      env={**MINE, "KUBECONFIG": directory + "/none"}, capture_output=True, text=True,
                                      timeout=60, check=False)
                true(done.returncode == 1 and "/none" in done.stderr, f"{name}: {command}: {done.stderr}")
                equal(len(done.stderr.splitlines()), 1, f"{name}: {done.stderr}")


@test
def consistent():
    """it runs the daemons as deploy/kubernetes/node.yaml does"""
    with open(os.path.join(helm.ROOT, "deploy/kubernetes/node.yaml"), encoding="utf-8") as file:
        manifest = {(one["kind"], one["metadata"]["name"]): one for one in helm.load(file.read())}
    chart = helm.objects()
    equal(*([one["rules"] for one in of_kind(found, "ClusterRole").values()] for found in (chart, manifest)), "rights")
    pods = [daemonset(found)["spec"]["template"]["spec"] for found in (chart, manifest)]
    for key in ("hostPID", "priorityClassName", "terminationGracePeriodSeconds", "tolerations"):
        equal(pods[0].get(key), pods[1].get(key), key)
    hosts = [{volume["name"]: volume["hostPath"] for volume in pod["volumes"] if "hostPath" in volume} for pod in pods]
    equal(hosts[0], hosts[1], "directories of the host")
    ours, theirs = containers(chart), containers(manifest)
    true("device-plugin" in theirs, "the manifest has the device plugin")
    for name, other in theirs.items():
        container = ours[name]
        for key in ("image", "imagePullPolicy", "env", "ports", "readinessProbe", "resources", "securityContext"):
            equal(container.get(key), other.get(key), f"{name}: {key}")
        mounts = [{mount["name"]: mount for mount in one["volumeMounts"] if mount["name"] in hosts[0]}
                  for one in (container, other)]
        equal(mounts[0], mounts[1], f"{name}: mounts")
    configs = ["".join(one["data"].get("device-config.yaml", "") for one in of_kind(found, "ConfigMap").values())
               for found in (chart, manifest)]
    own, theirs = (helm.load(text)[0]["nvidia"] for text in configs)
    equal({key: own.get(key) for key in theirs}, theirs, "device-config.yaml")


@test
def joined():
    """every name in it is an object's of its own, in the release's namespace"""
    for name, values in SETS.items():
        found = helm.objects(values, namespace="there")
        namespace = values.get("namespaceOverride", "there")
        for (kind, _), one in found.items():
            inside = not kind.startswith("ClusterRole") and kind != "RuntimeClass"
            equal(one["metadata"].get("namespace"), namespace if inside else None, f"{name}: namespace of {kind}")
        for binding in of_kind(found, "ClusterRoleBinding").values():
            true(binding["roleRef"]["name"] in of_kind(found, "ClusterRole"), f"{name}: role")
            for subject in binding["subjects"]:
                true(subject["name"] in of_kind(found, "ServiceAccount") and subject["namespace"] == namespace, name)
        for service in of_kind(found, "Service").values():
            labels = daemonset(found)["spec"]["template"]["metadata"]["labels"]
            true(service["spec"]["selector"].items() <= labels.items(), f"{name}: the service's selector")
        for one in of_kind(found, "DaemonSet").values():
            pod = one["spec"]["template"]["spec"]
            true(pod["serviceAccountName"] in of_kind(found, "ServiceAccount"), f"{name}: service account")
            maps = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
            true(maps <= set(of_kind(found, "ConfigMap")), f"{name}: {maps}")
            mounted = {mount["name"] for part in pod["containers"] for mount in part["volumeMounts"]}
            equal(mounted, {volume["name"] for volume in pod["volumes"]}, f"{name}: volumes")


@test
def followed():
    """values get to where they belong"""
    found = helm.objects(ALL)
    pod = daemonset(found)["spec"]["template"]
    parts = containers(found)
    equal([one["image"] for one in parts.values()], ["r.example:5000/a/vgpu:9", "r.example:5000/b/monitor:7"], "images")
    equal([one["imagePullPolicy"] for one in parts.values()], ["Always", "Always"], "pull policies")
    equal(pod["spec"]["imagePullSecrets"], [{"name": "one"}, {"name": "two"}], "pull secrets")
    equal([pod["spec"][key] for key in ("runtimeClassName", "hostPID", "hostNetwork", "nodeSelector")],
          ["nvidia", False, True, {"pool": "gpu"}], "the Pod")
    true("tolerations" not in pod["spec"] and "priorityClassName" not in pod["spec"], "what is empty is left out")
    command = parts["device-plugin"]["command"]
    for word in ("--resource-name=example.com/gpu", "--mig-strategy=mixed", "--disable-core-limit=true", "--verbose",
                 "--pass-device-specs=true", "--nvidia-driver-root=/run/nvidia/driver", "--gds-enabled=true",
                 "--gdrcopy-enabled=true", "--mofed-enabled=true", "--enable-topology-score=true", "--register-format=csv",
                 "--device-list-strategy=volume-mounts", "--rescan-interval=60"):
        true(word in command, f"{word} in {command}")
    true("-v=4" not in command + parts["monitor"]["command"], "klog's flag")
    true({"--verbose", "--legacy-metrics=true", "--resync-interval=7m"} <= set(parts["monitor"]["command"]), "the monitor")
    environment = {name: {one["name"]: one.get("value") for one in part["env"]} for name, part in parts.items()}
    equal([environment["device-plugin"]["HOOK_PATH"], environment["monitor"]["HOOK_PATH"]], ["/opt/x", "/opt/x/vgpu"], "HOOK_PATH")
    equal([environment["device-plugin"]["DP_DISABLE_HEALTHCHECKS"], environment["monitor"]["A"]], ["xids", "1"], "extraEnvs")
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["spec"]["volumes"] if "hostPath" in volume}
    equal(paths, {"device-plugins": "/k/device-plugins", "pod-resources": "/k/pod-resources", "vgpu": "/opt/x/vgpu",
                  "vgpulock": "/tmp/vgpulock", "driver-root": "/run/nvidia/driver"}, "paths")
    service = found["Service", "vgpu-device-plugin-monitor"]
    equal([service["spec"]["type"], service["spec"]["ports"][0]["port"]], ["LoadBalancer", 9000], "the service")
    config = helm.load(found["ConfigMap", "vgpu-scheduler-device"]["data"]["device-config.yaml"])[0]["nvidia"]
    equal(config, {"resourceCountName": "example.com/gpu", "resourceMemoryName": "example.com/mem",
                   "resourceMemoryPercentageName": "example.com/percent", "resourceCoreName": "example.com/cores",
                   "resourcePriorityName": "example.com/priority", "overwriteEnv": True, "defaultMemory": 0, "defaultCores": 0,
                   "defaultGPUNum": 1, "memoryFactor": 1, "deviceSplitCount": 7, "deviceMemoryScaling": 1.5,
                   "deviceCoreScaling": 2, "enableNumaTopology": True, "preConfiguredDeviceMemory": 131072,
                   "gpuCorePolicy": "force", "libCudaLogLevel": 3, "runtimeClassName": "nvidia"}, "device-config.yaml")
    for (kind, _), one in found.items():
        true(one["metadata"]["labels"]["team"] == "a" and one["metadata"]["annotations"]["note"] == "b", f"global of {kind}")
    equal(found["RuntimeClass", "nvidia"]["metadata"]["annotations"]["helm.sh/resource-policy"], "keep", "at uninstall")


@test
def service():
    """the monitor's service has HAMi's port on each node, for that node's metrics"""
    one = helm.objects()["Service", "vgpu-device-plugin-monitor"]["spec"]
    equal((one["type"], one["externalTrafficPolicy"], one["ports"]),
          ("NodePort", "Local", [{"name": "monitorport", "port": 31992, "targetPort": "metrics", "nodePort": 31992}]), "it")
    one = helm.objects({"devicePlugin": {"service": {"type": "ClusterIP"}}})["Service", "vgpu-device-plugin-monitor"]["spec"]
    true("externalTrafficPolicy" not in one and "nodePort" not in one["ports"][0], f"as ClusterIP: {one}")


@test
def optional():
    """a ServiceMonitor, a ConfigMap of the user's and a whole device configuration of the user's"""
    found = helm.objects({"prometheus": {"enabled": True}, "device-config": {"content": "nvidia:\n  deviceSplitCount: 3\n"},
                          "devicePlugin": {"nodeConfiguration": {"externalConfigName": "mine"}}})
    monitor = found["ServiceMonitor", "vgpu-device-plugin-monitor"]["spec"]
    labels = found["Service", "vgpu-device-plugin-monitor"]["metadata"]["labels"]
    true(monitor["selector"]["matchLabels"].items() <= labels.items() and monitor["endpoints"][0]["honorLabels"], "it selects")
    equal(found["ConfigMap", "vgpu-scheduler-device"]["data"]["device-config.yaml"], "nvidia:\n  deviceSplitCount: 3\n", "content")
    true(("ConfigMap", "vgpu-device-plugin") not in found, "no second ConfigMap")
    maps = [volume["configMap"]["name"] for volume in daemonset(found)["spec"]["template"]["spec"]["volumes"] if "configMap" in volume]
    equal(maps, ["vgpu-scheduler-device", "mine"], "ConfigMaps")
    equal({kind for kind, _ in helm.objects({"devicePlugin": {"enabled": False}})}, {"ConfigMap"}, "without the plugin")


@test
def restarted():
    """a change of either configuration restarts the plugin, and nothing else does"""
    def sums(values):
        return daemonset(helm.objects(values))["spec"]["template"]["metadata"]["annotations"]
    first = sums({})
    true(sums({"devicePlugin": {"deviceSplitCount": 3}}) != first, "the device configuration")
    true(sums({"devicePlugin": {"nodeConfiguration": {"config": "{}"}}}) != first, "the node configuration")
    equal(sums({"devicePlugin": {"service": {"httpPort": 31000}}}), first, "the service's port")


@test
def hami():
    """values of HAMi's chart are taken, and those without effect are named"""
    parts = containers(helm.objects(HAMI))
    equal([one["image"] for one in parts.values()], ["mine/vgpu:1", "mine/vgpu:1"], "images")
    true("--nvidia-driver-root=/" in parts["device-plugin"]["command"], "auto")
    parts = containers(helm.objects(OLD))
    equal([(one["image"], one["imagePullPolicy"]) for one in parts.values()], [("mine/vgpu:0.1.0", "Always")] * 2, "an old chart's")
    done = helm.run("install", "x", helm.CHART, "--dry-run=client", values=[HAMI])
    (line,) = re.findall(r"^Without effect here: (.*)\.$", done.stdout, re.MULTILINE)
    for name in ("podSecurityPolicy", "mockDevicePlugin", "devicePlugin.gpuOperatorToolkitReady", "scheduler.kubeScheduler",
                 "scheduler.replicas", "devices.kunlun"):
        true(name in line.split(", "), f"{name} in: {line}")
    done = helm.run("install", "x", helm.CHART, "--dry-run=client")
    true(done.returncode == 0 and "Without effect" not in done.stdout, "without values")


@test
def refused():
    """what cannot be followed ends with a line that says what is accepted"""
    for values, words in (({"devicePlugin": {"libPath": "/opt/vgpu"}}, "only /usr/local/vgpu is accepted"),
                          ({"devicePlugin": {"monitor": {"ctrPath": "/x"}}}, "only /usr/local/vgpu/containers is accepted"),
                          ({"global": {"gpuHookPath": "usr"}}, "an absolute path is accepted"),
                          ({"devicePlugin": {"migStrategy": "single"}}, "none or mixed is accepted"),
                          ({"devicePlugin": {"createRuntimeClass": True}}, "needs devicePlugin.runtimeClassName"),
                          ({"devicePlugin": {"image": {"repository": "projecthami/hami"}}}, "vgpu's own image is accepted"),
                          ({"devicePlugin": {"monitor": {"image": {"repository": "projecthami/hami"}}}}, "vgpu's own image")):
        done = helm.run("template", "x", helm.CHART, values=[values])
        true(done.returncode and words in done.stderr, f"{values}: {done.stderr}")


@test
def names():
    """names are HAMi's: the release, and what it is; long ones are cut to what Kubernetes takes"""
    for release, values, name in (("vgpu", {}, "vgpu-device-plugin"), ("gpus", {}, "gpus-vgpu-device-plugin"),
                                  ("hami", {"fullnameOverride": "hami"}, "hami-device-plugin"),
                                  ("x", {"nameOverride": "y"}, "x-y-device-plugin"), ("r" * 53, {}, "r" * 40 + "-device-plugin")):
        found = helm.objects(values, release=release)
        true(("DaemonSet", name) in found, f"{release}: {sorted(found)}")
        for (_, own), one in found.items():
            labels = one["metadata"]["labels"].values()
            true(len(own) <= 63 and all(len(label) <= 63 for label in labels), f"{own} is long")


@test
def version():
    """its version is vgpu's"""
    with open(os.path.join(helm.ROOT, "meson.build"), encoding="utf-8") as file:
        wanted = re.search(r"version: '([0-9.]+)'", file.read())[1]
    with open(os.path.join(helm.CHART, "Chart.yaml"), encoding="utf-8") as file:
        chart = helm.load(file.read())[0]
    equal((chart["version"], chart["appVersion"]), (wanted, wanted), "Chart.yaml")


@test
def documented():
    """its README names every value that it has"""
    with open(os.path.join(helm.CHART, "README.md"), encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(helm.CHART, "values.yaml"), encoding="utf-8") as file:
        values = helm.load(file.read())[0]

    def walk(prefix, value):
        for key, inner in value.items():
            name = f"{prefix}{key}"
            if isinstance(inner, dict) and inner and f"`{name}`" not in text:
                walk(name + ".", inner)
            else:
                true(f"`{name}`" in text, f"README.md lacks {name}")
    walk("", values)


tap.main()
