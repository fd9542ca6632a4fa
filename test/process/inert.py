# SPDX-License-Identifier: Apache-2.0
"""inert BUILD: programs of the distribution, which use no GPU, behave the same with and without the
preload. What is compared is said in both.py."""
import functools
import os
import shutil
import subprocess
import sys
import tempfile

import tap
from both import CLEAN, PATH, both
from tap import Skip, test, true

BUILD = sys.argv[1]
LIBRARY = os.path.join(BUILD, "libvgpu.so")
NOISY = os.path.join(BUILD, "test/process/libtest-noisy.so")
WATCH = os.path.join(BUILD, "test/process/process-watch")
PYTHON = "/usr/bin/python3"


@functools.cache
def traceable():
    """Whether processes may be traced here."""
    with tempfile.NamedTemporaryFile() as report:
        return subprocess.run([WATCH, report.name, "true"], env=CLEAN, check=False,
                              stderr=subprocess.DEVNULL).returncode == 0


def program(sentence, *command, wants=(), silent=False, watched=True, **options):
    """watched=False: it traces processes itself, or its threads end in no order."""
    def body():
        for name in wants:
            if not shutil.which(name, path=PATH):
                raise Skip(f"no {name} here")
        watcher = WATCH if watched and traceable() else None
        seen = both(list(command), LIBRARY, watcher=watcher, **options)
        true(silent or seen.stdout + seen.stderr, "it says nothing that could be compared")
    body.__doc__ = sentence
    test(body)


def shell(sentence, script, **options):
    program(sentence, "sh", "-c", script, **options)


def writes(**files):
    """Fills the directory that a command starts in; "__" in a name stands for a dot."""
    def prepare(directory):
        for name, text in files.items():
            path = os.path.join(directory, name.replace("__", "."))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    return prepare


@test
def noticed():
    """a preload that changes anything is noticed by these tests"""
    if not traceable():
        raise Skip("processes cannot be traced here")
    for noise in ("umask", "handler", "ignored", "mask", "descriptor", "thread", "environment",
                  "directory", "stderr", "file", "child"):
        try:
            both(["sh", "-c", "echo x; ls / >/dev/null"], NOISY, watcher=WATCH,
                 extra={"VGPU_TEST_NOISE": noise})
        except AssertionError:
            continue
        raise AssertionError(f"nobody notices {noise}")


# Shells.
program("bash: pipes, jobs, process substitution, traps, coprocesses", "bash", "-c", r"""
echo $((6 * 7)); (exit 3); echo $?
sleep 0.01 & wait $!; echo "job $?"
printf '%s\n' c a b | sort | tee >(cat >/dev/null) | head -n 2
trap 'echo usr1' USR1; kill -USR1 $$; trap 'echo bye' EXIT
for i in 1 2 3; do ( exec echo "exec $i" ); done
coproc cat; echo through >&${COPROC[1]}; read -r line <&${COPROC[0]}; echo "$line"
exit 5""")
shell("dash: subshells, background jobs, command substitution, traps, execs", r"""
a=$(echo inner; exit 4); echo "$a $?"
( trap 'echo term; exit 9' TERM; kill -TERM $(sh -c 'echo $PPID') ); echo $?
{ echo one; echo two; } | while read -r x; do echo "got $x"; done
sleep 0.01 & wait; echo $(( $(echo 2) * 21 )); exec sh -c 'exec sh -c "echo deep; exit 6"'""")
program("bash with a limit that is not understood", "bash", "-c", "echo here; umask; ulimit -a",
        limit="abc")
shell("what a shell's child is given: umask, limits, signals, descriptors, threads", r"""
umask; ulimit -a; umask 077; umask; trap '' HUP PIPE; exec 7</dev/null
sh -c "grep -E 'Umask|Sig(Blk|Ign|Cgt)|Threads|Seccomp|NoNewPrivs' /proc/self/status"
ls /proc/self/fd""")
shell("programs killed by signals", r"""
for s in HUP INT QUIT ABRT SEGV BUS PIPE TERM USR1; do
    sh -c "ulimit -c 0; kill -$s \$\$"; echo "$s $?"
done""")
shell("a program that is not there, and one that cannot be run",
      "sh -c /nonexistent/program; sh -c /etc/passwd; exec /nonexistent/program")
shell("setsid, env, nice, timeout, flock, nohup", r"""
setsid -w sh -c 'echo session'; env -i /bin/echo empty; nice -n 3 nice; timeout 60 sh -c 'exit 7'; echo $?
flock -x lock sh -c 'echo locked'; nohup echo nohup""", wants=["flock", "setsid"])

# Text and files.
shell("coreutils", r"""
seq 100 | shuf --random-source=/usr/bin/sort | sort -n | uniq -c | wc; date -u -d @0
printf abc | md5sum; echo text > a; cp a b; ln -s a c; mv b d; ls -l --time-style=+ | cut -c1-10
stat -c %a a; chmod 600 a; touch -d @5 a; stat -c %Y a; tac a; comm a c; join a a; fold -w2 a; id; pwd
dd if=/dev/zero bs=1k count=3 2>/dev/null | od -c | tail -n 1; mkdir -p x/y; rmdir x/y x; split -n 2 a""")
program("ls of a directory and of its own descriptors", "ls", "-la", "/usr", "/proc/self/fd/0")
shell("find and xargs", r"""
mkdir -p a/b/c; touch a/1 a/b/2 a/b/c/3
find . -type f | sort | xargs -n 1 -P 1 basename; find . -name 2 -exec sh -c 'echo "$0"' {} \;
seq 20 | xargs -P 4 -n 5 sh -c 'exit 0'; find a -delete; ls""")
shell("grep, sed and awk", r"""
grep -c . /etc/passwd; sed -n 1p /etc/passwd; echo abc | sed 's/b/x/;w out'; cat out
awk -F: 'END { print NR; "echo sub" | getline x; print x }' /etc/passwd
awk 'BEGIN { system("echo system"); exit 3 }'""")
shell("tar with gzip and xz", r"""
mkdir d; echo text > d/a; tar --mtime=@0 --owner=0 --group=0 -czf t.tgz d; tar -tzf t.tgz
gzip -dc t.tgz | tar -xOf - d/a; tar -cf - d | xz -0 -T1 | xz -d | tar -tf -; rm t.tgz""",
      wants=["tar", "xz"])
shell("diff, cmp and diff's use of another program", "echo a > a; echo b > b; diff a b; cmp a b; "
      "diff -y a b", wants=["diff"])
program("dd, which handles a signal", "dd", "if=/dev/zero", "of=/dev/null", "count=1", "status=none",
        silent=True)
program("a terminal's program without a terminal", "stty", "size")

# Languages.
program("python3: threads, children, signals, descriptors, ctypes", PYTHON, "-c", r"""
import ctypes, errno, os, signal, subprocess, threading
threads = [threading.Thread(target=print, args=(i,)) for i in range(3)]
for thread in threads:
    thread.start(); thread.join()
print(subprocess.check_output(['echo', 'child']), subprocess.run('exit 3', shell=True).returncode)
print([signal.getsignal(n) for n in range(3, 32) if n not in (9, 19)], signal.pthread_sigmask(0, ()))
print(sorted(os.listdir('/proc/self/fd')))
signal.signal(signal.SIGALRM, lambda *_: print('alarm'))
signal.alarm(1); signal.pause()
try:
    os.stat('/nonexistent')
except OSError as error:
    print(errno.errorcode[error.errno])
libc = ctypes.CDLL(None, use_errno=True)
print(libc.strlen(b'four'), hasattr(libc, 'no_such_function'), hasattr(libc, 'mutex'))
pid = os.fork()
if pid == 0:
    os._exit(5)
print(os.waitpid(pid, 0)[1])
""")
program("python3: multiprocessing by fork and by spawn", PYTHON, "-c", r"""
import multiprocessing, sys
if __name__ == '__main__':
    for method in ('fork', 'spawn'):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            print(method, pool.map(abs, range(-5, 5), 5))
            pool.close(); pool.join()
        process = context.Process(target=sys.exit, args=(7,)); process.start(); process.join()
        print(process.exitcode)
""", watched=False)
program("python3: a daemon that closes all descriptors", PYTHON, "-c", r"""
import os
print('parent', flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir('/'); os.umask(0); os.closerange(0, 100)
    os._exit(0)
os.wait()
""")
program("python3 asking for functions that sound like the driver's", PYTHON, "-c", r"""
import ctypes
libc = ctypes.CDLL(None)
print([hasattr(libc, n) for n in ('curl_easy_init', 'custom', 'cut', 'nvmlFoo', 'cuFoo')])
""")
program("perl: fork, pipes, signals", "perl", "-e", r"""
$| = 1; print join(',', map { $_ ** 2 } 1 .. 5), "\n"; pipe(R, W); my $pid = fork;
if (!$pid) { close R; print W "child\n"; exit 3 } close W; print <R>; waitpid($pid, 0);
print $? >> 8, "\n"; $SIG{USR1} = sub { print "usr1\n" }; kill 'USR1', $$;
print `echo backtick`; open(P, '-|', 'echo piped'); print <P>; exit 4""")
# The threads of node and java end in no order, and some before their start is seen.
program("node: worker threads", "node", "threads.js", watched=False, prepare=writes(threads__js=r"""
const { Worker, isMainThread, parentPort } = require('worker_threads');
if (isMainThread) {
  const w = new Worker(__filename);
  w.on('message', m => console.log(m)); w.on('exit', code => console.log('exit', code));
} else parentPort.postMessage([1, 2].map(x => x * 2).join());"""))
program("node: child processes and signals", "node", "-e", r"""
const c = require('child_process'); console.log(c.execSync('echo sync').toString(), process.umask());
const p = c.spawn('sh', ['-c', 'echo out; exit 3']); p.stdout.on('data', d => console.log(d.toString()));
const wait = setInterval(() => 0, 1000);
process.on('SIGUSR2', () => { console.log('usr2'); clearInterval(wait); });
p.on('close', (...how) => { console.log(how.join()); process.kill(process.pid, 'SIGUSR2'); });""",
        watched=False)
program("java's version", "java", "-version", watched=False)
program("java running a source file", "java", "Hello.java", "x", wants=["javac"], watched=False,
        prepare=writes(Hello__java=r"""
class Hello { public static void main(String[] a) { System.out.println(a.length); System.exit(3); } }"""))

# Tools.
shell("git", r"""
git init -q -b main .; git config user.email a@b; git config user.name n; echo x > f; git add f
GIT_AUTHOR_DATE=@0 GIT_COMMITTER_DATE=@0 git commit -q -m first; git log --format=%H
git status --short; git diff HEAD; git grep -c x; rm -rf .git""", wants=["git"])
shell("gdb running a program", r"""
gdb -nx --batch -ex 'set startup-with-shell off' -ex 'break exit' -ex run -ex 'info threads' \
    -ex continue /bin/true 2>errors |
    sed 's/0x[0-9a-f]*/X/g; s/process [0-9]*/process N/; s/LWP [0-9]*/LWP N/'
cat errors; rm errors""",
      wants=["gdb"], watched=False)
program("strace of a program", "strace", "-qq", "-e", "trace=write,umask,rt_sigaction,clone,ioctl",
        "echo", "traced", watched=False)
shell("make with two jobs", "make -s -j2; make -s fail; ls", wants=["make"], prepare=writes(
    Makefile="all: a b\n\t@echo all $^\na b:\n\t@echo $@ > $@\n.PHONY: fail\nfail:\n\t@exit 3\n"))
shell("gcc, and what it made", "gcc -O1 -pipe -o p p.c && ./p; echo $?", wants=["gcc"], prepare=writes(
    p__c='#include <stdio.h>\nint main(void) { return puts("compiled") < 0 ? 1 : 9; }\n'))
shell("meson and ninja", "meson --version; ninja -j1; ninja | tail -n 1; rm -f .ninja_*",
      wants=["meson", "ninja"], prepare=writes(
          build__ninja="rule r\n  command = echo made > $out\nbuild a: r\nbuild b: r a\n"))
shell("openssl", r"""
openssl version; printf abc | openssl dgst -sha256
printf abc | openssl enc -aes-128-cbc -K 00 -iv 00 2>/dev/null | od -c""", wants=["openssl"])
shell("curl and wget, whose functions begin with cu", r"""
curl --version; curl -s file:///etc/hostname; curl -s http://127.0.0.1:1/; echo $?
wget --version | head -n 1; wget -q -T 1 -t 1 http://127.0.0.1:1/; echo $?""", wants=["curl", "wget"])
shell("ssh's version", "ssh -V", wants=["ssh"])
program("sqlite3", "sqlite3", "a.db",
        "create table t(a); insert into t values(1),(2); select sum(a), count(*) from t;")
shell("busybox, whether static or not", r"""
busybox sh -c 'echo in busybox; busybox seq 3 | busybox sort -r; ( exit 4 ); echo $?; umask'
busybox tar -cf - -C /etc passwd | busybox tar -tf -""", wants=["busybox"])

tap.main()
