# SPDX-License-Identifier: Apache-2.0
"""certgen BUILD: vgpu-certgen as a black box against a fake API server; its certificates by OpenSSL."""
import base64
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in ("process", "kube"):
    sys.path.insert(0, os.path.join(ROOT, "test", folder))
import api_server  # noqa: E402
import tap  # noqa: E402

equal, test, true = tap.equal, tap.test, tap.true
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build")
PROGRAM = os.path.join(BUILD, "src/daemon/vgpu-certgen")
NAMES = ["vgpu-scheduler", "vgpu-scheduler.gpu", "vgpu-scheduler.gpu.svc"]
TLS = ["--namespace=gpu", "--secret-name=tls", "--names=" + ",".join(NAMES)]
PROOF = ["--namespace=gpu", "--proof-secret-name=proof"]
HOOKS = ["--mutating-webhook=m", "--validating-webhook=v"]
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"


def openssl(*arguments, check=True, stdin=None):
    if not shutil.which("openssl"):
        raise tap.Skip("needs openssl")
    return subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, text=True, check=check).stdout


class World:
    def __init__(self, **options):
        self.directory = tempfile.mkdtemp()
        self.server = api_server.Server(**options).start()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.server.stop()

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def run(self, *arguments, status=0):
        """(its log, in lines)"""
        cluster = {"server": self.server.url}
        if self.server.authority:
            cluster["certificate-authority"] = self.server.authority.path("ca.crt")
        config = self.write(f"config-{threading.get_ident()}", json.dumps({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "own"}}],
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {"token": "t"}}]}))
        environment = {k: v for k, v in os.environ.items() if k != "POD_NAMESPACE"}
        done = subprocess.run([PROGRAM, *arguments], env={**environment, "KUBECONFIG": config}, capture_output=True,
                              text=True, timeout=120, check=False)
        equal((done.returncode, done.stdout), (status, ""), f"status of {arguments}: {done.stderr}")
        return done.stderr.splitlines()

    def secret(self, name="tls", space="gpu"):
        return self.server.store.get("secrets", space, name)

    def entries(self, name="tls", space="gpu"):
        return {key: base64.b64decode(value).decode() for key, value in self.secret(name, space)["data"].items()}

    def put_secret(self, name, kind="kubernetes.io/tls", **entries):
        data = {key.replace("_", "."): base64.b64encode(value.encode()).decode() for key, value in entries.items()}
        self.server.put("secrets", {"metadata": {"name": name, "namespace": "gpu"}, "type": kind, "data": data})

    def put_webhooks(self):
        for resource, name in ((MUTATING, "m"), (VALIDATING, "v")):
            self.server.put(resource, {"metadata": {"name": name}, "webhooks": [
                {"name": f"{name}{i}.x", "clientConfig": {"service": {"name": "s", "namespace": "gpu"}}} for i in range(2)]})

    def bundles(self):
        found = [self.server.store.get(resource, "", name) for resource, name in ((MUTATING, "m"), (VALIDATING, "v"))]
        return [base64.b64decode(hook["clientConfig"].get("caBundle", "")).decode()
                for one in found for hook in one["webhooks"]]

    def writes(self):
        return [f"{entry['method']} {entry['path'].split('/')[-1]}" for entry in self.server.log()
                if entry["method"] != "GET"]

    def text(self, pem):
        return openssl("x509", "-noout", "-text", stdin=pem)

    def handshake(self, entries, name, bundle=None):
        """Whether a client that trusts the bundle takes the server by this name."""
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(self.write("chain", entries["tls.crt"]), self.write("key", entries["tls.key"]))
        client = ssl.create_default_context(cadata=bundle or entries["ca.crt"])
        if hasattr(ssl, "VERIFY_X509_STRICT"):
            client.verify_flags |= ssl.VERIFY_X509_STRICT
        ends = socket.socketpair()

        def serve():
            try:
                with serving.wrap_socket(ends[0], server_side=True) as connection:
                    connection.recv(1)
            except OSError:
                pass
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            with client.wrap_socket(ends[1], server_hostname=name) as connection:
                connection.send(b"x")
            return True
        except ssl.SSLError:
            return False
        finally:
            thread.join(60)

    def make_pair(self, days, names, ca_days=3650, key="ca", common="old"):
        """A CA and a certificate, by OpenSSL."""
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl("req", "-x509", *curve, "-days", str(ca_days), "-subj", f"/CN={common}", "-keyout", self.path(key + ".key"),
                "-addext", "keyUsage=critical,keyCertSign", "-out", self.path(key + ".crt"))
        openssl("req", *curve, "-subj", "/CN=s", "-keyout", self.path("s.key"), "-out", self.path("s.csr"))
        extensions = self.write("extensions", "subjectAltName=" + ",".join("DNS:" + name for name in names)
                                + "\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\nauthorityKeyIdentifier=keyid\n"
                                + "subjectKeyIdentifier=hash\n")
        openssl("x509", "-req", "-in", self.path("s.csr"), "-CA", self.path(key + ".crt"), "-CAkey", self.path(key + ".key"),
                "-set_serial", "1", "-days", str(days), "-extfile", extensions, "-out", self.path("s.crt"))
        texts = []
        for name in (key + ".crt", "s.crt", "s.key"):
            with open(self.path(name), encoding="ascii") as file:
                texts.append(file.read())
        return dict(zip(("ca_crt", "tls_crt", "tls_key"), texts))


@test
def made():
    """it makes a certificate that servers are trusted with by each of its names, and by no other"""
    with World() as world:
        world.run(*TLS)
        secret, entries = world.secret(), world.entries()
        equal((secret["type"], set(entries)), ("kubernetes.io/tls", {"ca.crt", "tls.crt", "tls.key"}))
        for name in NAMES:
            true(world.handshake(entries, name), f"{name} is not trusted")
        for name in ("vgpu", "vgpu-scheduler.gpu.svc.cluster.local", "x.vgpu-scheduler"):
            true(not world.handshake(entries, name), f"{name} is trusted")
        text = world.text(entries["tls.crt"])
        for words in ("CA:FALSE", "TLS Web Server Authentication", "Digital Signature", "prime256v1", "ecdsa-with-SHA256"):
            true(words in text, f"{words} is not in {text}")
        true("CA:TRUE, pathlen:0" in world.text(entries["ca.crt"]), "the CA")
        openssl("x509", "-noout", "-checkend", str(3649 * 86400), stdin=entries["tls.crt"])
        true("PRIVATE" not in entries["ca.crt"] + entries["tls.crt"], "a key in public entries")


@test
def addresses():
    """addresses and wildcards are names, too"""
    with World() as world:
        world.run("--namespace=gpu", "--secret-name=tls", "--names=10.0.0.7,fd00::7,*.gpu.svc")
        entries = world.entries()
        for name, trusted in (("10.0.0.7", True), ("fd00::7", True), ("a.gpu.svc", True), ("10.0.0.8", False), ("gpu.svc", False)):
            equal(world.handshake(entries, name), trusted, name)
        world.server.clear_log()
        world.run("--namespace=gpu", "--secret-name=tls", "--names=10.0.0.7,fd00::7,*.gpu.svc")
        equal(world.writes(), [], "kept")


@test
def kept():
    """what is there and right is kept, byte for byte, and nothing is written"""
    with World() as world:
        world.put_webhooks()
        world.run(*TLS, *HOOKS, *PROOF[1:])
        before = world.secret(), world.secret("proof"), world.bundles()
        world.server.clear_log()
        lines = world.run(*TLS, *HOOKS, *PROOF[1:])
        equal(world.writes(), [], "writes")
        equal((world.secret(), world.secret("proof"), world.bundles()), before)
        true(any("keeps its certificate" in line for line in lines) and any("keeps its key" in line for line in lines), lines)


@test
def renewed():
    """a certificate that ends within 30 days, or whose CA does, is replaced; one that lasts longer is not"""
    for days, ca_days, replaced in ((29, 3650, True), (31, 3650, False), (400, 29, True), (31, 31, False)):
        with World() as world:
            world.put_secret("tls", **world.make_pair(days, NAMES, ca_days))
            before = world.entries()
            lines = world.run(*TLS)
            equal(world.entries() != before, replaced, f"{days} and {ca_days} days: {lines}")
            true(world.handshake(world.entries(), NAMES[2]), "the one that is there now")
    with World() as world:
        world.put_secret("tls", **world.make_pair(400, NAMES))
        before = world.entries()
        world.run(*TLS, "--renew-days=500")
        true(world.entries() != before, "--renew-days")
        world.run(*TLS, "--valid-days=501", "--renew-days=500")
        openssl("x509", "-noout", "-checkend", str(3600 * 86400), stdin=world.entries()["tls.crt"])


@test
def bridged():
    """while a certificate is replaced the former CA stays trusted, and webhooks know the new one first"""
    with World() as world:
        world.put_webhooks()
        world.put_secret("tls", **world.make_pair(10, NAMES))
        former = world.entries()
        world.run(*TLS, *HOOKS)
        entries, bundles = world.entries(), world.bundles()
        equal(bundles, [entries["ca.crt"]] * 4, "the bundles")
        for one in (former, entries):
            true(world.handshake(one, NAMES[0], bundles[0]), "trusted")
        equal(world.writes(), ["PUT m", "PUT v", "PUT tls"], "the order")
        equal(entries["ca.crt"].count("BEGIN CERTIFICATE"), 2, "CAs")
        world.run(*TLS, *HOOKS, "--valid-days=4000", "--renew-days=3990")
        latest = world.entries()
        equal(latest["ca.crt"].count("BEGIN CERTIFICATE"), 2, "CAs after one more")
        true(world.handshake(entries, NAMES[0], latest["ca.crt"]), "the one before is trusted")
        true(not world.handshake(former, NAMES[0], latest["ca.crt"]), "the first one is not any more")


@test
def wrong():
    """a Secret that lacks something, is for other names, of another CA or no certificate at all is replaced"""
    with World() as world:
        right, other = world.make_pair(400, NAMES), world.make_pair(400, NAMES, key="other", common="other")
        for name, entries in (("other names", world.make_pair(400, NAMES[:2])), ("no names", world.make_pair(400, ["x"])),
                              ("another's key", {**right, "tls_key": other["tls_key"]}),
                              ("another's CA", {**right, "ca_crt": other["ca_crt"]}),
                              ("no CA", {k: v for k, v in right.items() if k != "ca_crt"}), ("nothing", {}),
                              ("not PEM", {**right, "tls_crt": "x"}), ("an empty one", {**right, "tls_crt": ""}),
                              ("a key that is none", {**right, "tls_key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}),
                              ("a huge one", {**right, "tls_crt": right["tls_crt"] * 200}),
                              ("many CAs", {**right, "ca_crt": other["ca_crt"] * 50 + right["ca_crt"]})):
            world.put_secret("tls", **entries)
            before = world.entries() if entries else {}
            lines = world.run(*TLS)
            after = world.entries()
            true(after != before and any("is replaced" in line for line in lines), f"{name}: {lines}")
            true(world.handshake(after, NAMES[1]), name)
        world.server.put("secrets", {"metadata": {"name": "tls", "namespace": "gpu"}, "type": "kubernetes.io/tls",
                                     "data": {"tls.crt": "***", "tls.key": 7, "ca.crt": None}})
        world.run(*TLS)
        true(world.handshake(world.entries(), NAMES[1]), "what is not base64")


@test
def others_entries():
    """entries, labels and the type that others gave a Secret stay"""
    with World() as world:
        world.server.put("secrets", {"metadata": {"name": "tls", "namespace": "gpu", "labels": {"a": "b"}},
                                     "type": "Opaque", "data": {"mine": "eA=="}})
        world.run(*TLS)
        secret = world.secret()
        equal((secret["type"], secret["data"]["mine"], secret["metadata"]["labels"]), ("Opaque", "eA==", {"a": "b"}))


@test
def the_proof_key():
    """the proof key has 32 random bytes, differs each time, and is kept where there is one"""
    keys = set()
    for _ in range(3):
        with World() as world:
            world.run(*PROOF)
            entries = world.entries("proof")
            equal((list(entries), world.secret("proof")["type"]), (["key"], "Opaque"))
            true(re.fullmatch(r"[0-9a-f]{64}", entries["key"]), "its form")
            keys.add(entries["key"])
    equal(len(keys), 3, "keys")
    with World() as world:
        world.put_secret("proof", "Opaque", key="x" * 16)
        world.run(*PROOF)
        equal(world.entries("proof"), {"key": "x" * 16}, "one of somebody else's")
        world.put_secret("proof", "Opaque", other="x")
        world.run(*PROOF)
        equal(set(world.entries("proof")), {"key", "other"}, "beside others' entries")
        for text in ("x" * 15, "x" * 14, "", "x"):
            world.put_secret("proof", "Opaque", key=text)
            (line,) = world.run(*PROOF, status=1)
            true("gpu/proof" in line and "less than 16 bytes" in line, line)
            equal(world.entries("proof"), {"key": text}, "a short one")


@test
def webhooks():
    """it sets the CA of all webhooks of both configurations, and says so where one is missing"""
    with World() as world:
        world.run(*TLS)
        (*_, line) = world.run(*TLS, *HOOKS, status=1)
        true(MUTATING + "/m" in line and "404" in line, line)
        world.run(*TLS, *HOOKS, "--webhooks-may-be-missing")
        world.put_webhooks()
        world.run(*TLS, *HOOKS)
        equal(world.bundles(), [world.entries()["ca.crt"]] * 4, "bundles")
        world.server.put(VALIDATING, {"metadata": {"name": "v"}})  # without any webhook
        world.run(*TLS, *HOOKS)


@test
def races():
    """a write that meets another one, and answers that are lost, are tried again"""
    with World() as world:
        world.put_webhooks()
        for method, path in (("POST", "secrets"), ("PUT", MUTATING)):
            world.server.fault(method=method, path=path, status=409)
        world.run(*TLS, *HOOKS, *PROOF[1:])
        equal(world.bundles(), [world.entries()["ca.crt"]] * 4, "after conflicts")
    with World() as world:
        world.put_webhooks()
        for path in ("secrets", MUTATING, VALIDATING):
            world.server.fault(method="POST|PUT", path=path, cut="after")
            world.server.fault(method="GET", path=path, status=503)
        world.run(*TLS, *HOOKS)
        entries = world.entries()
        equal(world.bundles(), [entries["ca.crt"]] * 4, "after lost answers")
        true(world.handshake(entries, NAMES[0]), "what is there")
    with World() as world:
        world.server.fault(method="POST", path="secrets", status=409, count=100)
        (*_, line) = world.run(*TLS, status=1)
        true("409" in line, line)
        equal(world.writes(), ["POST secrets"] * 5, "tries")


@test
def two_at_once():
    """of several that run at once all end with one certificate and one key"""
    with World() as world:
        world.put_webhooks()
        failed = []

        def one():
            try:
                world.run(*TLS, *HOOKS, *PROOF[1:])
            except AssertionError as error:
                failed.append(error)
        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        equal(failed, [], "those that failed")
        world.run(*TLS, *HOOKS)
        entries = world.entries()
        equal(world.bundles(), [entries["ca.crt"]] * 4, "bundles")
        true(world.handshake(entries, NAMES[0]) and len(world.entries("proof")["key"]) == 64, "what is there")


@test
def no_rights():
    """without a right it ends with one line that names the request, and what it did stays"""
    for method, path in (("GET", "secrets/tls"), ("POST", "secrets"), ("PUT", MUTATING), ("GET", VALIDATING)):
        with World() as world:
            world.put_webhooks()
            world.server.fault(method=method, path=path, status=403)
            lines = world.run(*TLS, *HOOKS, status=1)
            errors = [line for line in lines if line.startswith("ERROR ")]
            true(len(errors) == 1 and method in errors[0] and "403" in errors[0], lines)
            world.run(*TLS, *HOOKS)
            true(world.handshake(world.entries(), NAMES[0], world.bundles()[0]), "the next run goes on")


@test
def no_server():
    """an API server that does not answer is asked until the time is over"""
    with World() as world:
        world.server.fault(path="secrets", status=503, count=1000)
        lines = world.run(*TLS, "--timeout=1s", status=1)
        true("503" in lines[-1] and lines[-1].startswith("ERROR ") and any("again in" in line for line in lines), lines)


@test
def secret_is_not_told():
    """no key is in its log"""
    with World() as world:
        world.put_webhooks()
        lines = "\n".join(world.run(*TLS, *HOOKS, *PROOF[1:]))
        true(world.entries("proof")["key"] not in lines and "PRIVATE" not in lines and "BEGIN" not in lines, lines)


@test
def over_tls():
    """it talks to an API server over TLS with a token, in the namespace of its service account"""
    directory = tempfile.mkdtemp()
    with World(tls=directory, tokens=("t",)) as world:
        openssl("version")
        world.run("--secret-name=tls", "--names=a.example")
        true(world.handshake(world.entries(space="own"), "a.example"), "it")
        world.server.tokens = ["other"]
        lines = world.run("--secret-name=tls", "--names=a.example", "--timeout=1s", status=1)
        true("401" in lines[-1], lines)


@test
def settings():
    """flags that do not fit end with one line that says what is accepted"""
    with World() as world:
        long = ",".join(f"a{i}" for i in range(33))
        for arguments, words in ((), "nothing to do"), (("--secret-name=x",), "needs --names"), (("--names=x",), "nothing to do"), \
                (("--proof-secret-name=p", "--mutating-webhook=m"), "need --secret-name"), \
                (("--secret-name=x", "--names=" + long), "more than 32"), \
                (("--secret-name=x", "--names=a", "--valid-days=0"), "--valid-days"), \
                (("--secret-name=x", "--names=a", "--valid-days=10", "--renew-days=10"), "--renew-days"), \
                (("--secret-name=x", "--names=a", "--timeout=0s"), "--timeout"), (("--nonsense",), "no such flag"), (("x",), "no flag"):
            (line,) = world.run(*arguments, status=2)
            true(line.startswith("ERROR settings: ") and words in line, line)
        for name in ("A", "-a", "a-", "a..b", ".a", "a.", "*", "*.", "a.*", "a_b", "a b", "x" * 64, ".".join(["a" * 60] * 5)):
            (line,) = world.run("--secret-name=x", "--names=" + name, status=2)
            true("accepted" in line, line)
        equal(world.server.log(), [], "requests")


@test
def man_page():
    """the man page has each flag, variable and default, and no other flag"""
    with open(os.path.join(ROOT, "man/vgpu-certgen.8"), encoding="utf-8") as file:
        page = file.read()
    said = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^  --([a-z-]+) +(.*)$", said, re.M)
    places = dict(re.findall(r"^\.It Fl Fl ([a-z-]+)(.*\n(?:(?!\.It |\.El).*\n)*)", page, re.M))
    equal(set(places) - {"help", "version"}, {name for name, _ in rows}, "flags")
    for name, text in rows:
        for word in re.findall(r"\(also ([A-Z_]+)\)", text) + re.findall(r" \[([^\]]+)\]$", text):
            true(word in places[name], f"--{name}: {word} is not in {places[name]!r}")


tap.main()
