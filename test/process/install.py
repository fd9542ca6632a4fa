# SPDX-License-Identifier: Apache-2.0
"""install BUILD: deploy/vgpu-install, with the built library, over directories in which it is in use,
cannot be written, or is worked on by others."""
import contextlib
import hashlib
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import tap
from tap import Skip, equal, test, true

from mine import BUILD, MINE

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/vgpu-install")
LIBRARY = shutil.copy(os.path.join(BUILD, "libvgpu.so"), tempfile.mkdtemp())  # with nothing beside it
PRELOAD = "/usr/local/vgpu/libvgpu.so\n"
SECONDS = 60  # for what takes well below one

# Says when it runs, then the inode and contents of the library that it has mapped, when it is asked.
HOLDER = """
import sys
print("runs", flush=True)
for line in sys.stdin:
    print([row.split()[4] for row in open("/proc/self/maps") if "libvgpu" in row][0], flush=True)
"""


class Node:
    """A directory that stands for a node's, another for what its containers share."""

    def __init__(self):
        self.root = tempfile.mkdtemp()
        self.target = os.path.join(self.root, "vgpu")
        self.lock = os.path.join(self.root, "lock")
        self.final = os.path.join(self.target, "libvgpu.so")

    def command(self, *options, source=LIBRARY, before=("sh",)):
        return [*before, SCRIPT, "--source", source, "--target", self.target, "--lock-dir", self.lock,
                *options]

    def run(self, *options, source=LIBRARY, before=("sh",), environment=None):
        return subprocess.run(self.command(*options, source=source, before=before),
                              env={**MINE, **(environment or {})}, capture_output=True, text=True,
                              timeout=SECONDS)

    def install(self, *options, **more):
        done = self.run(*options, **more)
        equal((done.returncode, done.stderr), (0, ""), "the installer's end")
        return done.stdout

    def other(self):
        """A library that the loader takes and that is another file."""
        path = os.path.join(self.root, "other.so")
        with open(LIBRARY, "rb") as file, open(path, "wb") as copy:
            copy.write(file.read() + b"another")
        return path

    def left(self):
        return sorted(set(os.listdir(self.target)) - {"libvgpu.so", "ld.so.preload",
                                                      "libvgpu-control.so"})


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def same(path, wanted):
    true(contents(path) == contents(wanted), f"{path} is not what {wanted} is")


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def in_mounts(script, *words):
    """Runs a shell's script in a mount namespace of its own."""
    done = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], env=MINE,
                          capture_output=True, check=False)
    if done.returncode:
        raise Skip("this place does not let a test mount")
    return subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *words], env=MINE,
                          capture_output=True, text=True, timeout=SECONDS)


@test
def first():
    """a first run makes the directories, the library, and what /etc/ld.so.preload is mounted from"""
    node = Node()
    said = node.install()
    true(hashlib.sha256(contents(LIBRARY)).hexdigest() in said, said)
    same(node.final, LIBRARY)
    equal(contents(os.path.join(node.target, "ld.so.preload")).decode(), PRELOAD, "ld.so.preload")
    equal((mode(node.final), mode(node.lock)), (0o755, 0o1777), "modes")
    equal(node.left(), [], "other files")
    equal(node.run("--check").returncode, 0, "--check")


@test
def nothing():
    """a second run changes nothing and says nothing"""
    node = Node()
    node.install()
    before = [os.stat(os.path.join(node.target, name)) for name in (".", "libvgpu.so", "ld.so.preload")]
    equal(node.install(), "", "what it says")
    after = [os.stat(os.path.join(node.target, name)) for name in (".", "libvgpu.so", "ld.so.preload")]
    equal([(a.st_ino, a.st_mtime_ns) for a in after], [(b.st_ino, b.st_mtime_ns) for b in before], "files")


@test
def in_use():
    """a program that has the library mapped keeps it when it is replaced, and the next has the new one"""
    node = Node()
    node.install()
    old = os.stat(node.final).st_ino

    def hold():
        holder = subprocess.Popen([sys.executable, "-c", HOLDER], env={**MINE, "LD_PRELOAD": node.final},
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        equal(holder.stdout.readline(), "runs\n", "a program under the library")
        return holder

    def ask(holder):
        holder.stdin.write("?\n")
        holder.stdin.flush()
        return int(holder.stdout.readline())

    with hold() as first_holder:
        equal(ask(first_holder), old, "the inode mapped")
        node.install(source=node.other())
        same(node.final, node.other())
        true(os.stat(node.final).st_ino != old, "the file was written in place")
        equal(ask(first_holder), old, "the inode mapped, after")
        with hold() as second_holder:
            equal(ask(second_holder), os.stat(node.final).st_ino, "the inode that the next one maps")
            second_holder.stdin.close()
        # Each of its pages is still there: what is written in place and shorter would end it here.
        with open(f"/proc/{first_holder.pid}/maps", encoding="utf-8") as maps, \
                open(f"/proc/{first_holder.pid}/mem", "rb", 0) as memory:
            for row in maps:
                if "libvgpu" in row and " r" in row:
                    start, end = (int(word, 16) for word in row.split()[0].split("-"))
                    memory.seek(start)
                    equal(len(memory.read(end - start)), end - start, "bytes of the old mapping")
        first_holder.stdin.close()
        equal(first_holder.wait(timeout=SECONDS), 0, "its end")


def tools_with(directory, name, script):
    """A PATH on which one program is the script."""
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + script)
    os.chmod(path, 0o755)
    return {"PATH": f"{directory}:{MINE['PATH']}"}


def killed(node, source, environment, seconds=None):
    with subprocess.Popen(node.command(source=source), env={**MINE, **environment},
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as installer:
        if seconds is not None:
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(installer.pid, signal.SIGKILL)
        return installer.wait(timeout=SECONDS)


@test
def half():
    """an installer that is killed with half of the copy written leaves what was there, and no trouble"""
    for before in (None, LIBRARY):
        node = Node()
        os.mkdir(node.target)
        if before:
            node.install(source=before)
        with tempfile.TemporaryDirectory() as directory:
            environment = tools_with(directory, "cp", 'head -c 100000 "$1" > "$2"; kill -KILL 0\n')
            equal(killed(node, node.other(), environment), -signal.SIGKILL, "its end")
        true(node.left(), "it was not killed in the middle: there is no half copy")
        if before:
            same(node.final, before)
        else:
            true(not os.path.exists(node.final), "half a copy is there under the final name")
        node.install(source=node.other())
        same(node.final, node.other())
        equal(node.left(), [], "what the killed one left")


@test
def last_moment():
    """what an installer left that was killed at its very end the next removes, though nothing is to be installed"""
    node = Node()
    node.install()
    with open(os.path.join(node.target, ".vgpu-install.aBc123"), "w", encoding="ascii") as file:
        file.write("left")
    node.install("--check")
    equal(node.left(), [".vgpu-install.aBc123"], "what a check leaves")
    node.install()
    equal(node.left(), [], "what an installer leaves")


@test
def any_moment():
    """killed at any moment, what is under the final name is the old library or the new one, whole"""
    node = Node()
    node.install()
    files = [LIBRARY, node.other()]
    whole = {hashlib.sha256(contents(path)).hexdigest() for path in files}
    start = time.monotonic()
    node.install(source=files[1])
    length = time.monotonic() - start
    ends = set()
    for turn in range(40):
        ends.add(killed(node, files[turn % 2], {}, random.uniform(0, 1.2 * length)))
        true(hashlib.sha256(contents(node.final)).hexdigest() in whole, "a part is under the final name")
    true(-signal.SIGKILL in ends, "no installer was killed")
    end = time.monotonic() + SECONDS
    node.install()
    while node.left() and time.monotonic() < end:  # one that was killed may hold the lock until it is gone
        time.sleep(0.1)
        node.install()
    equal(node.left(), [], "what the killed ones left")


@test
def bad_copy():
    """a copy that is not the source is not installed, nor one with another checksum than was published"""
    node = Node()
    node.install()
    with tempfile.TemporaryDirectory() as directory:
        environment = tools_with(directory, "cp", '/bin/cp "$1" "$2" && printf x | dd of="$2" bs=1 '
                                                  "seek=5000 conv=notrunc 2>/dev/null\n")
        done = node.run(source=node.other(), environment=environment)
    equal(done.returncode, 1, "status")
    true("has the sha256" in done.stderr, done.stderr)
    same(node.final, LIBRARY)
    other = node.other()
    with open(other + ".sha256", "w", encoding="utf-8") as file:
        file.write(hashlib.sha256(contents(LIBRARY)).hexdigest() + "  libvgpu.so\n")
    done = node.run(source=other)
    equal(done.returncode, 1, "status")
    true("has the sha256" in done.stderr, done.stderr)
    same(node.final, LIBRARY)
    with open(other + ".sha256", "w", encoding="utf-8") as file:
        file.write(hashlib.sha256(contents(other)).hexdigest() + "  libvgpu.so\n")
    node.install(source=other)
    same(node.final, other)
    equal(node.left(), [], "other files")


@test
def no_library():
    """what the loader does not take is not installed: text, nothing, a part of the library"""
    node = Node()
    node.install()
    for bad, word in ((b"text", "loader refuses"), (b"", "loader refuses"),
                      (contents(LIBRARY)[:3000], "status")):
        path = os.path.join(node.root, "bad.so")
        with open(path, "wb") as file:
            file.write(bad)
        done = node.run(source=path)
        equal(done.returncode, 1, "status")
        true(word in done.stderr and "was left as it was" in done.stderr, done.stderr)
        same(node.final, LIBRARY)
    equal(node.left(), [], "other files")
    done = node.run(source=os.path.join(node.root, "none.so"))
    equal(done.returncode, 1, "status")
    true("none.so is no file that can be read" in done.stderr, done.stderr)


@test
def read_only():
    """a target that is read-only fails in words, and leaves the library there in place"""
    node = Node()
    node.install()
    done = in_mounts('mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"',
                     node.target, *node.command(source=node.other()))
    equal(done.returncode, 1, "status")
    true("Read-only" in done.stderr, done.stderr)
    same(node.final, LIBRARY)
    done = in_mounts('mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"',
                     node.target, *node.command())
    equal((done.returncode, done.stderr), (0, ""), "an up-to-date target, read-only")


@test
def full():
    """a target that is full fails in words, with the library there in place and no part beside it"""
    node = Node()
    os.mkdir(node.target)
    room = (os.path.getsize(LIBRARY) >> 10) + 200
    script = ('target=$1; mount -t tmpfs -o size="$2"k none "$target" && shift 2 && '
              'sh "$1" --source "$2" --target "$target" --lock-dir "" >&2 || exit 9; '
              'sh "$1" --source "$3" --target "$target" --lock-dir ""; '
              'echo "status $?"; cmp "$2" "$target/libvgpu.so" && ls -A "$target"')
    done = in_mounts(script, node.target, str(room), SCRIPT, LIBRARY, node.other())
    true("No space left" in done.stderr and "was left as it was" in done.stderr, done.stderr)
    equal(done.stdout, "status 1\nld.so.preload\nlibvgpu.so\n", "what it says and what is there")


@test
def links():
    """a target that is a link is followed; a library that is one is replaced, and what it points at kept"""
    node = Node()
    real = os.path.join(node.root, "real")
    os.mkdir(real)
    os.symlink(real, node.target)
    kept = os.path.join(node.root, "kept.so")
    shutil.copy(LIBRARY, kept)
    os.symlink(kept, os.path.join(real, "libvgpu.so"))
    node.install()
    true(not os.path.islink(node.final), "the library is a link still")
    same(os.path.join(real, "libvgpu.so"), LIBRARY)
    node.install(source=node.other())
    same(os.path.join(real, "libvgpu.so"), node.other())
    same(kept, LIBRARY)
    true(os.path.islink(node.target), "the link was replaced")


@test
def odd_names():
    """names with blanks and colons are as good as others, and a target that is relative as well"""
    node = Node()
    node.target = os.path.join(node.root, "a b:c $(d)\\e")
    node.final = os.path.join(node.target, "libvgpu.so.v2.7.0")
    node.install("--name", "libvgpu.so.v2.7.0")
    same(node.final, LIBRARY)
    done = subprocess.run(["sh", SCRIPT, "--source", LIBRARY, "--target", "here", "--lock-dir", "lock"],
                          cwd=node.root, env=MINE, capture_output=True, text=True, timeout=SECONDS)
    equal((done.returncode, done.stderr), (0, ""), "the installer's end")
    same(os.path.join(node.root, "here/libvgpu.so"), LIBRARY)


@test
def both():
    """both of the documentation's paths get it in one run, and one that fails does not keep the other"""
    node = Node()
    typo = os.path.join(node.root, "usl/local/vgpu")
    node.install("--target", typo)
    same(os.path.join(typo, "libvgpu.so"), LIBRARY)
    same(node.final, LIBRARY)
    shutil.rmtree(node.target)
    with open(node.target, "w", encoding="utf-8"):
        pass
    done = node.run("--target", typo, source=node.other())
    equal(done.returncode, 1, "status")
    true(node.target in done.stderr, done.stderr)
    same(os.path.join(typo, "libvgpu.so"), node.other())


@test
def beside():
    """libvgpu-control.so, where it lies beside the library, is installed with it"""
    node = Node()
    source = os.path.join(node.root, "image")
    os.mkdir(source)
    shutil.copy(LIBRARY, os.path.join(source, "libvgpu.so"))
    node.install(source=os.path.join(source, "libvgpu.so"))
    equal(sorted(os.listdir(node.target)), ["ld.so.preload", "libvgpu.so"], "files")
    shutil.copy(LIBRARY, os.path.join(source, "libvgpu-control.so"))
    equal(node.run("--check", source=os.path.join(source, "libvgpu.so")).returncode, 1, "--check")
    node.install(source=os.path.join(source, "libvgpu.so"))
    same(os.path.join(node.target, "libvgpu-control.so"), LIBRARY)


@test
def many():
    """ten installers at once, of two libraries, leave one of them whole and nothing beside it"""
    node = Node()
    files = [LIBRARY, node.other()]
    installers = [subprocess.Popen(node.command(source=files[turn % 2]), env=MINE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                  for turn in range(10)]
    for installer in installers:
        equal((installer.communicate(timeout=2 * SECONDS)[1], installer.returncode), ("", 0), "an end")
    true(contents(node.final) in [contents(path) for path in files], "the library is neither")
    equal(node.left(), [], "other files")


@test
def no_rights():
    """root without any capability, as in the DaemonSet's container, is enough"""
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    if os.getuid() != 0 or subprocess.run([*bare, "true"], capture_output=True, check=False).returncode:
        raise Skip("needs root and setpriv")
    node = Node()
    os.mkdir(node.lock, 0o755)
    node.install(before=[*bare, "sh"])
    node.install(before=[*bare, "sh"], source=node.other())
    same(node.final, node.other())
    equal(mode(node.lock), 0o1777, "the shared directory's mode")


@test
def shared():
    """the shared directory becomes writable for all; 0777 is left, and a link is not followed"""
    node = Node()
    os.mkdir(node.lock, 0o755)
    node.install()
    equal(mode(node.lock), 0o1777, "of one that only its owner wrote")
    os.chmod(node.lock, 0o777)
    node.install()
    equal(mode(node.lock), 0o777, "of HAMi's")
    other = os.path.join(node.root, "other")
    os.mkdir(other, 0o700)
    os.rmdir(node.lock)
    for where in (other, os.path.join(node.root, "nowhere")):
        os.symlink(where, node.lock)
        done = node.run()
        equal(done.returncode, 1, "status")
        true("is no directory" in done.stderr, done.stderr)
        os.unlink(node.lock)
    equal(mode(other), 0o700, "of what the link points at")
    true(not os.path.exists(os.path.join(node.root, "nowhere")), "a link's end was made")


@test
def check():
    """--check tells what is not as it should be, and changes nothing"""
    node = Node()
    equal(node.run("--check").returncode, 1, "where nothing is")
    equal(os.listdir(node.root), [], "what it made")
    node.install()
    for spoil, mend in ((lambda: os.truncate(node.final, 100), node.install),
                        (lambda: os.chmod(node.final, 0o700), node.install),
                        (lambda: os.unlink(os.path.join(node.target, "ld.so.preload")), node.install),
                        (lambda: os.chmod(node.lock, 0o755), node.install)):
        equal(node.run("--check").returncode, 0, "--check where all is well")
        spoil()
        done = node.run("--check")
        equal(done.returncode, 1, "--check of what was spoilt")
        true(done.stderr.startswith("vgpu-install: "), done.stderr)
        equal(node.run("--check").returncode, 1, "--check once more")
        mend()


@test
def watch():
    """--watch stays, puts back what is removed or written over, and ends at once by SIGTERM"""
    node = Node()
    with subprocess.Popen(node.command("--watch", "1"), env=MINE, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as installer:
        try:
            while "looking each 1 s" not in installer.stdout.readline():
                pass
            for spoil in (lambda: os.unlink(node.final), lambda: shutil.copy(node.other(), node.final),
                          lambda: shutil.rmtree(node.lock)):
                spoil()
                until = time.monotonic() + SECONDS
                while node.run("--check").returncode and time.monotonic() < until:
                    time.sleep(0.1)
                equal(node.run("--check").returncode, 0, "--check after a while")
        finally:
            installer.terminate()
        equal(installer.wait(timeout=SECONDS), 0, "its end")
    node = Node()
    equal(node.run("--watch", "1", source="/nowhere").returncode, 1, "of one that cannot even begin")


@test
def arguments():
    """arguments that are not understood are told in one line, by status 2, and nothing is done"""
    node = Node()
    for words in (["--bad"], ["more"], ["--watch", "0"], ["--watch", "1m"], ["--watch", ""], ["--target"],
                  ["--source", ""], ["--name", "a/b"], ["--name", ".."], ["--seen-as", "relative"],
                  ["--check", "--watch", "1"], ["--target", "a\nb"]):
        done = node.run(*words)
        equal((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), f"{words}")
        true(words[0].lstrip("-") in done.stderr or "path" in done.stderr, done.stderr)
    equal(os.listdir(node.root), [], "what was made")
    equal(node.run("--help").returncode, 0, "--help")


@test
def shells():
    """it runs under each shell that is here: dash, bash, and busybox with its own tools"""
    found = [[path] for path in ("/bin/dash", "/bin/bash") if os.path.exists(path)]
    environments = [{}] * len(found)
    busybox = shutil.which("busybox")
    with tempfile.TemporaryDirectory() as directory:
        if busybox:
            for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True,
                                         check=True).stdout.split():
                os.symlink(busybox, os.path.join(directory, applet))
            if not os.path.exists(os.path.join(directory, "flock")):
                os.symlink(shutil.which("flock"), os.path.join(directory, "flock"))
            found.append([busybox, "sh"])
            environments.append({"PATH": directory})
        for before, environment in zip(found, environments):
            node = Node()
            node.install("--probe", "/bin/cat", before=before, environment=environment)
            node.install("--probe", "/bin/cat", before=before, environment=environment, source=node.other())
            same(node.final, node.other())
            equal(mode(node.lock), 0o1777, "the shared directory's mode")
            done = node.run("--check", before=before, environment=environment)
            equal(done.returncode, 1, "--check of another library")
            equal(node.left(), [], "other files")


tap.main()
