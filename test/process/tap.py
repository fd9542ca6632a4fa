# SPDX-License-Identifier: Apache-2.0
"""Tests as functions whose first line of documentation is their sentence; TAP on stdout. A test has
passed if it made a check (equal, true, checked) and returned. Temporary files are removed at the end
(scratch.py)."""
import os
import sys
import traceback

import scratch

scratch.begin()
scratch.end_in_order()
TESTS = []
OWN = os.getpid()
CHECKS = [0]


class Skip(Exception):
    pass


def test(function):
    TESTS.append(function)
    return function


def sentence_of(function):
    return function.__doc__.splitlines()[0]


def checked():
    """Counts a check that the caller makes itself, by an exception where it fails."""
    CHECKS[0] += 1


def equal(got, wanted, what="value"):
    checked()
    if got != wanted:
        raise AssertionError(f"{what} is {got!r}, not {wanted!r}")


def true(condition, what):
    checked()
    if not condition:
        raise AssertionError(what)


def run(function):
    """The test; raises where it does not pass. SystemExit is a failure, except in a child that the test
    forked, and where the runner gives up."""
    before = CHECKS[0]
    try:
        function()
    except scratch.GivenUp:
        raise
    except SystemExit as end:
        if os.getpid() != OWN:
            raise
        raise AssertionError(f"it ended the program with status {end.code}") from end
    if os.getpid() != OWN:
        sys.exit(0)
    if CHECKS[0] == before:
        raise AssertionError("nothing was checked")


def main():
    failed = 0
    print(f"1..{len(TESTS)}", flush=True)
    for number, function in enumerate(TESTS, 1):
        sentence = sentence_of(function)
        try:
            run(function)
            print(f"ok {number} - {sentence}")
        except Skip as reason:
            print(f"ok {number} - {sentence} # SKIP {reason}")
        except Exception as error:  # a test that breaks has failed
            failed += 1
            place = traceback.extract_tb(error.__traceback__)
            lines = [f"{frame.filename}:{frame.lineno}" for frame in place if frame.filename != __file__]
            print(f"# {' '.join(lines[:2])}: {type(error).__name__}: {error}".replace("\n", "\n# "))
            print(f"not ok {number} - {sentence}")
        sys.stdout.flush()
    sys.exit(failed != 0)
