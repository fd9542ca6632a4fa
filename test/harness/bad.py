# SPDX-License-Identifier: Apache-2.0
"""Tests that must not pass, and some that must, for harness.py. A sentence begins with the verdict
that is wanted."""
import os
import sys

import tap
from tap import Skip, equal, test, true


@test
def passes():
    """pass: a check and a return"""
    equal(1, 1)


@test
def own_check():
    """pass: a check of the caller's own"""
    tap.checked()


@test
def skipped():
    """skip: a reason"""
    raise Skip("there is a reason")


@test
def false():
    """fail: a check that is false"""
    true(False, "it is false")


@test
def nothing():
    """fail: nothing is checked"""


@test
def exits():
    """fail: sys.exit(0) after a check"""
    equal(1, 1)
    sys.exit(0)


@test
def exits_in_child():
    """pass: a child that was forked ends by sys.exit, another returns"""
    if os.fork() == 0:
        sys.exit(0)
    if os.fork() == 0:
        return
    equal({os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)}, {0}, "statuses")


@test
def raises():
    """fail: an exception"""
    equal(1, 1)
    raise OSError("it breaks")


tap.main()
