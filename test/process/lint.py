# SPDX-License-Identifier: Apache-2.0
"""scripts/check-links and scripts/check-commits, which `make lint` runs, over documents and a repository of their
own."""
import os
import shutil
import subprocess
import tempfile

import tap
from tap import Skip, equal, test, true

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts")


def links_of(document, **others):
    """Status and complaints of check-links in a tree with a.md and other documents."""
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(f"{root}/scripts")
        shutil.copy(f"{SCRIPTS}/check-links", f"{root}/scripts")
        for name, text in {"a": document, **others}.items():
            with open(f"{root}/{name}.md", "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run([f"{root}/scripts/check-links"], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(root)})
        return done.returncode, [line for line in done.stderr.splitlines() if not line.startswith("check-links: ")]


@test
def links_that_hold():
    """links to files, folders, headings and the web hold, and what stands in code or a comment is no link"""
    equal(links_of("# A `b` & c\n[f](b.md) [d](scripts/) [h](#a-b--c) [i](b.md#same-1) [j](b.md#here) [w](https://x.y/z)\n"
                   "`[code](no.md)`\n```\n[fenced](no.md)\n# no heading\n```\n<!-- [comment](no.md) -->\n",
                   b='<a id="here"></a>\n## Same\n## Same\n'), (0, []))


@test
def links_that_are_broken():
    """a link to a missing file, image or heading is named with its file and line"""
    status, said = links_of("# A\n\n[f](no.md) `\n![i](no.png)\n\n[h](#b) ` [g](b.md#a)\n[r]\n\n[r]: gone.md\n<img src='no.svg'>\n"
                            "[out](../x) [root](/x)\n```\n# B\n```\n", b="# B\n")
    equal(status, 1)
    equal({line.split(": ")[1].split()[0] for line in said},
          {"no.md", "no.png", "#b", "b.md#a", "gone.md", "no.svg", "../x", "/x"})
    true(any(line.startswith("a.md:4: no.png ") for line in said), said)


class Repository:
    """A repository with one commit, which is tagged `base`."""

    def __init__(self):
        if not shutil.which("git"):
            raise Skip("no git here")
        self.root = tempfile.mkdtemp()
        self.environment = {**os.environ, "HOME": self.root, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES":
                            os.path.dirname(self.root), **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER")
                                                           for what in ("NAME", "EMAIL")}}
        os.mkdir(f"{self.root}/scripts")
        for name in ("check-commits", "commit-msg"):
            shutil.copy(f"{SCRIPTS}/{name}", f"{self.root}/scripts")
        self.run("git", "init", "-q", ".")
        self.commit("Everything, as it once was", 1)
        self.run("git", "tag", "base")

    def run(self, *words):
        return subprocess.run(words, cwd=self.root, env=self.environment, capture_output=True, text=True, timeout=60,
                              check=False)

    def commit(self, message, lines, *options):
        with open(f"{self.root}/file", "a", encoding="utf-8") as file:
            file.write("line\n" * lines)
        self.run("git", "add", "file")
        return self.run("git", "commit", "-q", "-m", message, *options)

    def check(self, *words):
        done = self.run("scripts/check-commits", *words)
        return done.returncode, done.stdout + done.stderr


@test
def commits_that_are_as_they_should_be():
    """new commits of the form pass: a short one without a body, a long one with a body, areas with commas"""
    repository = Repository()
    for message, lines in (("docs: mend a link", 1), ("hook, sim: add pools\n\nThey were missing.", 50),
                           ("README: name the limits", 1), ("region: pass locks on", 1), ("base: embed the table", 1)):
        repository.commit(message, lines)
    equal(repository.check("base"), (0, ""))


@test
def commits_that_are_not():
    """a new commit with another form, a long subject, no imperative or no body is named with what is wrong"""
    for message, lines, words in (
            ("Mend things", 1, "not of the form"), ("docs: " + "x" * 67, 1, "73 characters"),
            ("docs: adds a link", 1, "no imperative"), ("docs: added a link", 1, "no imperative"),
            ("docs: the link is right", 1, "no imperative"), ("docs: mend a link.", 1, "full stop"),
            ("docs: mend links", 11, "no body"), ("docs: mend links\n\nSigned-off-by: A <a@b>", 11, "no body"),
            ("fixup! docs: mend a link", 1, "not of the form")):
        repository = Repository()
        repository.commit(message, lines)
        status, said = repository.check("base")
        equal(status, 1, message)
        true(words in said, f"{message}: {said}")


@test
def the_base_of_new_commits():
    """without a base the commits that the upstream branch lacks are checked, and where there is none, that is said"""
    repository = Repository()
    repository.commit("Mend things", 1)
    status, said = repository.check()
    equal(status, 0)
    true("not checked" in said, said)
    repository.run("git", "branch", "published", "base")
    repository.run("git", "branch", "--set-upstream-to=published")
    status, said = repository.check()
    true(status == 1 and "not of the form" in said and "Everything" not in said, said)
    equal(repository.check("nothing")[0], 1, "status for a base that is no commit")


@test
def the_hook():
    """as git's hook, scripts/commit-msg refuses such a message, and lets a right one and a fixup be"""
    repository = Repository()
    os.symlink(f"{repository.root}/scripts/commit-msg", f"{repository.root}/.git/hooks/commit-msg")
    done = repository.commit("Mend things", 1)
    true(done.returncode == 1 and "commit-msg: the subject is not of the form" in done.stderr, done)
    true("no body" in repository.commit("docs: mend links", 11).stderr, "no body")
    equal(repository.commit("docs: mend links\n\nThey led nowhere.", 0).returncode, 0)
    equal(repository.commit("fixup! docs: mend links", 1).returncode, 0)


tap.main()
