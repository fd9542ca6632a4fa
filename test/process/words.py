# SPDX-License-Identifier: Apache-2.0
"""words SOURCE BUILD: that the commands, their manual pages, their completion and their JSON say the same,
and what `vgpu run --env` prints."""
import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.abspath(sys.argv.pop(1))

import tap
from tap import Skip, equal, test, true

from mine import BUILD, MINE, VGPU
from place import NOBODY, Place, child_of, need_nobody, refused_line, tool
from screen import Terminal

SMI = os.path.join(BUILD, "examples/vgpu-example-smi")


def commands():
    """Name to what `vgpu --help` says of it."""
    done = tool(VGPU, "--help")
    equal(done.returncode, 0)
    return dict(re.findall(r"^  ([a-z][a-z-]*) +(.+)$", done.stdout, re.M))


def options(command):
    """Option to its value's name, as --help lists them; each has --help."""
    done = tool(VGPU, command, "--help")
    if done.returncode == 1 and "not installed" in done.stderr:
        raise Skip(f"needs what builds vgpu-{command}")
    equal((done.returncode, done.stderr), (0, ""), command)
    found = re.findall(r"^  (?:-h, )?(--[a-z-]+)(?:\[?[= ]([A-Z]+))?", done.stdout, re.M)
    return {**dict(found), "--help": ""}


def page(name):
    with open(f"{SOURCE}/man/{name}.1", encoding="utf-8") as file:
        return file.read()


@test
def pages():
    """each command has a manual page that lists the options that --help does, and vgpu(1) each command"""
    for command in commands():
        listed = set(re.findall(r"^\.It (?:Fl \S+ , )?Fl Fl (\S+)", page(f"vgpu-{command}"), re.M))
        equal(sorted("--" + name for name in listed), sorted(options(command)), f"options of vgpu-{command}(1)")
        true(f".Xr vgpu-{command} 1" in page("vgpu"), f"vgpu(1) without {command}")
    listed = {name for name in os.listdir(f"{SOURCE}/man") if name.endswith(".1")}  # daemons have tests of their own
    equal(sorted(listed), sorted(["vgpu.1"] + [f"vgpu-{command}.1" for command in commands()]), "pages")


@test
def summaries():
    """a page's synopsis and the usage line name the same options"""
    for command in commands():
        synopsis = page(f"vgpu-{command}").split(".Sh SYNOPSIS")[1].split(".Sh")[0]
        usage = tool(VGPU, command, "--help").stdout.split("\n\n")[0]
        if "Ar OPTION" not in synopsis:
            equal(sorted(set(re.findall(r"Fl Fl ([a-z][a-z-]*)", synopsis))),
                  sorted(set(re.findall(r"--([a-z][a-z-]*)", usage))), command)


@test
def known_options():
    """an option that --help lists is one, and another is refused with the way to --help"""
    for command in commands():
        for option, value in options(command).items():
            done = tool(VGPU, command, option, *([] if not value else ["\x01"]), "--no-such-option")
            true(f'"{option}" is not an option' not in done.stderr, f"{command} {option}: {done.stderr}")
        refused_line(tool(VGPU, command, "--no-such-option"), 2, '"--no-such-option"', f"vgpu {command} --help")
    # Of one whose options may follow a file, too, and behind "--" there is none.
    for word in ("--no-such-option", "-z", "--check=no"):
        refused_line(tool(VGPU, "region", "/nowhere", word), 2, f'"{word}"')
    refused_line(tool(VGPU, "region", "/nowhere", "--check", "--repair"), 2, "exclude")
    refused_line(tool(VGPU, "region", "--", "--check"), 1, "--check: No such file")
    refused_line(tool(VGPU, "region", "--", "/nowhere", "--check"), 2, '"--check"', "too many")


@test
def help_of():
    """`vgpu help COMMAND` says what the command's --help does, and refuses what is no command as vgpu does"""
    for command in commands():
        wanted = tool(VGPU, command, "--help")
        said = tool(VGPU, "help", command)
        equal((said.returncode, said.stdout, said.stderr), (wanted.returncode, wanted.stdout, wanted.stderr), command)
    for words in (("help",), ("help", "help"), ("help", "--help"), ("-h",)):
        said = tool(VGPU, *words)
        equal((said.returncode, said.stdout, said.stderr), (0, tool(VGPU, "--help").stdout, ""), words)
    for word in ("", "no-such\n", "pss"):
        said, wanted = tool(VGPU, "help", word), tool(VGPU, word)
        equal((said.returncode, said.stdout, said.stderr), (2, "", wanted.stderr), word)
        refused_line(said, 2, "is not a command", "vgpu --help")
    refused_line(tool(VGPU, "help", "ps", "set"), 2, '"set"', "accepted: one")


@test
def named():
    """what is refused is a line that begins with the tool and the command, wherever it is found out"""
    for words in (("set", "--cores", "half"), ("set", "--cores", "3", "--region", "/nowhere"),
                  ("set", "--cores", "3", "--pid", "0"), ("set", "--cores", "3", "--pid", "1", "--region", "x"),
                  ("set",), ("pause", "--region", "/nowhere"), ("pause", "--pid", "x"), ("pause", "now"),
                  ("resume", "--region", "/nowhere"), ("resume", "--pid", str(os.getpid())), ("resume", "--al"),
                  ("run",), ("run", "/nowhere"), ("run", "--sim=5xnone", "true"), ("doctor", "--", "/nowhere"),
                  ("doctor", "--device", "x"), ("ps", "--pid", "0"), ("region",), ("region", "/nowhere"),
                  ("top", "--sort", "x"), ("bench", "--only", "x"), ("bench", "--region", "x")):
        done = tool(VGPU, *words)
        true(re.fullmatch(rf"vgpu: {words[0]}: (?!{words[0]}: )[^\n]+\n", done.stderr), f"{words}: {done.stderr!r}")
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        for words in (("--cores", "3", "--device", "7"), ("--memory", "1g"), ("--memory", "1m"), ("--soft-cores", "10")):
            done = tool(VGPU, "set", *words, "--region", place.region)
            lines = r"vgpu: set: device [^\n]+\n(vgpu: set: a memory limit of 1 MiB is less [^\n]+\n)?"
            true(re.fullmatch(lines if words[1] != "1g" else "", done.stderr), f"{words}: {done.stderr!r}")


@test
def formatted():
    """the manual pages are without a fault in their form"""
    checks = [["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-ww", "-mdoc", "-Tutf8"]]
    checks = [check for check in checks if shutil.which(check[0])]
    if not checks:
        raise Skip("needs mandoc or groff")
    for check in checks:
        for name in sorted(os.listdir(f"{SOURCE}/man")):
            done = subprocess.run([*check, f"{SOURCE}/man/{name}"], env=MINE, capture_output=True, text=True,
                                  check=False)
            said = done.stdout if check[0] == "mandoc" else done.stderr
            equal((done.returncode, said), (0, ""), f"{check[0]} {name}")


@test
def installed():
    """each manual page, completion file and public header is installed"""
    done = subprocess.run(["meson", "introspect", "--installed", BUILD], capture_output=True, text=True, check=True)
    source = os.path.realpath(SOURCE)
    said = {os.path.relpath(os.path.realpath(name), source) for name in json.loads(done.stdout)}
    there = {f"{folder}/{name}" for folder in ("man", "completions", "include/vgpu")
             for name in os.listdir(f"{source}/{folder}")}
    equal(sorted(there - said), [], "what is not installed")


def bash(*words):
    """What bash would complete the last word to."""
    script = (f"source '{SOURCE}/completions/vgpu.bash'; COMP_WORDS=({shlex.join(words)}); "
              f"COMP_CWORD={len(words) - 1}; _vgpu; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    done = subprocess.run(["bash", "--norc", "-c", script], env=MINE, capture_output=True, text=True, check=False)
    equal((done.returncode, done.stderr), (0, ""), shlex.join(words))
    return done.stdout.split()


@test
def in_bash():
    """bash completes commands, all options of each, files, and the command that is run"""
    equal(sorted(bash(VGPU, "")), sorted([*commands(), "help", "--help", "--version"]))
    equal((sorted(bash(VGPU, "help", "")), bash(VGPU, "help", "ps", "")), (sorted(commands()), []))
    equal(bash(VGPU, "re"), [name for name in commands() if name.startswith("re")])
    for command in commands():
        offered = {word for word in bash(VGPU, command, "--")}
        true(set(options(command)) - {"--help"} <= offered, f"{command}: {offered}")
        equal(offered - set(options(command)), set(), command)
    with tempfile.TemporaryDirectory() as directory:
        for name in ("region-a", "region-b", "other"):
            open(f"{directory}/{name}", "wb").close()
        files = [f"{directory}/region-a", f"{directory}/region-b"]
        for words in (("set", "--region"), ("ps", "--search"), ("region",), ("region", "--check")):
            equal(sorted(bash(VGPU, *words, f"{directory}/reg")), files, words)
    for words in (("run",), ("run", "--memory", "2g"), ("doctor", "--"), ("doctor", "--output", "x", "--"), ("run", "--sim", "=", "1xh200", "--"), ("run", "--")):
        true("bash" in bash(VGPU, *words, "bas"), words)
    equal(bash(VGPU, "set", "--memory", ""), [])
    true(str(os.getpid()) in bash(VGPU, "ps", "--pid", ""), "pids")


def zsh(line):
    """The terminal's text after a tab in an interactive shell."""
    master, slave = pty.openpty()
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(["zsh", "-f", "-i"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                   env={**MINE, "HOME": home, "TERM": "xterm",
                                        "PATH": f"{BUILD}:{os.environ['PATH']}"}, close_fds=True)
        os.close(slave)
        text = b""

        def until(word, seconds=20):
            nonlocal text
            end = time.monotonic() + seconds
            while word not in text and time.monotonic() < end:
                if select.select([master], [], [], 0.2)[0]:
                    text += os.read(master, 65536)
            return word in text
        try:
            os.write(master, f"PS1=; fpath=('{SOURCE}/completions' $fpath); autoload -U compinit; "
                             f"compinit -u -d {home}/dump; setopt list_ambiguous no_beep; LISTMAX=500; "
                             f"zstyle ':completion:*' list-prompt ''; echo rea''dy\n".encode())
            true(until(b"ready\r\n"), f"zsh does not start: {text!r}")
            text = b""
            os.write(master, line.encode() + b"\t")
            until(b"\x00", 3)
        finally:
            process.kill()
            process.wait()
            os.close(master)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode(errors="replace"))


@test
def in_zsh():
    """zsh completes commands and all options of each"""
    if not shutil.which("zsh"):
        raise Skip("needs zsh")
    for line in ("vgpu ", "vgpu help "):
        said = zsh(line)
        for command in commands():
            true(re.search(rf"\b{command}\b", said), f"{line!r}: no {command} in {said!r}")
    for command in ("ps", "set", "run", "region"):
        said = zsh(f"vgpu {command} --")
        for option in options(command):
            true(option in said, f"{command}: no {option} in {said!r}")


def run_env(*arguments, **more):
    done = tool(VGPU, "run", "--env", *arguments, **more)
    equal((done.returncode, done.stderr), (0, ""), arguments)
    return done.stdout


@test
def env():
    """what `vgpu run --env` prints puts a shell where `vgpu run` puts a command"""
    with Place() as place:
        arguments = ("--memory", "3g", "--cores", "30", "--region", place.directory + "/it's a \"region\"",
                     f"--sim=1xh200,machine={place.directory}/machine")
        inside = tool(VGPU, "run", *arguments, "--", SMI)
        shell = tool("sh", "-c", f'eval "$("$0" run --env "$@")" && exec {shlex.quote(SMI)}', VGPU, *arguments)
        equal((shell.returncode, shell.stdout, shell.stderr), (0, inside.stdout, ""))
        true("3072" in shell.stdout or "3.0" in shell.stdout or "3221225472" in shell.stdout, shell.stdout)
        true(os.path.exists(place.directory + "/it's a \"region\""), "the region")


@test
def env_lines():
    """each line is an export or an unset, and --json has the same"""
    with Place() as place:
        outer = {"CUDA_DEVICE_MEMORY_LIMIT": "1g", "LD_LIBRARY_PATH": "/a b"}
        arguments = ("--memory", "2g,1g", "--region", place.region)
        lines = run_env(*arguments, environment=outer).splitlines()
        true(all(re.match(r"(export [A-Za-z_0-9]+='.*'|unset [A-Za-z_0-9]+)$", line) for line in lines), lines)
        said = json.loads(run_env("--json", *arguments, environment=outer))
        equal(said["unset"], ["CUDA_DEVICE_MEMORY_LIMIT"])
        equal(sorted(lines), sorted([f"export {name}={shlex.quote(value) if shlex.quote(value)[0] == chr(39) else chr(39) + value + chr(39)}"
                                     for name, value in said["set"].items()] +
                                    [f"unset {name}" for name in said["unset"]]))
        equal((said["set"]["CUDA_DEVICE_MEMORY_LIMIT_0"], said["set"]["CUDA_DEVICE_SM_LIMIT"]
               if "CUDA_DEVICE_SM_LIMIT" in said["set"] else None), ("2g", None))
        true(not os.path.exists(place.region), "something was run")
        refused_line(tool(VGPU, "run", "--env", "ls"), 2, "ls", "--env")
        refused_line(tool(VGPU, "run", "--json", "ls"), 2, "--json", "--env")


@test
def changes_as_json():
    """set, pause and resume say as JSON what holds then, and refuse as without it"""
    with Place() as place, place.program("--memory", "4g", "--cores", "30") as program:
        program.got(100)

        def say(command, *arguments, status=0):
            done = tool(VGPU, command, "--json", "--region", place.region, *arguments)
            equal(done.returncode, status, done.stderr)
            return json.loads(done.stdout), done.stderr
        said, words = say("set", "--memory", "3g", "--soft-cores", "60", "--priority", "0")
        device = said["devices"][0]
        equal((said["set"], said["region"], said["priority"], words), (1, place.region, 0, ""))
        equal((device["memory_limit"], device["core_limit"], device["core_soft_limit"]), (3 << 30, 30, 60))
        true(device["used"] >= 100 << 20, device)
        equal(said["other_devices"]["memory_limit"], 3 << 30)
        said, words = say("set", "--memory", "50m")
        true("in use" in words and said["devices"][0]["memory_limit"] == 50 << 20, words)
        for command, was, paused in (("pause", False, True), ("pause", True, True), ("resume", True, False),
                                     ("resume", False, False)):
            said, words = say(command)
            equal((said[command], said["was_paused"], said["paused"], words), (1, was, paused, ""), command)
            equal((said["process_count"], said["processes"][0]["pid"]), (1, child_of(program)), "processes")
        refused_line(tool(VGPU, "set", "--json", "--memory", "1g", "--region", "/nowhere"), 1, "/nowhere")
        refused_line(tool(VGPU, "set", "--json", "--memory", "x"), 2, "--memory", "x")
        refused_line(tool(VGPU, "set", "--json", "--device", "7", "--memory", "1g", "--region", place.region), 1, "7")


@test
def unwritten():
    """what cannot be written, as to a full file system, is one line and status 1"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        shrreg = os.path.join(BUILD, "shrreg-tool")
        for words in ((VGPU, "--help"), (VGPU, "--version"), (VGPU, "run", "--env", "--region", place.region),
                      (VGPU, "ps", "--region", place.region), (VGPU, "ps", "--json", "--region", place.region),
                      (VGPU, "region", place.region), (VGPU, "region", "--json", place.region),
                      (VGPU, "set", "--memory", "2g", "--region", place.region), (VGPU, "pause", "--help"),
                      (VGPU, "doctor", "--help"), (VGPU, "doctor"), (VGPU, "doctor", "--json"), (shrreg, "--version"), (shrreg, "--region", place.region, "--print")):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            equal((done.returncode, done.stderr.count("\n")), (1, 1), f"{words}: {done.stderr}")
            true("standard output" in done.stderr, f"{words}: {done.stderr}")


@test
def of_others():
    """another user is refused by set, pause and resume alike"""
    need_nobody("/usr/bin/python3")
    with Place() as place, place.program("--memory", "4g") as program:
        program.got(1)
        for words in (("set", "--memory", "1g"), ("pause",), ("resume",)):
            refused_line(tool(VGPU, *words, "--json", "--region", place.region, user=NOBODY), 1, place.region, "owner")


@test
def colourless():
    """nothing is coloured but on a terminal, and there not where NO_COLOR is set"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        for words in (("ps", "--region", place.region), ("region", place.region), ("region", "--check", place.region),
                      ("set", "--memory", "1g", "--region", place.region)):
            true("\33" not in tool(VGPU, *words).stdout, words)
    for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True),
                                ({"TERM": "dumb"}, False)):
        with Terminal(VGPU, "doctor", environment={**MINE, "TERM": "xterm-256color", **variables}) as terminal:
            true(terminal.ends() in (0, 1), terminal.screen.text())
            equal(bool(terminal.screen.colours), coloured, variables)


tap.main()
