# SPDX-License-Identifier: Apache-2.0
"""scripts/check-links, which `make lint` runs, over documents of its own."""
import os
import shutil
import subprocess
import tempfile

import tap
from tap import equal, test, true

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


tap.main()
