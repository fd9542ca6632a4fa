# SPDX-License-Identifier: Apache-2.0
"""The control plane of the tests of scheduling.py: the real programs of Kubernetes, beside them twice
what the chart's Deployment has in a Pod (a kube-scheduler and vgpu-scheduler, its extender over TLS), and
nodes that are objects."""
import base64
import http.client
import json
import os
import ssl
import subprocess
import threading
import time

from tap import Skip

import peers
from control_plane import ALICE, KEEPER_NAME, Api, ControlPlane, Refused, wait_for
from keeper import Keeper, make_devices
from machine import Machine, run
from observer import Observer

NAME, LEASE, SPACE = "hami-scheduler", "hami-scheduler", "kube-system"
ACCOUNT = "vgpu-scheduler"
OWNERS = f"system:serviceaccount:{SPACE}:{ACCOUNT},{KEEPER_NAME}"
SERVICE = "vgpu-scheduler"
PORT, EXTENDER_PORT, METRICS_PORT = 9443, 9444, 9395
SCHEDULER_PORT = 10300  # plus the letter of the pair
ADDRESSES = {"a": "10.99.0.2", "b": "10.99.0.3"}  # of the two Pods, so to say
RESOURCES = ["nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage",
             "nvidia.com/priority"]
RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "watch"]},
]
READY_S = 1
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def scheduler_configuration(kubeconfig, certificates, address, elects):
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": elects, "resourceName": LEASE, "resourceNamespace": SPACE,
                           "resourceLock": "leases", "leaseDuration": "10s", "renewDeadline": "6s",
                           "retryPeriod": "1s"},
        "profiles": [{"schedulerName": NAME}],
        "extenders": [{
            "urlPrefix": f"https://{address}:{EXTENDER_PORT}", "filterVerb": "filter", "bindVerb": "bind", "weight": 1,
            "enableHTTPS": True, "httpTimeout": "30s", "nodeCacheCapable": True,
            "tlsConfig": {"insecure": False, "caFile": f"{certificates}/ca.crt"},
            "managedResources": [{"name": one, "ignoredByScheduler": True} for one in RESOURCES]}]}


class World:
    """Made by the first test; what was reached stands in it."""

    build = plane = api = alice = keeper = observer = None
    nodes = {}  # the cards of each
    policy = "binpack"
    runs = True    # Pods get a status, and end when they are deleted
    elects = True  # with a Lease; False: there is one scheduler

    @classmethod
    def start(cls, build):
        reason = os.environ.get("VGPU_TEST_CLUSTER_REASON") or peers.why_not(node=False)
        if reason:
            raise Skip(reason)
        print("# " + "; ".join(peers.versions(node=False)), flush=True)
        cls.build = build
        cls.plane = plane = ControlPlane(Machine(os.environ["TMPDIR"], os.environ["VGPU_TEST_CLUSTER"]))
        for address in ADDRESSES.values():
            run("ip", "address", "add", address + "/32", "dev", "lo")
        cls.certificates = plane.machine.path("webhook")
        cls.make_certificates()
        plane.start_etcd()
        # A webhook's Service is looked up in its endpoints, as there is no kube-proxy here.
        plane.api_server = ["--enable-aggregator-routing=true", *cls.more("apiserver")]
        plane.start_api_server()
        plane.start_manager("--concurrent-deployment-syncs=2", *cls.more("manager"))
        plane.start_scheduler()
        cls.alice = Api(plane.pki, ALICE)
        wait_for("the ServiceAccount of Pods is there",
                 lambda: plane.api.found("/api/v1/namespaces/default/serviceaccounts/default"))
        cls.make_rights()
        cls.register_webhooks()
        for pair in ADDRESSES:
            cls.start_vgpu(pair)
            if cls.elects:
                cls.start_kube_scheduler(pair)
        threading.Thread(target=cls.keep_endpoints, daemon=True).start()
        cls.observer = Observer(Api(plane.pki))
        cls.observer.start()
        cls.keeper = Keeper(plane.pki, runs=cls.runs)
        wait_for("one of the schedulers is ready", cls.leader)
        cls.api = plane.api
        wait_for("the webhook answers", cls.webhook_answers)

    @classmethod
    def more(cls, program):
        """Flags that a caller wants beside."""
        return os.environ.get("VGPU_TEST_FLAGS_" + program.upper(), "").split()

    @classmethod
    def need(cls):
        """For all tests but the first."""
        if not cls.api:
            raise Skip(os.environ.get("VGPU_TEST_CLUSTER_REASON") or peers.why_not(node=False) or
                       "the control plane did not start")

    # ---- vgpu-scheduler and what it needs ----

    @classmethod
    def make_certificates(cls):
        """A CA of its own, which the cluster knows only as the webhooks' caBundle and the extender's caFile."""
        os.makedirs(cls.certificates)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=cls.certificates, check=True, capture_output=True, timeout=60)
        openssl("req", "-x509", *key, "-days", "30", "-subj", "/CN=vgpu-ca", "-keyout", "ca.key", "-out", "ca.crt")
        with open(f"{cls.certificates}/names", "w", encoding="ascii") as file:
            file.write(f"subjectAltName=DNS:{SERVICE}.{SPACE}.svc," +
                       ",".join("IP:" + one for one in ADDRESSES.values()) + "\n")
        openssl("req", *key, "-subj", "/CN=vgpu-scheduler", "-keyout", "tls.key", "-out", "tls.csr")
        openssl("x509", "-req", "-days", "30", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                "-CAcreateserial", "-extfile", "names", "-out", "tls.crt")
        with open(f"{cls.certificates}/proof", "wb") as file:
            file.write(os.urandom(32).hex().encode())

    @classmethod
    def make_rights(cls):
        """The ServiceAccount with its role, and what alice may in her namespace."""
        api = cls.plane.api
        rights = "/apis/rbac.authorization.k8s.io/v1"
        api.call("POST", f"/api/v1/namespaces/{SPACE}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
        api.call("POST", f"{rights}/clusterroles", {"metadata": {"name": ACCOUNT}, "rules": RULES})
        api.call("POST", f"{rights}/clusterrolebindings", {
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SPACE}]})
        wait_for("the role \"admin\" is there", lambda: api.found(f"{rights}/clusterroles/admin"))
        api.call("POST", f"{rights}/namespaces/default/rolebindings", {
            "metadata": {"name": "alice"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}]})
        token = cls.plane.kubectl("create", "token", ACCOUNT, "-n", SPACE, "--duration=10h").stdout.strip()
        with open(f"{cls.certificates}/kubeconfig", "w", encoding="ascii") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                       "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:443",
                                                              "certificate-authority": f"{cls.plane.pki}/ca.crt"}}],
                       "users": [{"name": "u", "user": {"token": token}}],
                       "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, file)

    @classmethod
    def bundle(cls):
        with open(f"{cls.certificates}/ca.crt", "rb") as file:
            return base64.b64encode(file.read()).decode()

    @classmethod
    def webhook(cls, name, path, operations, resources, policy, **more):
        return {"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": policy,
                "timeoutSeconds": 10, "matchPolicy": "Equivalent",
                "clientConfig": {"caBundle": cls.bundle(), "service": {
                    "namespace": SPACE, "name": SERVICE, "path": path, "port": 443}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": resources,
                           "scope": "Namespaced"}], **more}

    @classmethod
    def register_webhooks(cls, policy="Fail"):
        """As deploy/chart has them: a label exempts Pods from the first and not from the second."""
        exempt = {"matchExpressions": [{"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}]}
        for path, kind, hook in (
                (MUTATING, "MutatingWebhookConfiguration", cls.webhook(
                    "vgpu.hami.io", "/webhook", ["CREATE"], ["pods"], policy, objectSelector=exempt,
                    reinvocationPolicy="Never")),
                (VALIDATING, "ValidatingWebhookConfiguration", cls.webhook(
                    "owned.vgpu.io", "/validate", ["CREATE", "UPDATE"], ["pods", "pods/status", "pods/binding"],
                    policy))):
            new = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "vgpu"},
                   "webhooks": [hook]}
            if cls.plane.api.found(f"{path}/vgpu"):
                cls.plane.api.patch(f"{path}/vgpu", {"webhooks": [hook]})
            else:
                cls.plane.api.call("POST", path, new)

    @classmethod
    def start_vgpu(cls, pair):
        files = cls.certificates
        cls.plane.start(
            "vgpu-" + pair, os.path.join(cls.build, "src/daemon/vgpu-scheduler"),
            f"--http_bind={ADDRESSES[pair]}:{PORT}", f"--extender-bind={ADDRESSES[pair]}:{EXTENDER_PORT}",
            f"--cert_file={files}/tls.crt", f"--key_file={files}/tls.key",
            f"--metrics-bind-address={ADDRESSES[pair]}:{METRICS_PORT}", f"--scheduler-name={NAME}",
            f"--node-scheduler-policy={cls.policy}",
            f"--proof-key-file={files}/proof", f"--owners={OWNERS}", f"--leader-elect={str(cls.elects).lower()}",
            f"--leader-elect-resource-name={LEASE}", f"--leader-elect-resource-namespace={SPACE}",
            f"--pod-name=vgpu-{pair}", env={"KUBECONFIG": f"{files}/kubeconfig"})

    @classmethod
    def start_kube_scheduler(cls, pair):
        path = cls.plane.machine.path(f"kube-{pair}.yaml")
        kubeconfig = f"{cls.plane.pki}/scheduler.kubeconfig"
        with open(path, "w", encoding="ascii") as file:
            json.dump(scheduler_configuration(kubeconfig, cls.certificates, ADDRESSES[pair], cls.elects), file)
        cls.plane.start_scheduler("kube-" + pair, f"vgpu-{pair}", f"--config={path}",
                                  f"--secure-port={SCHEDULER_PORT + ord(pair)}")

    @classmethod
    def start_missing(cls):
        """What a test has ended."""
        for pair in ADDRESSES:
            if "vgpu-" + pair not in cls.plane.processes:
                cls.start_vgpu(pair)
            if "kube-" + pair not in cls.plane.processes:
                cls.start_kube_scheduler(pair)

    @classmethod
    def ask(cls, pair, path, seconds=5):
        """(status, text) of vgpu-scheduler; (0, the reason) where it does not answer."""
        context = ssl.create_default_context(cafile=f"{cls.certificates}/ca.crt")
        connection = http.client.HTTPSConnection(ADDRESSES[pair], PORT, context=context, timeout=seconds)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    @classmethod
    def leader(cls):
        """"a" or "b", which would answer now; None."""
        return next((pair for pair in ADDRESSES if cls.ask(pair, "/readyz")[0] == 200), None)

    @classmethod
    def page(cls, pair):
        """The metrics."""
        connection = http.client.HTTPConnection(ADDRESSES[pair], METRICS_PORT, timeout=10)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    @classmethod
    def keep_endpoints(cls):
        """The Service's endpoints are those that are ready, as kubelet's probes would have it."""
        path, known = f"/api/v1/namespaces/{SPACE}", None
        cls.plane.api.call("POST", f"{path}/services", {"metadata": {"name": SERVICE}, "spec": {
            "clusterIP": "10.96.0.20", "ports": [{"name": "https", "port": 443, "targetPort": PORT}]}})
        while True:
            found = [ADDRESSES[one] for one in ADDRESSES if cls.ask(one, "/readyz")[0] == 200]
            body = {"metadata": {"name": SERVICE}, "subsets": [
                {"addresses": [{"ip": one} for one in found], "ports": [{"name": "https", "port": PORT}]}]
                if found else []}
            if found != known:
                try:
                    if known is None:
                        cls.plane.api.call("POST", f"{path}/endpoints", body)
                    else:
                        cls.plane.api.call("PUT", f"{path}/endpoints/{SERVICE}", body)
                    known = found
                except (OSError, http.client.HTTPException, Refused) as error:
                    print(f"# endpoints: {error}", flush=True)
            time.sleep(READY_S)

    # ---- Nodes and Pods ----

    @classmethod
    def add_node(cls, name, cards=2, ours=True, **more):
        devices = make_devices(name, cards, **more)
        cls.nodes[name] = devices
        cls.observer.add_node(name, devices)
        cls.keeper.add_node(name, devices, ours)

    @classmethod
    def clean(cls):
        """Deletes what tests have made, starts what they have ended, and waits until nothing is held."""
        cls.start_missing()
        cls.register_webhooks()
        spaces = [one["metadata"]["name"] for one in cls.api.get("/api/v1/namespaces")["items"]]
        for space in spaces:
            if space != "default" and not space.startswith("kube-"):
                cls.api.call("DELETE", f"/api/v1/namespaces/{space}")
        cls.api.call("DELETE", "/apis/apps/v1/namespaces/default/deployments")
        cls.api.call("DELETE", "/apis/batch/v1/namespaces/default/jobs?propagationPolicy=Background")

        def gone():
            left = cls.api.get("/api/v1/pods")["items"]
            for pod in left:
                node, name = pod["spec"].get("nodeName"), pod["metadata"]["name"]
                if "ownerReferences" not in pod["metadata"] and "deletionTimestamp" not in pod["metadata"] or not node:
                    try:
                        cls.api.call("DELETE", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{name}",
                                     {"gracePeriodSeconds": 1})
                    except Refused:
                        pass
            return not left
        wait_for("all Pods are gone", gone, pause=1)
        wait_for("nothing is held", lambda: cls.observer.total() == (0, 0))
        wait_for("one of the schedulers is ready", cls.leader)
        wait_for("the webhook answers", cls.webhook_answers)

    @classmethod
    def webhook_answers(cls):
        cls.api.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod("try", 100))
        return True

    @classmethod
    def check(cls):
        """What must never be; at the end of each test."""
        for one in (cls.observer, cls.keeper):
            if one and not one.pods.thread.is_alive():
                raise AssertionError("the thread that follows Pods has ended")
        if cls.observer and cls.observer.faults:
            found, cls.observer.faults = cls.observer.faults, []
            raise AssertionError(f"{len(found)} times: {found[0]}")
        if cls.keeper and cls.keeper.problems:
            found, cls.keeper.problems = cls.keeper.problems, []
            raise AssertionError(f"the keeper of nodes was refused {len(found)} times: {found[0]}")

    @classmethod
    def pods(cls, space="default", label=""):
        return cls.api.get(f"/api/v1/namespaces/{space}/pods{'?labelSelector=' + label if label else ''}")["items"]

    @classmethod
    def get(cls, name, space="default"):
        return cls.api.get(f"/api/v1/namespaces/{space}/pods/{name}")

    @classmethod
    def create(cls, name, memory=3000, space="default", api=None, **more):
        return (api or cls.api).call("POST", f"/api/v1/namespaces/{space}/pods", pod(name, memory, **more))

    @classmethod
    def wait_running(cls, name, space="default"):
        return wait_for(f"the Pod {name} runs", lambda: (
            lambda one: one if one["status"]["phase"] == "Running" else None)(cls.get(name, space)), seconds=120)

    @classmethod
    def deploy(cls, name, replicas, space="default", **more):
        template = pod(None, **more)
        template["metadata"]["labels"] = {"app": name}
        cls.api.call("POST", f"/apis/apps/v1/namespaces/{space}/deployments", {
            "metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                                                 "template": template}})

    @classmethod
    def scale(cls, name, replicas, space="default"):
        cls.api.patch(f"/apis/apps/v1/namespaces/{space}/deployments/{name}/scale", {"spec": {"replicas": replicas}})

    @classmethod
    def counts(cls, name, space="default"):
        """(Pods that run, Pods that wait, Pods that end) of a Deployment."""
        found = cls.pods(space, f"app%3D{name}")
        ends = [one for one in found if "deletionTimestamp" in one["metadata"]]
        runs = [one for one in found if one not in ends and one["status"]["phase"] == "Running"]
        return len(runs), len(found) - len(runs) - len(ends), len(ends)

    @classmethod
    def wait_counts(cls, name, runs, waits, space="default", seconds=240):
        seen = [None]

        def look():
            seen[0] = cls.counts(name, space)
            return seen[0] == (runs, waits, 0)
        try:
            wait_for(f"{runs} Pods of {name} run and {waits} wait", look, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen[0]}") from error


def pod(name, memory=3000, cores=None, cards=1, annotations=None, labels=None, **spec):
    limits = {"nvidia.com/gpu": str(cards)} if cards else {}
    if memory is not None:
        limits["nvidia.com/gpumem"] = str(memory)
    if cores is not None:
        limits["nvidia.com/gpucores"] = str(cores)
    metadata = {"annotations": annotations or {}, "labels": labels or {}}
    if name:
        metadata["name"] = name
    return {"metadata": metadata, "spec": {
        "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "none", "resources": {"limits": limits}}], **spec}}
