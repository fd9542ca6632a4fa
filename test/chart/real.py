# SPDX-License-Identifier: Apache-2.0
"""real BUILD: what the chart renders, on a real API server (test/k8s/peers.py has where its programs are), with
vgpu-certgen and vgpu-scheduler under the accounts and rights that the chart gives them. Nothing runs a Pod here."""
import base64
import http.client
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time

import helm
from tap import Skip, equal, test, true
import tap

from mine import BUILD

sys.path.insert(0, os.path.join(helm.ROOT, "test/k8s"))
import peers  # noqa: E402

PATIENCE_S = 120
SPACE, TOKEN = "gpu", "test-admin"
ALLOCATED = "hami.io/vgpu-devices-allocated"


def free_port():
    """A port that no connection takes before its server binds it: below those that the kernel gives by itself. The
    API server alone has hundreds of connections to etcd."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first = int(file.read().split()[0])
    while True:
        port = random.randrange(min(10000, first // 2), first)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text[:600]}")
        self.status = status


class Cluster:
    """etcd and an API server, and the chart's objects in it."""
    now = None

    def __init__(self):
        for name in ("etcd", "kube-apiserver", "kubectl"):
            if not os.access(peers.program(name), os.X_OK):
                raise Skip(f"no {name} in {peers.PEERS}: scripts/build-peers makes it")
        if not shutil.which("openssl"):
            raise Skip("needs openssl")
        helm.program()
        self.directory, self.processes = tempfile.mkdtemp(), {}
        self.port, self.webhook_port = free_port(), free_port()
        etcd, peer = free_port(), free_port()
        subprocess.run(["openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", self.path("accounts.key")],
                       check=True, capture_output=True)
        with open(self.path("tokens.csv"), "w", encoding="ascii") as file:
            file.write(f"{TOKEN},admin,admin,system:masters\nauthor,author,author\n")
        self.start("etcd", peers.program("etcd"), "--data-dir", self.path("etcd"), "--unsafe-no-fsync",
                   "--listen-client-urls", f"http://127.0.0.1:{etcd}", "--advertise-client-urls", f"http://127.0.0.1:{etcd}",
                   "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                   "--initial-cluster", f"default=http://127.0.0.1:{peer}")
        self.start("apiserver", peers.program("kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{etcd}",
                   "--bind-address=127.0.0.1", f"--secure-port={self.port}", f"--cert-dir={self.path('certificates')}",
                   f"--token-auth-file={self.path('tokens.csv')}", "--authorization-mode=RBAC",
                   f"--service-account-key-file={self.path('accounts.key')}",
                   f"--service-account-signing-key-file={self.path('accounts.key')}",
                   "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/24",
                   "--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount", "--profiling=false")
        self.until(lambda: self.call("GET", "/readyz") is not None, "the API server")
        self.version = self.call("GET", "/version")["gitVersion"]
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        self.until(lambda: self.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:kube-scheduler"), "the roles")

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, name, *command, environment=None):
        with open(self.path(f"{name}.log"), "ab") as log:
            self.processes[name] = subprocess.Popen(  # pylint: disable=consider-using-with
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)

    def log(self, name):
        with open(self.path(f"{name}.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def end(self):
        for process in reversed(list(self.processes.values())):
            process.terminate()
            process.wait(60)

    def until(self, look, what):
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                if found := look():
                    return found
                problem = None
            except (OSError, http.client.HTTPException, Refused) as error:
                problem = error
            for name, process in self.processes.items():
                true(process.poll() is None, f"{name} has ended ({process.returncode}): {self.log(name)[-600:]}")
            if time.monotonic() > end:
                raise AssertionError(f"{what} has not come: {problem}")
            time.sleep(0.1)

    def call(self, method, path, body=None, token=TOKEN, kind="application/json"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Authorization": "Bearer " + token, "Content-Type": kind})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 300:
            raise Refused(answer.status, text)
        return json.loads(text) if text.startswith("{") else text

    def config(self, account):
        """A kubeconfig of a service account."""
        token = self.call("POST", f"/api/v1/namespaces/{SPACE}/serviceaccounts/{account}/token",
                          {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        return self.config_of(account, {"token": token})

    def config_of(self, name, user):
        path = self.path(f"config-{name}")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                       "clusters": [{"name": "c", "cluster": {
                           "server": f"https://127.0.0.1:{self.port}",
                           "certificate-authority": self.path("certificates/apiserver.crt")}}],
                       "users": [{"name": "u", "user": user}],
                       "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, file)
        return path

    def values(self):
        """The API server calls the webhook by an address: there is no network of Services here."""
        return {"scheduler": {"service": {"httpTargetPort": self.webhook_port}, "admissionWebhook": {
            "customURL": {"enabled": True, "host": "127.0.0.1", "port": self.webhook_port}}}}

    def objects(self, values=None):
        return helm.objects(values or self.values(), namespace=SPACE, version=self.version)

    def kubectl(self, *arguments, text=None):
        config = self.config_of("admin", {"token": TOKEN})
        return subprocess.run([peers.program("kubectl"), f"--kubeconfig={config}", *arguments], input=text,
                              capture_output=True, text=True, timeout=120, check=False)

    def helm(self, command, *more):
        """helm itself, without its hooks, whose Pods nobody would run here."""
        with open(self.path("values.json"), "w", encoding="utf-8") as file:
            json.dump(self.values(), file)
        chart = () if command == "uninstall" else (helm.CHART, "-f", self.path("values.json"))
        done = subprocess.run([helm.program(), command, "vgpu", *chart, "--namespace", SPACE, "--no-hooks",
                               "--kubeconfig", self.config_of("admin", {"token": TOKEN}), *more],
                              env={"PATH": os.environ["PATH"], "HOME": self.directory}, capture_output=True, text=True,
                              timeout=120, check=False)
        equal(done.returncode, 0, f"helm {command}: {done.stderr}")

    def pod(self, name="p", limits=None, labels=None, token="author", **annotations):
        body = {"metadata": {"name": name, "labels": labels or {}, "annotations": annotations}, "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits or {}}}]}}
        return self.call("POST", "/api/v1/namespaces/default/pods", body, token)

    def refused(self, act):
        try:
            act()
        except Refused as refused:
            return refused
        raise AssertionError("it was not refused")

    def remove(self, name="p"):
        self.call("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")


def cluster():
    if not Cluster.now:
        raise Skip("the cluster is not there")
    return Cluster.now


@test
def applied():
    """a real API server takes all that the chart renders, with any set of webhooks"""
    Cluster.now = one = Cluster()
    print(f"# Kubernetes {one.version}")
    for values in ({}, {"scheduler": {"overwriteEnv": True, "replicas": 2, "service": {"type": "NodePort"}}}, one.values()):
        text = helm.template(values, namespace=SPACE, version=one.version)
        done = one.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
        equal((done.returncode, done.stderr), (0, ""), f"with {values}")
    one.helm("install")
    hooks = [made for (kind, _), made in one.objects().items()
             if "helm.sh/hook" in made["metadata"].get("annotations", {}) and kind != "Job"]
    done = one.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": hooks}))
    equal((done.returncode, len(hooks)), (0, 5), done.stderr)
    # The roles for users are put together by a controller, which is not here.
    rbac = "/apis/rbac.authorization.k8s.io/v1/"
    one.call("POST", rbac + "clusterroles", {"metadata": {"name": "author"}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "patch"]}]})
    one.call("POST", rbac + "clusterrolebindings", {
        "metadata": {"name": "author"}, "subjects": [{"kind": "User", "name": "author", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "author", "apiGroup": "rbac.authorization.k8s.io"}})


@test
def closed():
    """while no webhook answers, only Pods with devices and forged annotations are refused"""
    one = cluster()
    one.pod("plain", {"memory": "1Mi"})
    for limits in ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpumem": "1"}, {"nvidia.com/priority": "1"}):
        refused = one.refused(lambda limits=limits: one.pod("p", limits))
        true("vgpu.hami.io" in str(refused), refused)
    one.pod("ignored", {"nvidia.com/gpu": "1"}, {"hami.io/webhook": "ignore"})
    refused = one.refused(lambda: one.pod("p", labels={"hami.io/webhook": "ignore"}, **{ALLOCATED: "x"}))
    true("owned-keys.vgpu.io" in str(refused), refused)
    one.call("PATCH", "/api/v1/namespaces/default/pods/plain", {"metadata": {"annotations": {"a": "b"}}}, "author",
             "application/merge-patch+json")
    for name in ("plain", "ignored"):
        one.remove(name)


@test
def certificates():
    """vgpu-certgen makes all with the rights of its jobs"""
    one = cluster()
    found = one.objects()
    environment = {**os.environ, "KUBECONFIG": one.config("vgpu-admission")}
    for when in ("before", "after"):
        (part,) = found["Job", f"vgpu-admission-{when}"]["spec"]["template"]["spec"]["containers"]
        done = subprocess.run([os.path.join(BUILD, "src/daemon", part["command"][0]), *part["command"][1:]], env=environment,
                              capture_output=True, text=True, timeout=120, check=False)
        equal((done.returncode, "ERROR" in done.stderr), (0, False), done.stderr)
    data = one.call("GET", f"/api/v1/namespaces/{SPACE}/secrets/vgpu-scheduler-tls")["data"]
    for kind in ("mutating", "validating"):
        (hook,) = one.call("GET", f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/vgpu-webhook")["webhooks"]
        equal(hook["clientConfig"]["caBundle"], data["ca.crt"], kind)
    one.helm("upgrade", "--set", "scheduler.admissionWebhook.timeoutSeconds=9")
    (hook,) = one.call("GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/vgpu-webhook")["webhooks"]
    equal(hook["clientConfig"].get("caBundle"), data["ca.crt"], "the CA after an upgrade")
    equal(hook["timeoutSeconds"], 9, "the upgrade")


@test
def scheduler():
    """vgpu-scheduler runs with the chart's command, Secrets and rights, and serves the webhooks"""
    one = cluster()
    found = one.objects()
    for name in ("vgpu-scheduler-tls", "vgpu-scheduler-proof"):
        folder = one.path("tls" if name.endswith("tls") else "proof")
        os.makedirs(folder)
        for key, value in one.call("GET", f"/api/v1/namespaces/{SPACE}/secrets/{name}")["data"].items():
            with open(os.path.join(folder, key), "wb") as file:
                file.write(base64.b64decode(value))
    os.makedirs(one.path("device-config"))
    with open(one.path("device-config/device-config.yaml"), "w", encoding="utf-8") as file:
        file.write(found["ConfigMap", "vgpu-scheduler-device"]["data"]["device-config.yaml"])
    (command,) = [part["command"] for part in found["Deployment", "vgpu-scheduler"]["spec"]["template"]["spec"]["containers"]
                  if part["name"] == "vgpu-scheduler-extender"]
    words = []
    for word in command[1:]:
        for place in ("tls", "device-config", "proof"):
            word = word.replace(f"=/{place}/", f"={one.path(place)}/")
        words.append(":0".join(word.split(":9395")) if word.startswith("--metrics") else word)
    one.start("scheduler", os.path.join(BUILD, "src/daemon/vgpu-scheduler"), *words, environment={
        **os.environ, "KUBECONFIG": one.config("vgpu-scheduler"), "POD_NAME": "own", "POD_NAMESPACE": SPACE})
    one.until(lambda: "quotas: all" in one.log("scheduler"), "what it reads")
    one.until(lambda: one.pod("p", {"nvidia.com/gpu": "1"}), "the webhook")
    pod = one.call("GET", "/api/v1/namespaces/default/pods/p")
    equal(pod["spec"]["schedulerName"], "vgpu-scheduler")
    equal(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucores"], "100", "a whole card")
    one.remove()
    true("403" not in one.log("scheduler"), one.log("scheduler"))


@test
def owned():
    """annotations of assignments can be written by the two accounts alone, in all ways"""
    one = cluster()
    path, merge = "/api/v1/namespaces/default/pods/p", "application/merge-patch+json"

    def patch(annotations, token="author", sub="", labels=None):
        return one.call("PATCH", path + sub, {"metadata": {"annotations": annotations, "labels": labels or {}}}, token, merge)

    def token_of(account):
        with open(one.config(account), encoding="utf-8") as file:
            return json.load(file)["users"][0]["user"]["token"]
    one.pod("p", {"memory": "1Mi"})
    forged = (lambda: one.pod("q", **{ALLOCATED: "x"}), lambda: one.pod("q", labels={"hami.io/vgpu-node": "n"}),
              lambda: patch({"vgpu.io/proof": "x"}), lambda: patch({"hami.io/bind-phase": "success"}, TOKEN, "/status"),
              lambda: patch({}, labels={"hami.io/vgpu-node": "n"}),
              lambda: one.call("POST", path + "/binding", {"metadata": {"name": "p", "annotations": {ALLOCATED: "x"}},
                                                           "target": {"kind": "Node", "name": "n"}}, TOKEN),
              lambda: one.call("POST", "/api/v1/namespaces/default/bindings", {
                  "metadata": {"name": "p", "annotations": {ALLOCATED: "x"}}, "target": {"kind": "Node", "name": "n"}}, TOKEN))
    for number, act in enumerate(forged):
        refused = one.refused(act)
        true(refused.status == 403 and "belongs to vgpu" in str(refused), f"{number}: {refused}")
    for account in ("vgpu-scheduler", "vgpu-device-plugin"):
        patch({ALLOCATED: account, "hami.io/bind-phase": "allocating"}, token_of(account))
    for annotations in ({ALLOCATED: "x"}, {ALLOCATED: None}, {"hami.io/bind-phase": "x"}):
        refused = one.refused(lambda annotations=annotations: patch(annotations))
        true(refused.status == 403, refused)
    patch({"a": "b"})
    equal(one.call("GET", path)["metadata"]["annotations"][ALLOCATED], "vgpu-device-plugin")
    before = one.log("scheduler").count("webhook:")
    patch({"c": "d"})
    patch({"e": "f"}, TOKEN, "/status")
    equal(one.log("scheduler").count("webhook:"), before, "what it was not asked about")
    one.remove()


@test
def uninstalled():
    """helm uninstall leaves the Secrets and the Pods, and nothing that stands in the way of new ones"""
    one = cluster()
    one.pod("stays", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"})
    before = one.call("GET", "/api/v1/namespaces/default/pods/stays")
    one.helm("uninstall")
    equal(one.call("GET", "/api/v1/namespaces/default/pods/stays"), before, "the Pod")
    for name in ("vgpu-scheduler-tls", "vgpu-scheduler-proof"):
        one.call("GET", f"/api/v1/namespaces/{SPACE}/secrets/{name}")
    found = [f"{kind}: {item['metadata']['name']}" for path in (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", f"/apis/apps/v1/namespaces/{SPACE}/daemonsets",
        f"/apis/apps/v1/namespaces/{SPACE}/deployments", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        f"/api/v1/namespaces/{SPACE}/services", f"/api/v1/namespaces/{SPACE}/configmaps")
             for answer in [one.call("GET", path)] for kind in [answer["kind"]] for item in answer["items"]
             if item["metadata"].get("labels", {}).get("app.kubernetes.io/instance") == "vgpu" and "admission" not in item["metadata"]["name"]]
    equal(found, [], "what is left")
    one.pod("new", {"nvidia.com/gpu": "1"})
    for name in ("stays", "new"):
        one.remove(name)


@test
def ended():
    """it ends"""
    one = cluster()
    one.end()
    equal(one.processes["scheduler"].returncode, 0, "the scheduler's exit status")


def main():
    try:
        tap.main()
    finally:
        if Cluster.now:
            Cluster.now.end()


main()
