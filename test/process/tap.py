# SPDX-License-Identifier: Apache-2.0
"""Tests as functions whose first line of documentation is their sentence; TAP on stdout. Temporary
files are removed at the end (scratch.py)."""
import sys
import traceback

import scratch

scratch.begin()
scratch.end_in_order()
TESTS = []


class Skip(Exception):
    pass


def test(function):
    TESTS.append(function)
    return function


def equal(got, wanted, what="value"):
    if got != wanted:
        raise AssertionError(f"{what} is {got!r}, not {wanted!r}")


def true(condition, what):
    if not condition:
        raise AssertionError(what)


def main():
    failed = 0
    print(f"1..{len(TESTS)}")
    for number, function in enumerate(TESTS, 1):
        sentence = function.__doc__.splitlines()[0]
        try:
            function()
            print(f"ok {number} - {sentence}")
        except Skip as reason:
            print(f"ok {number} - {sentence} # SKIP {reason}")
        except Exception as error:  # a test that breaks has failed
            failed += 1
            place = traceback.extract_tb(error.__traceback__)
            lines = [f"{frame.filename}:{frame.lineno}" for frame in place if frame.name != "main"]
            print(f"# {' '.join(lines[:2])}: {type(error).__name__}: {error}".replace("\n", "\n# "))
            print(f"not ok {number} - {sentence}")
        sys.stdout.flush()
    sys.exit(failed != 0)
