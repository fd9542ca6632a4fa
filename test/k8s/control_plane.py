# SPDX-License-Identifier: Apache-2.0
"""etcd, API server, controller manager and scheduler of Kubernetes, with certificates of the test's own;
and a client of the API."""
import http.client
import json
import os
import ssl
import subprocess
import time

from machine import NODE_ADDRESS, SERVICE_ADDRESS
from peers import program

SECONDS = 300  # for what takes some, on a machine that is busy with other things
TOKEN = "test-admin"
# Users by token beside the administrator: who keeps the nodes that are only objects (nodes.py), by the
# name of the device plugin's ServiceAccount, and somebody who may what the ClusterRole "admin" may in a namespace.
KEEPER, ALICE = "test-keeper", "test-alice"
KEEPER_NAME = "system:serviceaccount:kube-system:vgpu-node"
TOKENS = f"""{TOKEN},admin,admin,system:masters
{KEEPER},{KEEPER_NAME},keeper,system:masters
{ALICE},alice,alice,people
"""
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:443", certificate-authority: "{pki}/ca.crt"}}}}]
users: [{{name: u, user: {{client-certificate: "{pki}/{user}.crt", client-key: "{pki}/{user}.key"}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
SUBJECTS = {"apiserver": "/CN=kube-apiserver", "scheduler": "/CN=system:kube-scheduler",
            "manager": "/CN=system:kube-controller-manager", "admin": "/O=system:masters/CN=admin",
            "node": "/O=system:nodes/CN=system:node:n1",
            "client": "/O=system:masters/CN=apiserver-kubelet-client"}
NAMES = ("subjectAltName=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc,DNS:n1,IP:127.0.0.1,"
         f"IP:{SERVICE_ADDRESS},IP:{NODE_ADDRESS}\nextendedKeyUsage=serverAuth,clientAuth\n")


RUNNING = {}  # the cluster's own processes, which nobody but the test ends


def wait_for(what, look, seconds=SECONDS, pause=0.3):
    """The first result of look() that is true."""
    deadline = time.monotonic() + seconds
    problem = None
    while time.monotonic() < deadline:
        for name, process in RUNNING.items():
            if process.poll() is not None:
                raise AssertionError(f"{name} has ended, with status {process.returncode}, before {what}")
        try:
            if result := look():
                return result
        except (OSError, http.client.HTTPException, Refused) as error:
            problem = error
        time.sleep(pause)
    raise AssertionError(f"after {seconds} s still not: {what}{f' ({problem})' if problem else ''}")


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


class Api:
    """Requests as the cluster's administrator, or by another's token."""

    def __init__(self, pki, token=TOKEN):
        self.context = ssl.create_default_context(cafile=f"{pki}/ca.crt")
        self.token = token

    def connect(self):
        return http.client.HTTPSConnection("127.0.0.1", 443, context=self.context, timeout=60)

    def headers(self, kind="application/json"):
        return {"Authorization": "Bearer " + self.token, "Content-Type": kind}

    def call(self, method, path, body=None, kind="application/json"):
        connection = self.connect()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self.headers(kind))
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise Refused(answer.status, text.decode(errors="replace"))
        return json.loads(text) if answer.getheader("Content-Type", "").startswith("application/json") else text

    def get(self, path):
        return self.call("GET", path)

    def found(self, path):
        """None where it is not there."""
        try:
            return self.get(path)
        except Refused as refused:
            if refused.status != 404:
                raise
            return None

    def patch(self, path, body):
        return self.call("PATCH", path, body, "application/merge-patch+json")


class Session(Api):
    """Over one connection, which is kept: for one thread."""

    kept = None

    def call(self, method, path, body=None, kind="application/json"):
        self.kept = self.kept or self.connect()
        try:
            self.kept.request(method, path, None if body is None else json.dumps(body), self.headers(kind))
            answer = self.kept.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self.kept.close()
            self.kept = None
            raise
        if answer.status >= 300:
            raise Refused(answer.status, text.decode(errors="replace"))
        return json.loads(text) if answer.getheader("Content-Type", "").startswith("application/json") else text


class ControlPlane:
    def __init__(self, machine):
        self.machine, self.processes = machine, RUNNING
        self.api_server = ()  # flags of it beside its own
        self.pki = machine.path("pki")
        os.makedirs(self.pki)
        os.makedirs(machine.path("log"))
        self.make_certificates()
        self.api = Api(self.pki)

    def start(self, name, *command, **more):
        with open(self.machine.path("log", name), "ab") as log:
            self.processes[name] = subprocess.Popen(  # pylint: disable=consider-using-with
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **more)
        return self.processes[name]

    def stop(self, name, number=15):
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(timeout=60)

    def log(self, name):
        with open(self.machine.path("log", name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.pki, check=True, capture_output=True, timeout=120)

    def make_certificates(self):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        self.openssl("req", "-x509", *key, "-days", "30", "-subj", "/CN=test-ca", "-keyout", "ca.key", "-out", "ca.crt")
        with open(f"{self.pki}/names", "w", encoding="ascii") as file:
            file.write(NAMES)
        for name, subject in SUBJECTS.items():
            self.openssl("req", *key, "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
            self.openssl("x509", "-req", "-days", "30", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                         "-CAcreateserial", "-extfile", "names", "-out", f"{name}.crt")
            with open(f"{self.pki}/{name}.kubeconfig", "w", encoding="ascii") as file:
                file.write(KUBECONFIG.format(pki=self.pki, user=name))
        self.openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", "accounts.key")
        with open(f"{self.pki}/tokens.csv", "w", encoding="ascii") as file:
            file.write(TOKENS)

    def start_all(self):
        self.start_etcd()
        self.start_api_server()
        self.start_manager()
        self.start_scheduler()

    def start_etcd(self):
        self.start("etcd", program("etcd"), "--data-dir", self.machine.path("etcd"), "--unsafe-no-fsync",
                   "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
                   "--listen-peer-urls", "http://127.0.0.1:2380")

    def start_manager(self, *more):
        pki = self.pki
        self.start("manager", program("kube-controller-manager"), f"--kubeconfig={pki}/manager.kubeconfig",
                   f"--root-ca-file={pki}/ca.crt", f"--service-account-private-key-file={pki}/accounts.key",
                   "--use-service-account-credentials=true", "--leader-elect=false", "--bind-address=127.0.0.1", *more)

    def start_scheduler(self, name="scheduler", host=None, *more):
        """kube-scheduler, on a host of that name. One that is named by --config gets its kubeconfig there."""
        kubeconfig = f"{self.pki}/scheduler.kubeconfig"
        command = [program("kube-scheduler"), f"--authentication-kubeconfig={kubeconfig}",
                   f"--authorization-kubeconfig={kubeconfig}", "--bind-address=127.0.0.1"]
        if host:
            command = ["unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh", *command]
        self.start(name, *command, *(more or [f"--kubeconfig={kubeconfig}", "--leader-elect=false"]))

    def start_api_server(self):
        pki = self.pki
        self.start("apiserver", program("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
                   "--bind-address=0.0.0.0", "--secure-port=443", f"--advertise-address={NODE_ADDRESS}",
                   "--endpoint-reconciler-type=none",
                   f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key",
                   f"--client-ca-file={pki}/ca.crt", f"--token-auth-file={pki}/tokens.csv",
                   "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
                   f"--service-account-key-file={pki}/accounts.key",
                   f"--service-account-signing-key-file={pki}/accounts.key",
                   "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/24",
                   f"--kubelet-certificate-authority={pki}/ca.crt", f"--kubelet-client-certificate={pki}/client.crt",
                   f"--kubelet-client-key={pki}/client.key", "--kubelet-preferred-address-types=InternalIP",
                   "--allow-privileged=true", "--profiling=false", *self.api_server)
        wait_for("the API server is ready", lambda: self.api.get("/readyz"))

    def kubectl(self, *arguments, check=True, timeout=SECONDS):
        done = subprocess.run([program("kubectl"), f"--kubeconfig={self.pki}/admin.kubeconfig", *arguments],
                              capture_output=True, text=True, check=False, timeout=timeout,
                              env={"PATH": os.environ["PATH"], "HOME": self.machine.directory})
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done
