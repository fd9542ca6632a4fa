# SPDX-License-Identifier: Apache-2.0
"""chart BUILD: deploy/chart as helm renders it: for several versions of Kubernetes and sets of values, against
Kubernetes' API, the daemons' own flags, and the manifest of the same DaemonSet in deploy/kubernetes."""
import concurrent.futures
import json
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
SCHEDULER, CERTGEN = (os.path.join(BUILD, "src/daemon", name) for name in ("vgpu-scheduler", "vgpu-certgen"))
DAEMONS = {"device-plugin": PLUGIN, "monitor": MONITOR, "vgpu-scheduler-extender": SCHEDULER, "certgen": CERTGEN}

# Every value with another than its default.
ALL = {
    "global": {"imageRegistry": "r.example:5000", "imagePullSecrets": ["one"], "imageTag": "9", "gpuHookPath": "/opt/x",
               "labels": {"team": "a"}, "annotations": {"note": "b"}},
    "namespaceOverride": "gpu", "resourceName": "example.com/gpu", "resourceMem": "example.com/mem",
    "resourceMemPercentage": "example.com/percent", "resourceCores": "example.com/cores",
    "resourcePriority": "example.com/priority",
    "schedulerName": "mine", "imagePullSecrets": [{"name": "old"}],
    "scheduler": {
        "overwriteEnv": "true",
        "defaultSchedulerPolicy": {"gpuSchedulerPolicy": "topology-aware", "nodeSchedulerPolicy": "spread"},
        "extender": {"image": {"repository": "c/vgpu", "tag": "6", "pullSecrets": ["three"]}, "extraArgs": ["--debug", "-v=4"],
                     "resources": {"limits": {"memory": "1Mi"}}},
        "kubeScheduler": {"image": {"registry": "", "repository": "d/kube-scheduler", "pullPolicy": "Never", "pullSecrets": ["four"]},
                          "imageTag": "v1.30.4", "resources": {"limits": {"memory": "1Mi"}}, "extraNewArgs": ["--config=/config/config.yaml", "-v=4"],
                          "extraArgs": ["--policy-config-file=/config/config.json", "-v=5"]},
        "defaultMem": 5000, "defaultCores": 10, "defaultGPUNum": 2, "forceOverwriteDefaultScheduler": False,
        "nodeLabelSelector": {"pool": "gpu", "gpu": "on"}, "nodeLockExpire": "2m", "nodeLockRetryTimeout": "5s", "extenderHTTPTimeout": 7,
        "compatFilterPatch": True, "filterAllNodes": "true", "metricsBindAddress": ":9999", "replicas": 2,
        "networkPolicy": {"enabled": True, "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        "podDisruptionBudget": {"maxUnavailable": 1}, "strategy": {"type": "Recreate"}, "livenessProbe": False,
        "nodeName": "n", "nodeSelector": {"role": "control"}, "tolerations": [{"operator": "Exists"}], "priorityClassName": "",
        "podAnnotations": {"q": 4}, "podSecurityContext": {"runAsUser": 9}, "securityContext": {"runAsUser": 7},
        "admissionWebhook": {
            "failurePolicy": "Ignore", "reinvocationPolicy": "IfNeeded", "timeoutSeconds": 3,
            "customURL": {"enabled": True, "host": "10.1.2.3", "port": 32000, "path": "/own"}, "whitelistNamespaces": ["infra"],
            "namespaceSelector": {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "e", "operator": "Exists"}]},
            "objectSelector": {"matchLabels": {"team": "b"}, "matchExpressions": [{"key": "f", "operator": "Exists"}]},
            "ownedKeys": {"failurePolicy": "Fail", "owners": ["system:serviceaccount:kube-system:hami-scheduler"]}},
        "patch": {"image": {"repository": "e/vgpu", "tag": "5"}, "priorityClassName": "high", "podAnnotations": {"r": "5"},
                  "nodeSelector": {"role": "any"}, "tolerations": [{"operator": "Exists"}], "runAsUser": 8},
        "service": {"type": "NodePort", "httpPort": 444, "httpTargetPort": 10443, "schedulerPort": 31000, "monitorPort": 31001,
                    "labels": {"m": "1"}, "annotations": {"n": "2"}}},
    "devicePlugin": {
        "requireProof": False, "image": {"repository": "a/vgpu", "pullPolicy": "Always", "pullSecrets": ["two", "one"]},
        "monitor": {"image": {"repository": "b/monitor", "tag": "7"}, "resyncInterval": "7m", "extraArgs": ["-v=4", "--verbose"],
                    "extraEnvs": {"A": 1}, "resources": {}},
        "deviceSplitCount": 7, "deviceMemoryScaling": 1.5, "deviceCoreScaling": 2, "enableNumaTopology": True,
        "preConfiguredDeviceMemory": 131072, "nodeConfiguration": {"config": '{"nodeconfig": [{"name": "n", "devicesplitcount": 3}]}'},
        "runtimeClassName": "nvidia", "createRuntimeClass": True, "migStrategy": "mixed", "disablecorelimit": "true",
        "passDeviceSpecsEnabled": "true", "deviceListStrategy": "volume-mounts", "registerFormat": "csv", "ignoreDisableControl": True,
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
OLD = {"version": "v2.4.1", "imagePullSecrets": ["s"], "iluvatarResourceName": "x", "dcuResourceName": "y",
       "scheduler": {"defaultMem": 100, "defaultCores": 5, "defaultGPUNum": 1,
                     "kubeScheduler": {"image": "r.example/kube-scheduler", "imageTag": "v1.24.3", "imagePullPolicy": "Always"},
                     "extender": {"image": "mine/scheduler", "imagePullPolicy": "Never", "extraArgs": ["--debug", "-v=4"]},
                     "patch": {"image": "mine/certgen", "imageNew": "x", "imagePullPolicy": "Never"},
                     "service": {"type": "NodePort", "httpPort": 443, "schedulerPort": 31998, "monitorPort": 31993}},
       "devicePlugin": {"image": "mine/vgpu", "monitorimage": "mine/monitor", "monitorctrPath": "/usr/local/vgpu/containers",
                        "imagePullPolicy": "Always", "migStrategy": "none", "nvidianodeSelector": {"gpu": "off"},
                        "vgpuMonitor": {"resources": {}}, "service": {"schedulerPort": 31998, "httpPort": 31992}}}
SETS = {"cert-manager": {"scheduler": {"certManager": {"enabled": True}}},
        "no scheduler": {"scheduler": {"enabled": False}}, "no webhook": {"scheduler": {"admissionWebhook": {"enabled": False}}},
        "no proof": {"scheduler": {"proof": {"enabled": False}}}, "own proof": {"scheduler": {"proof": {"secretName": "own"}}},
        "no jobs": {"scheduler": {"patch": {"enabled": False}, "proof": {"secretName": "own"}, "certManager": {"enabled": True}}},
        "another's kube-scheduler": {"scheduler": {"kubeScheduler": {"enabled": False}}},
        "no election": {"scheduler": {"leaderElect": False}}, "no values": {}, "all values": ALL, "HAMi's values": HAMI, "an old chart's values": OLD,
        "no device plugin": {"devicePlugin": {"enabled": False}}, "a ClusterIP": {"devicePlugin": {"service": {"type": "ClusterIP"}}}}


def daemonset(found):
    (one,) = [value for (kind, _), value in found.items() if kind == "DaemonSet"]
    return one


def containers(found):
    return {one["name"]: one for one in daemonset(found)["spec"]["template"]["spec"]["containers"]}


def running(found):
    """Every container of vgpu's: [(name, container, its Pod's specification)]"""
    for (kind, _), one in found.items():
        if kind in ("DaemonSet", "Deployment", "Job"):
            pod = one["spec"]["template"]["spec"]
            yield from ((part["name"], part, pod) for part in pod["containers"])


def extender(found):
    return next(part for name, part, _ in running(found) if name == "vgpu-scheduler-extender")


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
                    # Of cert-manager's kinds nothing is known here.
                    parts = helm.template(values, version=version).split("\n---\n")
                    file.write("\n---\n".join(part for part in parts if "apiVersion: cert-manager.io/" not in part))
            found = helm.objects(ALL, version=version)
            api[version] = found["RuntimeClass", "nvidia"]["apiVersion"]
        done = subprocess.run([CHECK, *files], env=MINE, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 77:
            raise Skip(done.stderr.strip())
        equal((done.returncode, done.stderr), (0, ""), "scripts/check-yaml")
    equal([api["1.19.16"], api["1.20.15"]], ["node.k8s.io/v1beta1", "node.k8s.io/v1"], "RuntimeClass")


@test
def current():
    """and of the newest one as its JSON schemas have it"""
    if "VGPU_TEST_NPM" not in os.environ:
        raise Skip("fetches the schemas from npm: set VGPU_TEST_NPM, with npm installed")
    with tempfile.TemporaryDirectory() as directory:
        files = []
        for number, values in enumerate(SETS.values()):
            files.append(os.path.join(directory, f"{number}.yaml"))
            with open(files[-1], "w", encoding="utf-8") as file:
                parts = helm.template(values, version=VERSIONS[-1]).split("\n---\n")
                file.write("\n---\n".join(part for part in parts if "apiVersion: cert-manager.io/" not in part))
        done = subprocess.run([CHECK, "--schema", *files], env=MINE, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 77:
            raise Skip(done.stderr.strip())
        equal((done.returncode, done.stderr), (0, ""), "scripts/check-yaml --schema")


@test
def too_old():
    """a Kubernetes below 1.18 is refused"""
    done = helm.run("template", "x", helm.CHART, "--kube-version", "1.17.0")
    true(done.returncode and "kubeVersion" in done.stderr, done.stderr)


@test
def flags():
    """the programs know every flag that it gives them"""
    seen, usages = set(), {}
    for name, program in DAEMONS.items():
        usages[name] = subprocess.run([program, "--help"], env=MINE, capture_output=True, text=True, check=True).stdout
    for values in SETS.values():
        for name, container, _ in running(helm.objects(values)):
            if name == "kube-scheduler":
                continue
            equal(container["command"][0], os.path.basename(DAEMONS[name]), "the program")
            for word in container["command"][1:]:
                flag = word.partition("=")[0]
                true(re.search(rf"^  {re.escape(flag)}\s", usages[name], re.MULTILINE), f"{name}: {word}")
                seen.add((name, flag))
    true({("device-plugin", "--gds-enabled"), ("monitor", "--legacy-metrics"), ("certgen", "--proof-secret-name"),
          ("vgpu-scheduler-extender", "--node-label-selector")} <= seen, f"flags: {seen}")


def placed(word, directory):
    for path in ("/device-config/", "/config/", "/proof/"):
        word = word.replace(f"={path}", f"={directory}/")
    return word


@test
def taken():
    """the daemons take the commands and the files that it gives them without a word about a setting"""
    for name, values in SETS.items():
        with tempfile.TemporaryDirectory() as directory:
            found = helm.objects(values)
            for config in of_kind(found, "ConfigMap").values():
                for file_name, text in config["data"].items():
                    with open(os.path.join(directory, file_name), "w", encoding="utf-8") as file:
                        file.write(text)
            with open(os.path.join(directory, "key"), "w", encoding="ascii") as file:
                file.write("k" * 32)
            for own, container, _ in running(found):
                if own == "kube-scheduler":
                    continue
                command = [DAEMONS[own], *(placed(word, directory) for word in container["command"][1:])]
                if own in ("device-plugin", "monitor"):
                    command += ["--node-name=n", f"--hook-path={directory}"]
                # It ends at the kubeconfig, which it reads after its settings.
                done = subprocess.run(command, env={**MINE, "KUBECONFIG": directory + "/none", "POD_NAME": "p",
                                                    "POD_NAMESPACE": "s"},
                                      capture_output=True, text=True, timeout=60, check=False)
                true(done.returncode == 1 and "/none" in done.stderr, f"{name}: {command}: {done.stderr}")
                equal(len(done.stderr.splitlines()), 1, f"{name}: {done.stderr}")


@test
def consistent():
    """it runs the daemons as deploy/kubernetes/node.yaml does"""
    with open(os.path.join(helm.ROOT, "deploy/kubernetes/node.yaml"), encoding="utf-8") as file:
        manifest = {(one["kind"], one["metadata"]["name"]): one for one in helm.load(file.read())}
    chart = helm.objects({"scheduler": {"enabled": False}})
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
    outside = {"system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader"}
    for name, values in SETS.items():
        found = helm.objects(values, namespace="there")
        namespace = values.get("namespaceOverride", "there")
        for (kind, own), one in found.items():
            inside = not kind.startswith("ClusterRole") and kind != "RuntimeClass" and "Webhook" not in kind
            wanted = "kube-system" if own.endswith("-auth") else namespace
            equal(one["metadata"].get("namespace"), wanted if inside else None, f"{name}: namespace of {kind}")
        for kind in ("ClusterRole", "Role"):
            for binding in of_kind(found, kind + "Binding").values():
                role = binding["roleRef"]["name"]
                true(role in of_kind(found, binding["roleRef"]["kind"]) or role in outside, f"{name}: role {role}")
                for subject in binding["subjects"]:
                    true(subject["name"] in of_kind(found, "ServiceAccount") and subject["namespace"] == namespace, name)
        pods = [one["spec"]["template"] for (kind, _), one in found.items() if kind in ("DaemonSet", "Deployment", "Job")]
        for service in of_kind(found, "Service").values():
            (pod,) = [one for one in pods if service["spec"]["selector"].items() <= one["metadata"]["labels"].items()]
            ports = {port["name"] for part in pod["spec"]["containers"] for port in part.get("ports", [])}
            true({port["targetPort"] for port in service["spec"]["ports"]} <= ports, f"{name}: ports of {service['metadata']['name']}")
        secrets = {word.partition("=")[2] for own, part, _ in running(found) if own == "certgen" for word in part["command"]
                   if word.startswith(("--secret-name=", "--proof-secret-name="))} | {"own"}
        secrets |= {one["spec"]["secretName"] for one in of_kind(found, "Certificate").values()}
        for pod in (one["spec"] for one in pods):
            true(pod["serviceAccountName"] in of_kind(found, "ServiceAccount"), f"{name}: service account")
            volumes = pod.get("volumes", [])
            maps = {volume["configMap"]["name"] for volume in volumes if "configMap" in volume}
            true(maps <= set(of_kind(found, "ConfigMap")), f"{name}: {maps}")
            true({volume["secret"]["secretName"] for volume in volumes if "secret" in volume} <= secrets, f"{name}: {secrets}")
            mounted = {mount["name"] for part in pod["containers"] for mount in part.get("volumeMounts", [])}
            equal(mounted, {volume["name"] for volume in volumes}, f"{name}: volumes")


@test
def followed():
    """values get to where they belong"""
    found = helm.objects(ALL)
    pod = daemonset(found)["spec"]["template"]
    parts = containers(found)
    equal([one["image"] for one in parts.values()], ["r.example:5000/a/vgpu:9", "r.example:5000/b/monitor:7"], "images")
    equal([one["imagePullPolicy"] for one in parts.values()], ["Always", "Always"], "pull policies")
    equal(pod["spec"]["imagePullSecrets"], [{"name": "one"}, {"name": "old"}, {"name": "two"}], "pull secrets")
    equal([pod["spec"][key] for key in ("runtimeClassName", "hostPID", "hostNetwork", "nodeSelector")],
          ["nvidia", False, True, {"pool": "gpu"}], "the Pod")
    true("tolerations" not in pod["spec"] and "priorityClassName" not in pod["spec"], "what is empty is left out")
    command = parts["device-plugin"]["command"]
    for word in ("--resource-name=example.com/gpu", "--mig-strategy=mixed", "--disable-core-limit=true", "--verbose",
                 "--ignore-disable-control=true",
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
                   "resourcePriorityName": "example.com/priority", "overwriteEnv": True, "defaultMemory": 5000, "defaultCores": 10,
                   "defaultGPUNum": 2, "memoryFactor": 1, "deviceSplitCount": 7, "deviceMemoryScaling": 1.5,
                   "deviceCoreScaling": 2, "enableNumaTopology": True, "preConfiguredDeviceMemory": 131072,
                   "gpuCorePolicy": "force", "libCudaLogLevel": 3, "runtimeClassName": "nvidia"}, "device-config.yaml")
    for (kind, _), one in found.items():
        true(one["metadata"]["labels"]["team"] == "a" and one["metadata"]["annotations"]["note"] == "b", f"global of {kind}")
    true("--require-proof=false" in command, "requireProof")
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
                          "devicePlugin": {"nodeConfiguration": {"externalConfigName": "mine"}}, "scheduler": {"enabled": False}})
    monitor = found["ServiceMonitor", "vgpu-device-plugin-monitor"]["spec"]
    labels = found["Service", "vgpu-device-plugin-monitor"]["metadata"]["labels"]
    true(monitor["selector"]["matchLabels"].items() <= labels.items() and monitor["endpoints"][0]["honorLabels"], "it selects")
    equal(found["ConfigMap", "vgpu-scheduler-device"]["data"]["device-config.yaml"], "nvidia:\n  deviceSplitCount: 3\n", "content")
    true(("ConfigMap", "vgpu-device-plugin") not in found, "no second ConfigMap")
    maps = [volume["configMap"]["name"] for volume in daemonset(found)["spec"]["template"]["spec"]["volumes"] if "configMap" in volume]
    equal(maps, ["vgpu-scheduler-device", "mine"], "ConfigMaps")
    equal({kind for kind, _ in helm.objects({"devicePlugin": {"enabled": False}, "scheduler": {"enabled": False}})}, {"ConfigMap"},
          "without the plugin")


@test
def restarted():
    """a change of either configuration restarts the plugin, and nothing else does"""
    def sums(values):
        return daemonset(helm.objects(values))["spec"]["template"]["metadata"]["annotations"]
    first = sums({})
    true(sums({"devicePlugin": {"deviceSplitCount": 3}}) != first, "the device configuration")
    true(sums({"devicePlugin": {"nodeConfiguration": {"config": "{}"}}}) != first, "the node configuration")
    equal(sums({"devicePlugin": {"service": {"httpPort": 31000}}}), first, "the service's port")


def without_effect(values):
    done = helm.run("install", "x", helm.CHART, "--dry-run=client", values=[values])
    equal(done.returncode, 0, done.stderr)
    found = re.findall(r"^Without effect here: (.*)\.$", done.stdout, re.MULTILINE)
    return set(found[0].split(", ")) if found else set()


@test
def hami():
    """values of HAMi's chart are taken, and those without effect are named"""
    parts = containers(helm.objects(HAMI))
    equal([one["image"] for one in parts.values()], ["mine/vgpu:1", "mine/vgpu:1"], "images")
    true("--nvidia-driver-root=/" in parts["device-plugin"]["command"], "auto")
    found = helm.objects(HAMI)
    images = {name: part["image"] for name, part, _ in running(found)}
    equal((images["kube-scheduler"], images["vgpu-scheduler-extender"]), ("registry.k8s.io/kube-scheduler:v1.29.0", "mine/vgpu:1"))
    equal(found["Deployment", "vgpu-scheduler"]["spec"]["replicas"], 2, "replicas")
    equal(without_effect(HAMI), {"podSecurityPolicy", "mockDevicePlugin", "devicePlugin.gpuOperatorToolkitReady",
                                 "devicePlugin.nvidiaHookPath", "devices.kunlun"}, "without effect")
    equal(without_effect({}), set(), "without values")


@test
def old():
    """so are those of older charts, with images as texts and a tag beside them"""
    found = helm.objects(OLD)
    told = {name: (part["image"], part["imagePullPolicy"]) for name, part, _ in running(found)}
    equal(told, {"device-plugin": ("mine/vgpu:0.1.0", "Always"), "monitor": ("mine/monitor:0.1.0", "Always"),
                 "kube-scheduler": ("r.example/kube-scheduler:v1.24.3", "Always"),
                 "vgpu-scheduler-extender": ("mine/scheduler:0.1.0", "Never"), "certgen": ("mine/certgen:0.1.0", "Never")})
    pod = daemonset(found)["spec"]["template"]["spec"]
    equal((pod["nodeSelector"], pod["imagePullSecrets"]), ({"gpu": "off"}, [{"name": "s"}]))
    config = helm.load(found["ConfigMap", "vgpu-scheduler-device"]["data"]["device-config.yaml"])[0]["nvidia"]
    equal((config["defaultMemory"], config["defaultCores"]), (100, 5), "defaults")
    equal(kube_config(found)["apiVersion"], "kubescheduler.config.k8s.io/v1beta2", "the configuration is of the tag's version")
    equal(without_effect(OLD), {"version", "dcuResourceName", "iluvatarResourceName", "scheduler.patch.imageNew",
                                "devicePlugin.vgpuMonitor", "devicePlugin.service.schedulerPort"}, "without effect")


@test
def unknown():
    """a value that it does not know is refused, wherever it stands, and so is one of another type"""
    for values, words in (({"nonsense": 1}, "nonsense"), ({"scheduler": {"kubescheduler": {}}}, "kubescheduler"),
                          ({"devicePlugin": {"deviceSplitcount": 1}}, "deviceSplitcount"), ({"global": {"x": 1}}, "'x'"),
                          ({"scheduler": {"admissionWebhook": {"ownedKeys": {"owner": []}}}}, "owner"),
                          ({"devicePlugin": {"monitor": {"image": {"name": "x"}}}}, "name"), ({"devices": {"nvidia": {"x": 1}}}, "'x'"),
                          ({"scheduler": {"leaderElect": "false"}}, "leaderElect"), ({"scheduler": {"replicas": 0}}, "replicas"),
                          ({"scheduler": {"admissionWebhook": {"failurePolicy": "fail"}}}, "failurePolicy"),
                          ({"scheduler": {"defaultSchedulerPolicy": {"nodeSchedulerPolicy": "x"}}}, "nodeSchedulerPolicy"),
                          ({"devicePlugin": {"deviceSplitCount": "many"}}, "deviceSplitCount")):
        done = helm.run("template", "x", helm.CHART, values=[values])
        true(done.returncode and words in done.stderr, f"{values}: {done.stderr}")


@test
def refused():
    """what cannot be followed ends with a line that says what is accepted"""
    for values, words in (({"devicePlugin": {"libPath": "/opt/vgpu"}}, "only /usr/local/vgpu is accepted"),
                          ({"devicePlugin": {"monitor": {"ctrPath": "/x"}}}, "only /usr/local/vgpu/containers is accepted"),
                          ({"global": {"gpuHookPath": "usr"}}, "an absolute path is accepted"),
                          ({"devicePlugin": {"migStrategy": "single"}}, "migStrategy"),
                          ({"devicePlugin": {"monitorctrPath": "/x"}}, "only /usr/local/vgpu/containers is accepted"),
                          ({"scheduler": {"extender": {"image": "projecthami/hami"}}}, "vgpu's own image is accepted"),
                          ({"scheduler": {"patch": {"image": {"repository": "jettech/kube-webhook-certgen"}}}}, "vgpu's own image"),
                          ({"scheduler": {"patch": {"enabled": False}}}, "patch.enabled or scheduler.certManager.enabled"),
                          ({"scheduler": {"patch": {"enabled": False}, "certManager": {"enabled": True}}}, "scheduler.proof.secretName"),
                          ({"scheduler": {"replicas": 2, "leaderElect": False}}, "1 is accepted without scheduler.leaderElect"),
                          ({"scheduler": {"replicas": 2, "kubeScheduler": {"enabled": False}}}, "1 is accepted without"),
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


def kube_config(found):
    """What kube-scheduler reads, as a value."""
    (text,) = of_kind(found, "ConfigMap")["vgpu-scheduler"]["data"].values()
    return helm.load(text)[0]


@test
def kube_scheduler():
    """kube-scheduler's configuration is of its version: a Policy below 1.22, v1beta2 below 1.26, then v1"""
    names = ["nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority"]
    resources = sorted(({"name": name, "ignoredByScheduler": True} for name in names), key=str)
    for version, api in (("1.18.20", None), ("1.21.14", None), ("1.22.17", "v1beta2"), ("1.25.16", "v1beta2"), ("1.26.15", "v1"), ("1.35.2", "v1")):
        found = helm.objects(version=version, namespace="n")
        config = kube_config(found)
        command = next(part["command"] for name, part, _ in running(found) if name == "kube-scheduler")
        (one,) = config["extenders"]
        wanted = {"urlPrefix": "https://127.0.0.1:9444", "filterVerb": "filter", "bindVerb": "bind", "weight": 1,
                  "nodeCacheCapable": True, "ignorable": False, "tlsConfig": {"insecure": True}}
        equal({key: one[key] for key in wanted}, wanted, version)
        equal(sorted(one["managedResources"], key=str), resources, version)
        if api:
            equal((config["apiVersion"], config["kind"]), (f"kubescheduler.config.k8s.io/{api}", "KubeSchedulerConfiguration"), version)
            equal((one["httpTimeout"], one["enableHTTPS"]), ("30s", True), version)
            equal(config["profiles"], [{"schedulerName": "vgpu-scheduler"}], version)
            equal(config["leaderElection"], {"leaderElect": True, "resourceLock": "leases", "resourceName": "vgpu-scheduler",
                                             "resourceNamespace": "n"}, version)
            equal(command, ["kube-scheduler", "--config=/config/config.yaml"], version)
        else:
            equal((config["kind"], one["httpTimeout"], one["enableHttps"]), ("Policy", 30 * 10**9, True), version)
            equal(set(command), {"kube-scheduler", "--policy-config-file=/config/config.json", "--scheduler-name=vgpu-scheduler",
                                 "--leader-elect=true", "--leader-elect-resource-lock=leases",
                                 "--leader-elect-resource-name=vgpu-scheduler", "--leader-elect-resource-namespace=n"}, version)
    found = helm.objects(ALL, version="1.20.1")  # its image has a tag, of 1.30
    equal(kube_config_of(found, "vgpu-scheduler")["apiVersion"], "kubescheduler.config.k8s.io/v1", "of the image")
    images = [helm.objects(version=version) for version in ("v1.31.1+k3s1", "v1.30.8-eks-2d5")]
    equal([next(part["image"] for name, part, _ in running(one) if name == "kube-scheduler") for one in images],
          ["registry.k8s.io/kube-scheduler:v1.31.1", "registry.k8s.io/kube-scheduler:v1.30.8"], "of the cluster")


def kube_config_of(found, name):
    return helm.load("".join(of_kind(found, "ConfigMap")[name]["data"].values()))[0]


@test
def scheduled():
    """values of the scheduler get to where they belong"""
    found = helm.objects(ALL)
    spec = found["Deployment", "vgpu-scheduler"]["spec"]
    pod = spec["template"]["spec"]
    parts = {part["name"]: part for part in pod["containers"]}
    equal([parts[name]["image"] for name in ("kube-scheduler", "vgpu-scheduler-extender")],
          ["r.example:5000/d/kube-scheduler:v1.30.4", "r.example:5000/c/vgpu:6"], "images")
    equal([parts[name]["imagePullPolicy"] for name in ("kube-scheduler", "vgpu-scheduler-extender")], ["Never", "Always"], "pull policies")
    equal([one["name"] for one in pod["imagePullSecrets"]], ["one", "old", "four", "three", "two"], "pull secrets")
    equal((spec["replicas"], spec["strategy"], pod["nodeName"], pod["nodeSelector"], pod["tolerations"]),
          (2, {"type": "Recreate"}, "n", {"role": "control"}, [{"operator": "Exists"}]), "the Deployment")
    true("priorityClassName" not in pod and pod["securityContext"]["runAsUser"] == 9 and spec["template"]["metadata"]["annotations"]["q"] == "4", pod)
    command = parts["vgpu-scheduler-extender"]["command"]
    for word in ("--http_bind=:10443", "--extender-bind=127.0.0.1:10444", "--metrics-bind-address=:9999", "--scheduler-name=mine", "--node-scheduler-policy=spread",
                 "--gpu-scheduler-policy=topology-aware", "--force-overwrite-default-scheduler=false", "--legacy-metrics=true",
                 "--compat-filter-patch=true", "--filter-all-nodes=true", "--node-lock-timeout=2m", "--node-lock-retry-timeout=5s", "--node-label-selector=gpu=on,pool=gpu",
                 "--leader-elect=true", "--leader-elect-resource-name=mine", "--proof-key-file=/proof/key", "--debug",
                 "--owners=system:serviceaccount:gpu:vgpu-scheduler,system:serviceaccount:gpu:vgpu-device-plugin,"
                 "system:serviceaccount:kube-system:hami-scheduler"):
        true(word in command, f"{word} in {command}")
    true("-v=4" not in command and "-v=4" in parts["kube-scheduler"]["command"], "klog's flag")
    equal(parts["kube-scheduler"]["command"].count("--config=/config/config.yaml"), 1, "the configuration")
    true(all("livenessProbe" not in part and part["securityContext"]["runAsUser"] == 7
             and part["resources"]["limits"]["memory"] == "1Mi" for part in parts.values()), "probes and rights")
    equal(kube_config_of(found, "vgpu-scheduler")["extenders"][0]["httpTimeout"], "7s", "extenderHTTPTimeout")
    budget = found["PodDisruptionBudget", "vgpu-scheduler"]["spec"]
    equal((budget["maxUnavailable"], "minAvailable" in budget), (1, False), "podDisruptionBudget")
    policy = found["NetworkPolicy", "vgpu-scheduler"]["spec"]
    true(policy["podSelector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items(), "networkPolicy's Pods")
    equal((policy["policyTypes"], [(rule["ports"], rule.get("from")) for rule in policy["ingress"]]),
          (["Ingress"], [([{"protocol": "TCP", "port": "https"}], [{"ipBlock": {"cidr": "10.0.0.0/8"}}]),
                         ([{"protocol": "TCP", "port": "metrics"}], None)]), "networkPolicy")
    true({"https", "metrics"} <= {port["name"] for part in parts.values() for port in part.get("ports", [])}, "its ports")
    service = found["Service", "vgpu-scheduler"]
    equal([[(port["port"], port["nodePort"]) for port in one["spec"]["ports"]] for one in
           (service, found["Service", "vgpu-scheduler-metrics"])], [[(444, 31000)], [(31001, 31001)]], "ports")
    true(service["metadata"]["labels"]["m"] == "1" and service["metadata"]["annotations"]["n"] == "2", "the service")
    for when in ("before", "after"):
        job = found["Job", f"vgpu-admission-{when}"]["spec"]["template"]
        one = job["spec"]["containers"][0]
        equal((one["image"], job["spec"]["priorityClassName"], job["spec"]["nodeSelector"], job["metadata"]["annotations"]["r"],
               job["spec"]["securityContext"]["runAsUser"], len(job["spec"]["tolerations"])),
              ("r.example:5000/e/vgpu:5", "high", {"role": "any"}, "5", 8, 1), "the jobs")


@test
def webhooks():
    """the webhooks have HAMi's selectors and paths, the values' policies, and serve those alone that they are for"""
    found = helm.objects(version="1.27.1", namespace="n")
    mutating, validating = (found[kind, "vgpu-webhook"]["webhooks"][0] for kind in
                            ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"))
    ignore = {"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}
    equal(mutating["namespaceSelector"], {"matchExpressions": [ignore]}, "namespaces")
    equal(mutating["objectSelector"], {"matchExpressions": [ignore]}, "objects")
    equal(mutating["rules"], [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}])
    true("namespaceSelector" not in validating and "objectSelector" not in validating, "no label exempts from the second")
    equal({(resource, operation) for rule in validating["rules"] for resource in rule["resources"] for operation in rule["operations"]},
          {(resource, operation) for resource in ("pods", "pods/status") for operation in ("CREATE", "UPDATE")}
          | {("pods/binding", "CREATE"), ("bindings", "CREATE")}, "what it sees")
    for one, path in ((mutating, "/webhook"), (validating, "/validate")):
        equal(one["clientConfig"], {"service": {"name": "vgpu-scheduler", "namespace": "n", "path": path, "port": 443}}, path)
        equal((one["failurePolicy"], one["sideEffects"], one["timeoutSeconds"], "matchConditions" in one), ("Ignore", "None", 10, False), path)
    found = helm.objects(version="1.28.0")
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (one,) = found[kind, "vgpu-webhook"]["webhooks"]
        true(one["failurePolicy"] == "Fail" and one["matchConditions"], f"{kind} from 1.28 on")
    for values in ({"scheduler": {"overwriteEnv": True}}, {"devices": {"nvidia": {"gpuCorePolicy": "force"}}}, {"device-config": {"content": "nvidia: {}"}}):
        (one,) = helm.objects(values, version="1.28.0")["MutatingWebhookConfiguration", "vgpu-webhook"]["webhooks"]
        true("matchConditions" not in one, f"it changes all Pods with {values}")
        equal(one["failurePolicy"], "Ignore", f"nobody waits for it with {values}")
    found = helm.objects(ALL, version="1.30.0")
    mutating, validating = (found[kind, "vgpu-webhook"]["webhooks"][0] for kind in
                            ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"))
    equal([mutating["failurePolicy"], validating["failurePolicy"], mutating["reinvocationPolicy"], mutating["timeoutSeconds"]],
          ["Ignore", "Fail", "IfNeeded", 3], "policies")
    equal([one["clientConfig"] for one in (mutating, validating)],
          [{"url": "https://10.1.2.3:32000/own"}, {"url": "https://10.1.2.3:32000/validate"}], "an address")
    equal(mutating["namespaceSelector"], {"matchLabels": {"team": "a"}, "matchExpressions": [
        ignore, {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["infra"]}, {"key": "e", "operator": "Exists"}]})
    equal(mutating["objectSelector"], {"matchLabels": {"team": "b"}, "matchExpressions": [ignore, {"key": "f", "operator": "Exists"}]})
    (one,) = helm.objects({"scheduler": {"admissionWebhook": {"manageNamespaceSelector": False}}})["MutatingWebhookConfiguration", "vgpu-webhook"]["webhooks"]
    true("namespaceSelector" not in one, "somebody else's selector")
    with open(os.path.join(helm.ROOT, "src/admission/owned_keys.c"), encoding="utf-8") as file:
        keys = re.findall(r'^    "([a-z./-]+)",$', file.read(), re.MULTILINE)
    (pattern,) = set(re.findall(r"k[.]matches[(]'([^']+)'[)]", validating["matchConditions"][1]["expression"]))
    true(len(keys) > 3 and all(re.match(pattern, key + "x") and not re.match(pattern, "x" + key) for key in keys), f"{keys} in {pattern}")
    true(not re.match(pattern, "hami.io/node-handshake") and not re.match(pattern, "hamixio/vgpu-node"), "others")


@test
def certificates():
    """certificate and proof key are made by jobs with the rights for that, or by cert-manager"""
    found = helm.objects(namespace="n")
    names = "--names=vgpu-scheduler,vgpu-scheduler.n,vgpu-scheduler.n.svc"
    for when, hooks, missing in (("before", "pre-install,pre-upgrade", "true"), ("after", "post-install,post-upgrade", "false")):
        job = found["Job", f"vgpu-admission-{when}"]
        notes = job["metadata"]["annotations"]
        equal((notes["helm.sh/hook"], notes["helm.sh/hook-weight"]), (hooks, "0"), when)
        pod = job["spec"]["template"]
        equal(pod["spec"]["containers"][0]["command"],
              ["vgpu-certgen", "--namespace=n", "--secret-name=vgpu-scheduler-tls", names, "--mutating-webhook=vgpu-webhook",
               "--validating-webhook=vgpu-webhook", "--proof-secret-name=vgpu-scheduler-proof", f"--webhooks-may-be-missing={missing}"], when)
        equal(pod["metadata"]["labels"]["hami.io/webhook"], "ignore", "its own webhook")
    for (kind, name), one in found.items():
        hook = one["metadata"].get("annotations", {}).get("helm.sh/hook")
        equal(bool(hook), name.startswith("vgpu-admission"), f"hook of {kind} {name}")
        true(not hook or "delete" not in hook and "rollback" not in hook, f"{name}: nothing is done when it goes")
        if hook and kind != "Job":
            equal((hook, one["metadata"]["annotations"]["helm.sh/hook-weight"]), ("pre-install,pre-upgrade,post-install,post-upgrade", "-5"), kind)
    equal(found["Role", "vgpu-admission"]["rules"],
          [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
           {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["vgpu-scheduler-tls", "vgpu-scheduler-proof"], "verbs": ["get", "update"]}])
    found = helm.objects({"scheduler": {"certManager": {"enabled": True}}}, namespace="n")
    one = found["Certificate", "vgpu-scheduler-serving-cert"]["spec"]
    equal((one["dnsNames"], one["secretName"], one["issuerRef"]["name"] == found["Issuer", "vgpu-scheduler-selfsigned"]["metadata"]["name"]),
          (names.partition("=")[2].split(","), "vgpu-scheduler-tls", True), "the Certificate")
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        equal(found[kind, "vgpu-webhook"]["metadata"]["annotations"]["cert-manager.io/inject-ca-from"], "n/vgpu-scheduler-serving-cert", kind)
    equal(found["Job", "vgpu-admission-after"]["spec"]["template"]["spec"]["containers"][0]["command"],
          ["vgpu-certgen", "--namespace=n", "--proof-secret-name=vgpu-scheduler-proof"], "the jobs make the key alone")
    true(("ClusterRole", "vgpu-admission") not in found, "no right to webhooks")
    equal(found["Role", "vgpu-admission"]["rules"][1]["resourceNames"], ["vgpu-scheduler-proof"], "one Secret")
    found = helm.objects(SETS["no jobs"])
    true(not any("admission" in name for _, name in found), "without jobs")


@test
def elected():
    """with a Lease a standby is ready too; without one there is one Pod, which is ready when it would answer rightly"""
    found = helm.objects()
    spec = found["Deployment", "vgpu-scheduler"]["spec"]
    equal(extender(found)["readinessProbe"]["httpGet"], {"path": "/healthz", "port": "https", "scheme": "HTTPS"}, "a standby")
    true("strategy" not in spec and ("PodDisruptionBudget", "vgpu-scheduler") not in found, "one replica by default")
    for name in ("no election", "another's kube-scheduler"):
        found = helm.objects(SETS[name])
        spec = found["Deployment", "vgpu-scheduler"]["spec"]
        equal((spec["replicas"], spec["strategy"], extender(found)["readinessProbe"]["httpGet"]["path"]), (1, {"type": "Recreate"}, "/readyz"), name)
        true(not any("leader" in word for word in extender(found)["command"]) and ("Role", "vgpu-scheduler") not in found, name)
    for version, api in (("1.20.1", "policy/v1beta1"), ("1.21.1", "policy/v1")):
        equal(helm.objects({"scheduler": {"replicas": 2}}, version=version)["PodDisruptionBudget", "vgpu-scheduler"]["apiVersion"], api, version)


@test
def ports():
    """metrics of the scheduler have HAMi's port on each node, and the webhook none by default"""
    found = helm.objects()
    equal([(one["name"], one["port"], one["targetPort"]) for one in found["Service", "vgpu-scheduler"]["spec"]["ports"]],
          [("http", 443, "https"), ("monitor", 31993, "metrics")], "ports")
    equal((found["Service", "vgpu-scheduler"]["spec"]["type"], found["Service", "vgpu-scheduler-metrics"]["spec"]["type"],
           found["Service", "vgpu-scheduler-metrics"]["spec"]["ports"]),
          ("ClusterIP", "NodePort", [{"name": "monitor", "port": 31993, "targetPort": "metrics", "nodePort": 31993}]), "services")
    found = helm.objects({"scheduler": {"service": {"monitorType": "ClusterIP"}}, "prometheus": {"enabled": True}})
    true(("Service", "vgpu-scheduler-metrics") not in found, "none of its own")
    for kind, name in (("ClusterIP", "vgpu-scheduler"), ("NodePort", "vgpu-scheduler-metrics"), ("LoadBalancer", "vgpu-scheduler")):
        found = helm.objects({"scheduler": {"service": {"type": kind}}, "prometheus": {"enabled": True}})
        (endpoint,), labels = (found["ServiceMonitor", "vgpu-scheduler"]["spec"][key] for key in ("endpoints", "selector"))
        matching = [one for one in of_kind(found, "Service").values() if labels["matchLabels"].items() <= one["metadata"]["labels"].items()]
        equal([one["metadata"]["name"] for one in matching], [name], f"what Prometheus reads with {kind}")
        true(endpoint["port"] in {port["name"] for port in matching[0]["spec"]["ports"]}, f"its port with {kind}")


@test
def harmless():
    """nothing that it makes does anything when it ends, or removes what running Pods use"""
    for values in SETS.values():
        for name, part, pod in running(helm.objects(values)):
            true("lifecycle" not in part and "initContainers" not in pod, f"{name} acts before or after")
            for volume in pod.get("volumes", []):
                true("hostPath" not in volume or name in ("device-plugin", "monitor"), f"{name} has {volume}")


# Another value of each kind, where any other text would not do.
OTHERS = {"scheduler.networkPolicy.from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
          "global.gpuHookPath": "/zz", "devicePlugin.nodeConfiguration.config": '{"nodeconfig": [{"name": "zz"}]}',
          "scheduler.metricsBindAddress": ":9998", "scheduler.service.monitorTargetPort": "https", "devicePlugin.migStrategy": "mixed",
          "scheduler.defaultSchedulerPolicy.nodeSchedulerPolicy": "spread", "devicePlugin.registerFormat": "csv",
          "devices.nvidia.gpuCorePolicy": "disable", "scheduler.service.type": "LoadBalancer", "scheduler.service.monitorType": "ClusterIP",
          "devicePlugin.service.type": "LoadBalancer", "scheduler.admissionWebhook.reinvocationPolicy": "IfNeeded"}
# Where a value has its effect.
PLACES = ({}, {"devicePlugin": {"runtimeClassName": "x"},
               "scheduler": {"replicas": 2, "networkPolicy": {"enabled": True}, "service": {"type": "NodePort"},
                             "admissionWebhook": {"customURL": {"enabled": True}}}})
PLACE_VERSIONS = ("1.30.0", "1.20.0")


# Another value would be refused, without further ones.
REFUSED = {"scheduler.patch.enabled", "scheduler.leaderElect", "scheduler.kubeScheduler.enabled", "devicePlugin.createRuntimeClass"}


def another(path, value):
    key = path.rpartition(".")[2]
    if path in OTHERS:
        return OTHERS[path]
    if isinstance(value, bool) or value in ("true", "false"):
        return str(value).lower() != "true"
    if isinstance(value, (int, float)):
        return value + 1
    if key in ("pullPolicy", "imagePullPolicy"):
        return "Never"
    if key == "failurePolicy":
        return "Ignore"
    if key == "tolerations" or key == "matchExpressions":
        return [{"key": "zz", "operator": "Exists"}]
    if isinstance(value, list):
        return ["--zz"]
    if isinstance(value, dict):
        return {"zz": "1"}
    return "zz"


def leaves(prefix, values):
    free = ("resources", "updateStrategy", "securityContext", "podSecurityContext", "nvidiaNodeSelector", "podDisruptionBudget")
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in free:
            yield from leaves(f"{prefix}{key}.", value)
        else:
            yield prefix + key, value


def nested(path, value):
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


@test
def effective():
    """no value is without effect: another one changes what is rendered"""
    with open(os.path.join(helm.CHART, "values.yaml"), encoding="utf-8") as file:
        all_values = list(leaves("", helm.load(file.read())[0]))
    true(len(all_values) > 150, f"{len(all_values)} values")
    places = [(place, version) for version in PLACE_VERSIONS for place in PLACES]
    before = {}

    def rendered(place, version, path="", *values):
        done = helm.run("template", "vgpu", helm.CHART, "--kube-version", version, values=[place, *values])
        true(done.returncode == 0 or path in REFUSED, f"{path}: {done.stderr}")
        return done.stdout

    def has_effect(one):
        path, value = one
        for number, (place, version) in enumerate(places):
            if number not in before:
                before[number] = rendered(place, version)
            if rendered(place, version, path, nested(path, another(path, value))) != before[number]:
                return None
        return path
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        equal([path for path in pool.map(has_effect, all_values) if path], [], "values without effect")


@test
def schema():
    """its schema has each value of values.yaml, and beyond these only what HAMi's charts have"""
    with open(os.path.join(helm.CHART, "values.schema.json"), encoding="utf-8") as file:
        own = json.load(file)
    with open(os.path.join(helm.CHART, "values.yaml"), encoding="utf-8") as file:
        values = helm.load(file.read())[0]
    with open(os.path.join(helm.CHART, "templates/_helpers.tpl"), encoding="utf-8") as file:
        helpers = file.read()
    named = set(re.findall(r'"([A-Za-z.]+)"', re.search(r'range \$path := list (.*?) -}}', helpers)[1]))
    # Older names, which have an effect.
    old = {"imagePullSecrets", "devicePlugin.libPath", "devicePlugin.monitor.ctrPath", "devicePlugin.monitorimage",
           "devicePlugin.monitorctrPath", "devicePlugin.imagePullPolicy", "devicePlugin.nvidianodeSelector"}

    def walk(prefix, node, value):
        known = node.get("properties", {})
        if not known:
            return
        equal(node.get("additionalProperties"), prefix == "devices.", f"{prefix} takes no others")
        equal([prefix + key for key in value if key not in known], [], "values that the schema lacks")
        for key, inner in known.items():
            if key not in value:
                true(prefix + key in named | old, f"{prefix}{key} is in no list")
            elif isinstance(inner, dict):
                walk(prefix + key + ".", inner, value[key] if isinstance(value[key], dict) else {})
    walk("", own, values)
    for path in named | old:
        node = own
        for key in path.split("."):
            node = node["properties"][key]
        true(node is not None, path)


tap.main()
