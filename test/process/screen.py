# SPDX-License-Identifier: Apache-2.0
"""A terminal: a pseudo terminal with a program on it, and what the program has drawn there."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unicodedata

from tap import true

SEQUENCE = re.compile(r"\x1b(?:\[([?>]?)([0-9;]*)([@-~])|[()][A-Z0-9]|\][^\x07]*\x07|([=>78MDEHc]))")


class Screen:
    """What sequences as xterm and vt100 have them leave on it."""

    def __init__(self, lines, columns):
        self.lines, self.columns = lines, columns
        self.cells = [[" "] * columns for _ in range(lines)]
        self.y = self.x = 0
        self.top, self.bottom = 0, lines - 1
        self.rest, self.last = "", " "
        self.modes, self.colours, self.unknown = {}, set(), set()
        self.attributes = set()  # those that are on

    def resize(self, lines, columns):
        self.cells = [(row + [" "] * columns)[:columns] for row in self.cells]
        self.cells = (self.cells + [[" "] * columns for _ in range(lines)])[:lines]
        self.lines, self.columns, self.top, self.bottom = lines, columns, 0, lines - 1
        self.y, self.x = min(self.y, lines - 1), min(self.x, columns - 1)

    def text(self):
        return ["".join(row).rstrip() for row in self.cells]

    def feed(self, text):
        text, self.rest = self.rest + text, ""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self.put(text[at])
                at += 1
                continue
            match = SEQUENCE.match(text, at)
            if not match and "\x1b" in text[at + 1:at + 32]:
                at = text.index("\x1b", at + 1)  # a sequence cut off by another is none
                continue
            if not match:
                if len(text) - at < 32:
                    self.rest = text[at:]
                    return
                raise AssertionError(f"not a sequence that is known: {text[at:at + 40]!r}")
            self.obey(match)
            at = match.end()

    def put(self, character):
        if character == "\r":
            self.x = 0
        elif character == "\n":
            self.down()
        elif character == "\b":
            self.x = max(self.x - 1, 0)
        elif character == "\t":
            self.x = min((self.x // 8 + 1) * 8, self.columns - 1)
        elif character >= " ":
            self.write(character)

    def write(self, character):
        wide = unicodedata.east_asian_width(character) in "WF"
        if self.x + wide >= self.columns:
            self.x = 0
            self.down()
        self.cells[self.y][self.x] = self.last = character
        self.x += 1
        if wide and self.x < self.columns:
            self.cells[self.y][self.x] = ""
            self.x += 1

    def down(self):
        if self.y == self.bottom:
            self.scroll(self.top, 1)
        else:
            self.y = min(self.y + 1, self.lines - 1)

    def scroll(self, top, count):
        """The lines from `top` to the margin: up, or down where the count is below 0."""
        part = self.cells[top:self.bottom + 1]
        blank = [[" "] * self.columns for _ in range(min(abs(count), len(part)))]
        part = part[count:] + blank if count > 0 else blank + part[:len(part) + count]
        self.cells[top:self.bottom + 1] = part[:self.bottom + 1 - top]

    def obey(self, match):
        kind, numbers, command, short = match.groups()
        if short:
            self.short(short)
        elif command and kind:
            if command in "hl":
                for number in numbers.split(";"):
                    self.modes[number] = command == "h"
        elif command:
            values = [int(number or 0) for number in numbers.split(";")]
            self.control(command, values)

    def short(self, command):
        if command == "M" and self.y == self.top:
            self.scroll(self.top, -1)
        elif command == "M":
            self.y -= 1
        elif command == "D":
            self.down()

    def control(self, command, values):
        count = max(values[0], 1)
        if command in "ABCDGdHf":
            self.move(command, count, max(values[1], 1) if len(values) > 1 else 1)
        elif command == "J":
            self.erase_line(values[0])
            rows = range(self.y + 1, self.lines) if values[0] == 0 else range(self.y) if values[0] == 1 \
                else range(self.lines)
            for y in rows:
                self.cells[y] = [" "] * self.columns
        elif command == "K":
            self.erase_line(values[0])
        elif command == "m":
            self.render(values)
        elif command == "r":
            self.top, self.bottom = count - 1, (values[1] if len(values) > 1 and values[1] else self.lines) - 1
            self.y = self.x = 0
        elif command in "ST":
            self.scroll(self.top, count if command == "S" else -count)
        elif command in "LM":
            self.scroll(self.y, count if command == "M" else -count)
        elif command in "XP@b":
            self.edit(command, count)
        elif command not in "hltcnq":
            self.unknown.add(command)

    def move(self, command, count, second):
        self.x = min(self.x, self.columns - 1)
        self.y += {"A": -count, "B": count}.get(command, 0)
        self.x += {"C": count, "D": -count}.get(command, 0)
        if command in "Hfd":
            self.y = count - 1
        if command in "Hf":
            self.x = second - 1
        if command == "G":
            self.x = count - 1
        self.y, self.x = min(max(self.y, 0), self.lines - 1), min(max(self.x, 0), self.columns - 1)

    def erase_line(self, how):
        row = self.cells[self.y]
        for x in range(self.x if how == 0 else 0, self.x + 1 if how == 1 else self.columns):
            row[x] = " "

    def edit(self, command, count):
        row = self.cells[self.y]
        if command == "b":
            for _ in range(count):
                self.write(self.last)
        elif command == "X":
            row[self.x:self.x + count] = [" "] * len(row[self.x:self.x + count])
        elif command == "P":
            self.cells[self.y] = (row[:self.x] + row[self.x + count:] + [" "] * count)[:self.columns]
        else:
            self.cells[self.y] = (row[:self.x] + [" "] * count + row[self.x:])[:self.columns]

    def render(self, values):
        """Colours by where they are, 3 and 4; 22 to 29 end what 2 to 9 began, and 22 what 1 did."""
        at = 0
        while at < len(values):
            value = values[at]
            place = {3: 3, 9: 3, 4: 4, 10: 4}.get(value // 10)
            if value == 0:
                self.attributes.clear()
            elif place and value % 10 == 9:
                self.attributes.discard(("colour", place))
            elif place:
                self.attributes.add(("colour", place))
                at += {5: 2, 2: 4}.get(values[at + 1], 0) if value % 10 == 8 and at + 1 < len(values) else 0
            elif 20 < value < 30:
                self.attributes -= {value - 20} | ({1} if value == 22 else set())
            else:
                self.attributes.add(value)
            at += 1
        self.colours |= {value for value in values if 30 <= value <= 48 and value not in (39,)}


class Terminal:
    """A program on a terminal of its own, which it may stop and start again."""

    def __init__(self, *command, lines=24, columns=80, environment=None):
        self.master, self.slave = pty.openpty()
        self.screen = Screen(lines, columns)
        self.set_size(lines, columns)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(command, env=environment, stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def set_size(self, lines, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def read(self, seconds):
        """Whether there was something."""
        ready = bool(select.select([self.master], [], [], seconds)[0])
        if ready:
            # Bytes of characters may be cut in two; those that follow are there already.
            data = os.read(self.master, 1 << 16)
            while True:
                try:
                    text = data.decode()
                    break
                except UnicodeDecodeError:
                    data += os.read(self.master, 1)
            self.screen.feed(text)
        return ready

    def press(self, text):
        os.write(self.master, text.encode())

    def until(self, holds, what, seconds=60):
        """Until it holds of the lines."""
        end = time.monotonic() + seconds
        while not holds(self.screen.text()):
            shown = "\n".join(self.screen.text())
            true(time.monotonic() < end, f"not on the screen: {what}; but:\n{shown}")
            self.read(0.1)
        return self.screen.text()

    def shows(self, *words, seconds=60):
        return self.until(lambda lines: all(any(word in line for line in lines) for word in words), words, seconds)

    def ends(self, seconds=30):
        """Its status, after all that it wrote was read."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            true(time.monotonic() < end, "it does not end")
            self.read(0.1)
        while self.read(0.1):
            pass
        return self.process.returncode

    def is_as_before(self):
        true(not self.screen.modes.get("1049"), "the other screen is still shown")
        true(self.screen.modes.get("25", True), "the cursor is still hidden")
        now = termios.tcgetattr(self.slave)
        true(now == self.before, f"the terminal's settings: {now} and not {self.before}")
        true(not self.screen.attributes, f"still on: {self.screen.attributes}")
