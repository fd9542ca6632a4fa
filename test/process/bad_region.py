# SPDX-License-Identifier: Apache-2.0
"""bad_region BUILD: a region's file that cannot be one, or cannot be had. One line; with a memory limit
the device is full or the limit is kept, without one the program runs."""
import os
import resource
import signal
import socket
import struct
import subprocess
import tempfile

import tap
from bad import SLICE, is_full, is_limited, is_whole, run_slice
from mine import BUILD, MINE
from tap import Skip, equal, test, true

NOBODY = 65534
OFFSET = 2011136  # of our part, docs/region.md
FILE_BYTES = 11137792
HAMI_BYTES = 2008952
# Of the ledger that is chosen, not of the region.
CHOICE = "counted by the API ledger"


def region_directory():
    directory = tempfile.TemporaryDirectory()
    os.chmod(directory.name, 0o755)
    return directory


def lines_of(done):
    return [line for line in done.lines if CHOICE not in line]


def check(path, what, kept=False, **options):
    """Both ways. `kept`: the region may be usable all the same, and then the limit holds."""
    done = run_slice({"CUDA_DEVICE_MEMORY_SHARED_CACHE": path, "CUDA_DEVICE_MEMORY_LIMIT": "1g"},
                     **options)
    equal(done.status, 7, f"{what}: status, {done.stderr[:600]!r}")
    lines = lines_of(done)
    if kept and not lines:
        is_limited(done, 0, 1024, what)
    elif kept and len(lines) == 1 and "no slot" in lines[0]:
        true(0 not in done.device(0)[3:4] + done.device(0)[5:], f"{what}: memory was given: {done.stdout}")
    else:
        is_full(done, 0, what)
        equal(len(lines), 1, f"{what}: lines of {done.stderr[:1500]!r}")
        line = lines[0]
        true("ERROR" in line and path[:100] in line and "full" in line and line.isprintable(),
             f"{what}: {line!r}")
    if kept and not lines:
        return  # a limit that the region has by now is the container's
    done = run_slice({"CUDA_DEVICE_MEMORY_SHARED_CACHE": path}, **options)
    equal(done.status, 7, f"{what}, no limit: status, {done.stderr[:600]!r}")
    is_whole(done, 0, f"{what}, no limit")
    lines = lines_of(done)
    true(len(lines) <= 1 and (kept or lines), f"{what}, no limit: {done.stderr[:1500]!r}")
    true(all("ERROR" not in line for line in lines), f"{what}: {lines!r}")


def write(path, content=b"", size=None):
    with open(path, "wb") as file:
        file.write(content)
        if size is not None:
            file.truncate(size)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def make_region(path):
    done = run_slice({"CUDA_DEVICE_MEMORY_SHARED_CACHE": path})
    equal((done.status, os.path.getsize(path)), (7, FILE_BYTES), done.stderr)


def patch(path, offset, value, size=4):
    with open(path, "r+b") as file:
        file.seek(OFFSET + offset)
        file.write(struct.pack("<I" if size == 4 else "<Q", value))


@test
def foreign():
    """another program's file is refused and left as it is"""
    with region_directory() as directory:
        path = f"{directory}/region"
        for what, data, size in (("text", b"not yours\n", None), ("a byte", b"x", None),
                                 ("HAMI's size and one", b"x", HAMI_BYTES + 1),
                                 ("a region's size", b"x" * OFFSET + b"OTHERMAG", FILE_BYTES),
                                 ("a byte less", b"x", FILE_BYTES - 1), ("a byte more", b"x", FILE_BYTES + 1),
                                 ("half of it", b"x", OFFSET + 256), ("a terabyte", b"x", 1 << 40)):
            write(path, data, size)
            before = os.stat(path)
            check(path, what)
            after = os.stat(path)
            equal((after.st_size, after.st_mtime_ns, after.st_blocks),
                  (before.st_size, before.st_mtime_ns, before.st_blocks), f"{what}: was touched")
        for size in (1, 4096, FILE_BYTES + 1, 1 << 40):  # nobody's: no byte was ever written
            write(path, b"", size)
            check(path, f"{size} bytes of hole", kept=True)


@test
def no_file():
    """what is no regular file is refused, and nothing waits for it"""
    with region_directory() as directory:
        path = f"{directory}/region"
        os.mkdir(path)
        check(path, "a directory")
        os.rmdir(path)
        os.mkfifo(path)
        check(path, "a pipe")
        os.unlink(path)
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        check(path, "a socket")
        server.close()
        for device in ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/proc/self/mem", "/proc/version",
                       "/proc/no/region", "/sys/region"):
            if os.path.exists(os.path.dirname(device)):
                check(device, device)
        write(f"{directory}/file")
        check(f"{directory}/file/region", "a path through a file")
        check(f"{directory}/{'r' * 300}", "a name that is too long")
        check("/" + "r/" * 2500 + "region", "a path that is too long")


@test
def links():
    """a symbolic link is refused, or what it leads to keeps the limit"""
    with region_directory() as directory:
        link = f"{directory}/link"
        make_region(f"{directory}/region")
        os.symlink(f"{directory}/region", link)
        check(link, "to a region", kept=True)
        os.unlink(link)
        os.symlink(f"{directory}/nothing", link)
        check(link, "to nothing", kept=True)
        os.unlink(link)
        os.symlink(link, link)
        check(link, "to itself")
        os.unlink(link)
        write(f"{directory}/precious", b"precious")
        os.symlink(f"{directory}/precious", link)
        check(link, "to a file")
        equal(content(f"{directory}/precious"), b"precious")


@test
def versions():
    """a region of another version, byte order or size of tables is refused and left as it is"""
    with region_directory() as directory:
        path = f"{directory}/region"
        for what, offset, value in (("older", 8, 1), ("former", 8, 3), ("newer", 8, 5), ("far newer", 8, 2**32 - 1),
                                    ("other byte order", 12, 0x04030201), ("size", 16, 4096),
                                    ("devices", 24, 16), ("devices", 24, 2**31), ("slots", 28, 1),
                                    ("slots", 28, 2**32 - 1), ("half a magic", 0, 0x12345678)):
            make_region(path)
            patch(path, offset, value)
            before = content(path)
            check(path, what)
            equal(content(path) == before, True, f"{what}: untouched")
            os.unlink(path)


@test
def truncated():
    """a region that was cut off is refused, or made anew with the limit"""
    with region_directory() as directory:
        path = f"{directory}/region"
        for size in (0, 1, 4095, HAMI_BYTES - 1, HAMI_BYTES, OFFSET, OFFSET + 8, OFFSET + 256,
                     OFFSET + 8448, FILE_BYTES - 8320, FILE_BYTES - 1):
            make_region(path)
            os.truncate(path, size)
            check(path, f"cut to {size}", kept=True)
            os.unlink(path)


def as_nobody():
    if os.geteuid() != 0:
        raise Skip("needs root to become another user")
    options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    with region_directory() as directory:
        os.chmod(directory, 0o777)
        try:
            done = run_slice({}, directory=directory, **machine_for(directory, **options))
            reachable = done.status == 7
        except OSError:
            reachable = False
        if not reachable:
            raise Skip("another user cannot read the build directory")
    return options


def machine_for(directory, **options):
    """The simulated machine is a user's own too."""
    os.chmod(directory, 0o777)
    return dict(options, machine=f"{directory}/machine")


@test
def rights():
    """a file or directory that may not be used is refused"""
    options = as_nobody()
    with region_directory() as machine, region_directory() as directory:
        options = machine_for(machine, **options)
        path = f"{directory}/region"
        for mode in (0o000, 0o400, 0o444, 0o644):
            make_region(path)
            os.chmod(path, mode)
            check(path, f"mode {mode:o}", **options)
            os.unlink(path)
        check(path, "a directory that may not be written", **options)
        check(f"{directory}/deep/below/region", "one below it", **options)
        os.mkdir(f"{directory}/closed", 0o700)
        check(f"{directory}/closed/region", "a directory that may not be entered", **options)


@test
def sticky():
    """another user's file in a sticky directory is refused"""
    options = as_nobody()
    with region_directory() as machine, region_directory() as directory:
        os.chmod(directory, 0o1777)
        path = f"{directory}/region"
        write(path, b"another's")
        os.chmod(path, 0o644)
        check(path, "not ours to write", **machine_for(machine, **options))
        os.chmod(path, 0o666)
        check(path, "ours to write, but no region", **machine_for(machine, **options))
        equal(content(path), b"another's")


def mounted(script):
    """slice in a mount namespace of its own, after the script; $1 is the region's directory."""
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], env=MINE,
                           capture_output=True, check=False)
    if probe.returncode:
        raise Skip("may not mount a file system of its own")
    return lambda directory: {"program": ("unshare", "-m", "sh", "-ec", script + '; exec "$0"', SLICE,
                                          directory)}


@test
def read_only():
    """a read-only file system is refused, with a region on it or without"""
    with region_directory() as directory:
        path = f"{directory}/region"
        empty = mounted('mount -t tmpfs -o ro none "$1"')(directory)
        check(path, "empty", **empty)
        check(f"{directory}/below/region", "one below it", **empty)
        make_region(path)
        check(path, "with a region", **mounted('mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"')(directory))


@test
def full_disk():
    """a file system with no room kills no program and loses no limit"""
    with region_directory() as directory:
        path = f"{directory}/region"
        for pages in (1, 2, 3, 4, 5, 6, 7, 8, 16):
            options = mounted(f'mount -t tmpfs -o size={pages * 4}k none "$1"')(directory)
            check(path, f"{pages} pages", kept=True, **options)
        for left in (0, 1, 3, 5):
            fill = f'head -c {(16 - left) * 4096} /dev/zero >"$1/filler"'
            options = mounted(f'mount -t tmpfs -o size=64k none "$1"; {fill}')(directory)
            check(path, f"{left} of 16 pages left", kept=left > 2, **options)
        options = mounted('mount -t tmpfs -o nr_inodes=1 none "$1"')(directory)
        check(path, "no file more", **options)


def limited_to(number, value):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(number, (value, value))
    return limit


@test
def file_size():
    """a bound on the size of files kills no program and loses no limit"""
    with region_directory() as directory:
        path, machine = f"{directory}/region", f"{directory}/machine"
        run_slice({}, machine=machine)  # the simulated machine exists
        for size in (0, 4096, HAMI_BYTES, FILE_BYTES - 1):
            options = {"machine": machine, "preexec_fn": limited_to(resource.RLIMIT_FSIZE, size)}
            check(path, f"at most {size} bytes", **options)
            true(not os.path.exists(path) or os.path.getsize(path) == 0, f"{size}: something was left")
        make_region(path)
        options["preexec_fn"] = limited_to(resource.RLIMIT_FSIZE, 0)
        check(path, "a region that exists", kept=True, **options)


@test
def descriptors():
    """a bound on descriptors kills no program and loses no limit"""
    for most in list(range(3, 12)) + [64]:
        done = run_slice({"CUDA_DEVICE_MEMORY_LIMIT": "1g"},
                         preexec_fn=limited_to(resource.RLIMIT_NOFILE, most))
        true(done.status >= 0, f"{most} descriptors: signal {-done.status}")
        for device in range(len(done.devices) if done.status == 7 else 0):
            _, _, free, _, context_free, _, _ = done.device(device)
            true(free <= 1024 and context_free <= 1024, f"{most} descriptors: {done.stdout}")


@test
def relative():
    """a relative path, one with blanks, and one with odd characters are paths"""
    with region_directory() as directory:
        for name in ("here", "a b", "é", "x\ny", "%s%n", "-", "..region", "a" * 255):
            path = f"{directory}/{name}" if name != "here" else name
            done = run_slice({"CUDA_DEVICE_MEMORY_SHARED_CACHE": path, "CUDA_DEVICE_MEMORY_LIMIT": "1g"},
                             cwd=directory)
            equal((done.status, done.lines), (7, []), name)
            is_limited(done, 0, 1024, name)
            true(os.path.exists(f"{directory}/{name}"), f"{name!r} is not there")


@test
def vgpu_run():
    """vgpu run with a region that is none says it once, and its command ends as it does"""
    with region_directory() as directory:
        path = f"{directory}/region"
        write(path, b"not yours\n")
        for limit, check_device in ((("--memory", "1g"), is_full), ((), is_whole)):
            done = run_slice({}, program=(f"{BUILD}/vgpu", "run", *limit, "--region", path, "--sim", "--",
                                          SLICE), bare=True)
            equal(done.status, 7, done.stderr)
            equal(len(lines_of(done)), 1, done.stderr)
            check_device(done, 0, done.stderr)


tap.main()
