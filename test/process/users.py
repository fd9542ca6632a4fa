# SPDX-License-Identifier: Apache-2.0
"""Other users, for tests."""
import os
import shutil
import subprocess

NOBODY = 65534


def may_change():
    """Whether this process may become another user: root may, except in a user namespace that has no other."""
    return bool(os.getuid() == 0 and shutil.which("setpriv") and subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "true"], check=False,
        stderr=subprocess.DEVNULL).returncode == 0)
