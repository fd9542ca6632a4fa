# SPDX-License-Identifier: Apache-2.0
"""bench_report BUILD: the table and the HTML report that a results.json is turned into."""
import fcntl
import html.parser
import json
import math
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata
import xml.etree.ElementTree

import tap
from tap import Skip, equal, test, true

import bench_example

PROGRAM = os.path.join(sys.argv[1], "vgpu-bench")
VOID = {"meta", "br", "img", "link", "input", "hr", "base", "source", "track", "area", "col", "embed", "wbr"}
ATTRIBUTES = {"aria-hidden", "aria-label", "aria-labelledby", "charset", "class", "content", "d", "dx", "height",
              "href", "http-equiv", "id", "lang", "name", "overflow", "preserveaspectratio", "r", "role", "scope",
              "style", "tabindex", "transform", "viewbox", "width", "x", "x1", "x2", "y", "y1", "y2"}
ENVIRONMENT = {"PATH": os.environ["PATH"], "TERM": "xterm-256color"}


def run(directory, **environment):
    return subprocess.run([PROGRAM, "--report", "--output", directory], capture_output=True, encoding="utf-8", check=False, timeout=60,
                          stdin=subprocess.DEVNULL, env={**ENVIRONMENT, **environment})


class Made:
    """What became of the example of that kind, or of the document."""

    def __init__(self, kind, document=None, **environment):
        self.document = document or bench_example.make(kind)
        with tempfile.TemporaryDirectory() as directory:
            with open(f"{directory}/results.json", "w", encoding="utf-8") as file:
                json.dump(self.document, file)
            done = run(directory, **environment)
            equal((done.returncode, done.stderr), (0, ""), "status and standard error")
            self.table = done.stdout.replace(directory, "DIR")
            with open(f"{directory}/report.html", encoding="utf-8") as file:
                self.page = file.read()
            equal(sorted(os.listdir(directory)), ["report.html", "results.json"], "files")
        self.read = Reader(self.page)

    def figures(self):
        return self.document["figures"]


class Reader(html.parser.HTMLParser):
    """Reads a page strictly: each element is closed in its turn."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.ids = [], [], [], []
        self.sections = {}  # the text of each section with an id
        self.text = ""
        self.feed(page)
        self.close()
        equal(self.open, [], "elements that were not closed")

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        equal(sorted(set(names)), sorted(names), f"attributes of {tag}")
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id") if tag == "section" else None))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        true(self.open and self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1:]}")
        self.open.pop()

    def handle_data(self, data):
        if any(tag == "style" for tag, _ in self.open):
            return
        self.text += data
        for _, section in self.open:
            if section:
                self.sections[section] = self.sections.get(section, "") + data


def charts(page):
    """Each <svg> that is no key of a legend, as XML."""
    found = []
    for text in re.findall(r'<svg class="(?:chart|chart panel)".*?\n</svg>\n', page, re.S):
        found.append(xml.etree.ElementTree.fromstring(text))
    return found


def chart(page, title):
    found = [svg for svg in charts(page) if svg.find("title").text.startswith(title)]
    equal(len(found), 1, f"charts of {title}")
    return found[0]


def shown(value):
    """A number as the report writes it."""
    size = abs(value)
    if size and (size >= 1e9 or size < 1e-3):
        text = re.sub(r"e([+-]?)0*", lambda sign: "e" + sign[1].replace("+", ""), f"{size:.3g}")
    elif size == math.floor(size) or size >= 1000:
        text = f"{size:,.0f}"
    else:
        text = f"{size:.{3 - math.floor(math.log10(size)) - (size < 1)}f}"
    return ("\u2212" if value < 0 else "") + text


def columns(line):
    return sum(0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
               for letter in line)


# ---- the report ----

@test
def well_formed():
    """every page is well-formed, and every chart is XML with a title and a description"""
    for kind in ("two", "three", "simulated", "hostile", "many", "one"):
        made = Made(kind)
        true(made.page.startswith("<!DOCTYPE html>\n<html lang=\"en\">"), "the begin")
        found = charts(made.page)
        true(len(found) >= 1, f"charts of {kind}")
        for svg in found:
            true(svg.find("title").text and svg.find("desc").text, "title and description")
            named = svg.get("aria-labelledby").split()
            equal([svg.find("title").get("id"), svg.find("desc").get("id")], named, "what names the chart")
        titles = [name for name in made.read.ids if name.startswith("chart")]
        equal(len(set(titles)), len(titles), "ids of charts")


@test
def nothing_outside():
    """a page asks for nothing outside itself, and forbids it"""
    for kind in ("three", "hostile"):
        made = Made(kind)
        for name, value in made.read.attributes:
            true(name in ATTRIBUTES, f"attribute {name}")
            true(name != "href" or value.startswith("#"), f"a link to {value}")
            true("url(" not in (value or ""), value)
        style = re.search(r"<style>(.*?)</style>", made.page, re.S)[1]
        true("url(" not in style and "@import" not in style, "the style sheet fetches")
        true("default-src 'none'" in made.page, "no content security policy")
        true("://" not in re.sub(r"http://x/y", "", made.page), "an address")


@test
def hostile():
    """text of the results ends no element, begins none and steers nothing"""
    made = Made("hostile")
    for tag in ("script", "img", "iframe", "object", "link", "base", "form"):
        true(tag not in made.read.tags, f"<{tag}> in the page")
    equal(made.read.text.count("Title " + bench_example.HOSTILE.replace("\u202e", "\ufffd")) >= 3, True,
          "the title as it was written")
    for sign in "\u202e\u001b":
        true(sign not in made.page, f"{sign!r} in the page")
    true("\u001b" not in made.table, "an escape in the table")
    for figure in made.figures():
        true(figure["title"] in made.read.text.replace("\ufffd", "\u202e"), figure["title"])


@test
def complete():
    """each figure stands there with definition, unit, direction, median, spread and repetitions"""
    made = Made("three")
    for figure in made.figures():
        text = made.read.sections[figure["id"]]
        for words in (figure["title"], figure["definition"], f"unit: {figure['unit']}", figure["case"],
                      {"lower": "lower is better", "higher": "higher is better",
                       "target": "is to meet its target"}[figure["better"]]):
            true(words in text, f"no {words!r} in {figure['id']}")
        if figure["target"] is not None:
            true(re.search(rf"target:? {shown(figure['target'])}", text), f"the target of {figure['id']}")
        for result in figure["results"]:
            if "missing" in result:
                true(f"not measured: {result['missing']}" in text, result["missing"])
                continue
            true(shown(result["value"]) in text, f"no {shown(result['value'])} in {figure['id']}")
            spread = f"p10–p90 {shown(result['low'])} to {shown(result['high'])}; n\u00a0=\u00a0{result['repetitions']:,}"
            true(spread in text, f"no {spread!r} in {figure['id']}")


@test
def head():
    """the head says machine, driver, mode, time, subjects with libraries and environment, and what missed"""
    made = Made("three")
    text = made.read.text.split("How to read it")[0]
    machine = made.document["machine"]
    for name in ("gpu", "driver", "cuda", "cpu", "kernel", "when"):
        true(machine[name] in text, machine[name])
    true("16 cores" in text and "full" in text, "cores and mode")
    true("native, vgpu and hami-core on NVIDIA H200" in text, "what was compared")
    true("CUDA_REDIRECT=/usr/local/vgpu/libvgpu.so" in text, "the environment")
    misses, unclear = [re.findall(r"(.*): (\S+) ([\d.,]+), target at (most|least) ([\d.,]+)", part)
                       for part in text.split("Not clear: the target is within")]
    wanted = [(figure, result) for figure in made.figures() for result in figure["results"]
              if "missing" not in result and figure["target"] is not None and result["subject"] != "native"
              and ((figure["better"] == "lower" and result["value"] > figure["target"])
                   or (figure["better"] == "higher" and result["value"] < figure["target"]))]
    # What follows from other figures is not in the document.
    true(len(wanted) >= len([row for row in misses if "distance of each tenant" not in row[0]]) > 5, "targets that were missed")
    true(len(unclear) < 4, "of which some are not clear")
    for figure, result in wanted:
        name = figure["title"] + (f", {figure['case']}" if figure["case"] else "")
        true((name, result["subject"], shown(result["value"])) in [row[:3] for row in misses + unclear], name)
    equal(text.count("targets met"), made.page.count("targets met"))
    true("Not measured by this run: memory, compute, tenants, work" in Made("one").read.text, "what is left out")


@test
def settings():
    """table and page list what is set for each library, asked for or not, each name once"""
    made = Made("three", COLUMNS="200")
    head = made.read.text.split("How to read it")[0]
    for text in (head, made.table):
        for words, times in (("CUDA_DEVICE_MEMORY_LIMIT={bytes}", 2), ("CUDA_DEVICE_SM_LIMIT={percent}", 2),
                             ("CUDA_DEVICE_MEMORY_SHARED_CACHE={region}", 1), ("CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/hami/cache", 1),
                             ("CUDA_REDIRECT=/usr/lib/libvgpu.so", 1), ("CUDA_REDIRECT=/usr/local/vgpu/libvgpu.so", 1),
                             ("VGPU_BOARD_DIR={board}", 2)):
            equal(text.count(words), times, words)
    equal(head.count("nothing added"), 1, "subjects for which nothing is set")


@test
def not_clear():
    """where the target lies within the median's noise it is not clear whether it was met, on whichever side the median
    is; of two to four samples where they lie on both sides; of turns also where the processes' medians do; of one always"""
    met, missed, unclear = "target met", "target missed", "not clear: the target is within the median's noise"
    single = "not clear: a single sample"
    many = [10.5 + 0.1 * i for i in range(-20, 80)]  # the median is 13.45, give or take 1
    slow = [9, 9, 9.5, 9, 9, 9.5] * 3 + [12, 12, 11, 12, 12, 11]  # the last process is
    cases = {"least below": ("lower", [8, 9, 11, 12, 13], unclear),
             "least at it": ("lower", [10, 10, 11, 12, 13], unclear),
             "least above": ("lower", [11, 12, 13, 14, 15], missed), "most at it": ("lower", [7, 8, 9, 10, 10], met),
             "median at it": ("lower", [8, 9, 10, 12, 13], unclear), "median below": ("lower", [7, 8, 9, 11, 12], unclear),
             "one of four below": ("lower", [8, 11, 12, 13], unclear), "one of two above": ("lower", [9, 9.5, 11], unclear),
             "both above": ("lower", [11, 12], missed), "both below": ("lower", [8, 9], met),
             "one below": ("lower", [9], single), "one above": ("lower", [11], single), "one more": ("higher", [11], single), "many": ("lower", many, missed),
             "many near it": ("lower", [sample - 3 for sample in many], unclear),
             "many below": ("lower", [sample - 5 for sample in many], met),
             "most above": ("higher", [12, 11, 9, 8, 7], unclear), "most below": ("higher", [9.5, 9, 8, 8, 7], missed),
             "least below more": ("higher", [9, 11, 12, 12, 13], unclear), "all above": ("higher", [10, 11, 11, 12], met),
             "slow process": ("lower", slow, unclear, 6), "slow samples": ("lower", slow, met),
             "steady processes": ("lower", slow[:18], met, 6)}
    cases = {name: (*case, None)[:4] for name, case in cases.items()}
    verdicts = [case[2] for case in cases.values()]
    count = {met: verdicts.count(met), unclear: verdicts.count(unclear) + verdicts.count(single)}
    document = bench_example.make("two")
    document["figures"] = [
        {"id": f"cost.{name.replace(' ', '-')}", "group": "cost", "title": name, "definition": "Made by hand.",
         "unit": "ns", "better": better, "target": 10, "case": "",
         "turns": turns, "results": [bench_example.result("native", [10]), bench_example.result("vgpu", samples)]}
        for name, (better, samples, _, turns) in cases.items()]
    made = Made("two", document)
    head = made.read.text.split("How to read it")[0]
    true(f"targets met: {count[met]} of {len(cases)}, not clear: {count[unclear]}" in head, "how many were met")
    _, misses, unclears = re.split("Targets that were missed|Not clear: the target is within the median’s noise", head)
    for name, (_, _, verdict, _) in cases.items():
        text = made.read.sections[f"cost.{name.replace(' ', '-')}"]
        equal([words for words in (met, missed, unclear, single) if words in text], [verdict], f"verdict of {name}")
        equal((f"{name}: vgpu" in misses, f"{name}: vgpu" in unclears), (verdict == missed, verdict in (unclear, single)),
              f"whether the head lists {name}")
        line = next(line for line in made.table.splitlines() if line.startswith(name + "  "))
        equal(re.search("x(.*)$", line)[1], {met: "", missed: "!", unclear: "~!", single: "~!"}[verdict], f"mark of {line!r}")


@test
def long_names():
    """of a row's name that is too long for the chart the end of its case stays, by which it differs from others"""
    document = bench_example.make("two")
    cases = [f"kernel and host work in turn, limit {limit}" for limit in (20, 50)] + ["something, " + "long " * 20]
    document["figures"] = [
        {"id": "compute.work", "group": "compute", "title": "deviation over 100 ms",
         "definition": "Made by hand.", "unit": "s", "turns": None, "better": "lower", "target": None, "case": case,
         "results": [bench_example.result(subject, [1]) for subject in ("native", "vgpu")]} for case in cases]
    names = re.findall('<text class="row"[^>]*>([^<]*)</text>', Made("two", document).page)
    for limit in (20, 50):
        equal([name for name in names if name.endswith(f"…, limit {limit}")],
              [f"deviation over 100 ms, kernel and host work in…, limit {limit}"], "the name in the chart beside native")
    true(any(name.startswith("deviation over 100 ms, something, long") and name.endswith("…") for name in names),
         "a name whose end is too long as well")


@test
def simulated():
    """simulated figures are marked: the GPU's name, every heading, chart and line of the table"""
    made = Made("simulated", COLUMNS="200")
    true("says nothing of a GPU" in made.read.text, "the head's word")
    legends = made.page.count('<ul class="legend">')
    equal(made.page.count('<li class="simulated">simulated</li>'), legends, "marks")
    true(legends > 20, "charts")
    for svg in charts(made.page):
        true(svg.find("title").text.endswith("(simulated)"), svg.find("title").text)
    true("Simulated" in made.table, "the table's word")
    lines = made.table.splitlines()
    true("NVIDIA H200 (simulated)" in lines[0] and "NVIDIA H200 (simulated)" in made.read.text, "the GPU's name")
    for words in ("Cost", "Memory isolation", "Compute isolation", "Tenants", "Real work"):
        true(f"{words} (simulated)" in lines, f"the table's heading {words}")
    for line in lines:
        unit = re.search(r"  (µs|ms|MiB|%|ratio|steps/s|% of a core)(, simulated)?  ", line)
        true(not unit or unit[2], f"a line of the table without a mark: {line!r}")
    equal([words for words in re.findall("<h[23]>(.*?)</h[23]>", made.page) if "simulated" not in words],
          ["What was compared", "How to read it"], "headings of what is not measured")
    narrow = " ".join(Made("simulated", COLUMNS="40").table.split())
    marks = re.findall(r"(?:native|vgpu|hami-core): -?[0-9.,]+ [a-zµ%/MB ]+(, \w+)?", narrow)
    true(len(marks) > 100 and set(marks) == {", simulated"}, f"marks in a narrow table: {marks}")
    measured = Made("three")
    true("imulated</" not in measured.page and "imulated" not in measured.table, "a mark on what was measured")


@test
def deterministic():
    """the same results give the same bytes"""
    one, other = Made("three"), Made("three")
    equal(one.page == other.page and one.table == other.table, True, "the same")


# ---- charts ----

def ticks(svg):
    """Value and place in percent of each tick of the horizontal axis."""
    found = [(float(text.text.replace(",", "").replace("\u2212", "-")), float(text.get("x")[:-1]))
             for text in svg.iter("text") if text.get("class") == "tick"]
    true(len(found) >= 2, "ticks")
    return found


def place_of(svg, value, logarithmic=False):
    """Where a value belongs by the first and the last tick."""
    (low, first), (high, last) = ticks(svg)[0], ticks(svg)[-1]
    if logarithmic:
        low, high, value = math.log(low), math.log(high), math.log(value)
    return first + (last - first) * (value - low) / (high - low)


def lanes(svg):
    """Of each lane: its class, the ends of its spread and its mark, in percent."""
    for lane in svg.findall("g"):
        lines = [line for line in lane.findall("line") if line.get("y1") == line.get("y2")]
        marks = [mark for mark in lane.findall("svg") if mark.get("width") == "1"]
        if marks:
            yield lane.get("class"), [float(lines[0].get(end)[:-1]) for end in ("x1", "x2")] + [
                float(marks[0].get("x")[:-1])]


@test
def places():
    """marks and spreads lie where their values are, on linear and on logarithmic axes"""
    made = Made("three")
    seen = {False: 0, True: 0}
    for identifier in ("cost.launch.async", "cost.launch.sync", "cost.allocate.size", "cost.allocate.live",
                       "memory.refusal", "memory.refusal.time", "tenants.latency.p99"):
        family = [figure for figure in made.figures() if figure["id"] == identifier]
        svg = chart(made.page, family[0]["title"] + ":")
        logarithmic = any("logarithmic" in (text.text or "") for text in svg.iter("text"))
        values = [result[name] for figure in family for result in figure["results"] if "missing" not in result
                  for name in ("value", "low", "high")]
        values += [figure["target"] for figure in family if figure["target"] is not None]
        equal(logarithmic, min(values) > 0 and max(values) / min(values) > 100, f"logarithmic: {identifier}")
        true(logarithmic or ticks(svg)[0][0] <= 0, "a linear axis without 0")
        seen[logarithmic] += 1
        results = [result for figure in family for result in figure["results"] if "missing" not in result]
        drawn = list(lanes(svg))
        equal(len(drawn), len(results), f"lanes of {identifier}")
        for (series, places_drawn), result in zip(drawn, results):
            equal(series, {"native": "s0", "vgpu": "s1", "hami-core": "s2"}[result["subject"]], "colour")
            for drawn_at, name in zip(places_drawn, ("low", "high", "value")):
                wanted = place_of(svg, result[name], logarithmic)
                true(abs(drawn_at - wanted) < 0.01, f"{identifier} {result['subject']} {name}: {drawn_at}, not {wanted}")
    true(seen[False] > 2 and seen[True] > 1, "both kinds of axes")


@test
def edges():
    """samples that the axis has no room for are told at the edge on whose side they lie"""
    document = bench_example.make("two")
    steady, wild = [10, 10, 10, 10, 10], [[10] * 50 + [1000], [10] * 50 + [-1000], [1000] + [10] * 50 + [-1000], [10]]
    document["figures"] = [
        {"id": "cost.calls", "group": "cost", "title": "calls", "definition": "Made by hand.", "unit": "ns", "better": "lower",
         "target": None, "case": f"case {number}", "turns": None,
         "results": [bench_example.result("native", steady), bench_example.result("vgpu", samples)]}
        for number, samples in enumerate(wild)]
    marks = [[(text.get("class"), text.get("x")) for text in lane.iter("text") if text.text == "…"]
             for lane in chart(Made("two", document).page, "calls:").findall("g") if lane.get("class") == "s1"]
    before, beyond = ("before", "0"), ("beyond", "100%")
    equal(marks, [[beyond], [before], [before, beyond], []], "marks at the edges")
    document["figures"] = [dict(document["figures"][0], results=[
        bench_example.result("native", [1, 1, 1]), bench_example.result("vgpu", [0] + [500] * 20)])]
    svg = chart(Made("two", document).page, "calls:")
    true(any("logarithmic" in (text.text or "") for text in svg.iter("text")), "a logarithmic axis")
    equal([text.get("class") for text in svg.iter("text") if text.text == "…"], ["before"], "where 0 lies")


@test
def target_lines():
    """a target is a dashed line at its value in every row"""
    made = Made("three")
    svg = chart(made.page, "Refusal point:")
    lines = [line for line in svg.iter("line") if line.get("class") == "target"]
    equal(len(lines), 6, "target lines")
    for line in lines:
        true(abs(float(line.get("x1")[:-1]) - place_of(svg, 0)) < 0.01 and line.get("x1") == line.get("x2"), "its place")
    equal([line for line in chart(made.page, "Launch, asynchronous:").iter("line")
           if line.get("class") == "target"], [], "a line without a target")


@test
def diagonal():
    """shares are drawn against their limits, a panel a load, with their distance below"""
    made = Made("three")
    for load in bench_example.LOADS:
        svg = chart(made.page, f"Share of GPU time against the limit, {load}: value against target")
        up = {float(text.text): float(text.get("y")) - 4 for text in svg.iter("text")
              if text.get("class") == "tick up"}
        figures = [figure for figure in made.figures()
                   if figure["id"] == "compute.share" and figure["case"].startswith(load + ",")]
        wanted = [(figure, result) for figure in figures for result in figure["results"] if "missing" not in result]
        points = svg.findall("svg")
        off = chart(made.page, f"Share of GPU time against the limit, {load}: distance from the target")
        equal(len(points), len(wanted), f"points of {load}")
        for point, (figure, result) in zip(points, wanted):
            across = place_of(off, figure["target"])
            true(abs(float(point.get("x")[:-1]) - across) < 0.01, f"{load}: the target's place")
            equal(point.find("g").get("transform"), "translate(0.0 0)", "what it is moved by")
            mark = point.find("g").find("g").get("transform")
            height = float(mark.split()[1].rstrip(")"))
            by_ticks = up[0] + (up[100] - up[0]) * result["value"] / 100
            true(abs(height - by_ticks) < 0.1, f"{load} {figure['case']}: {height}, not {by_ticks}")
        beyond = [path for path in off.iter("path") if path.get("class") == "mark"]
        equal(len(beyond), sum(result["subject"] == "hami-core" for _, result in wanted), "arrows at the edge")


@test
def rows_of_targets():
    """where a panel would have one target, rows with their targets are drawn instead"""
    made = Made("three")
    svg = chart(made.page, "Share of each of two tenants: median")
    lines = [float(line.get("x1")[:-1]) for line in svg.iter("line") if line.get("class") == "target"]
    for drawn, target in zip(lines, (30, 60), strict=True):
        true(abs(drawn - place_of(svg, target)) < 0.01, f"the target {target} at {drawn}")


@test
def beside_native():
    """ratios to native are drawn and told, and marked where the spreads overlap; of what is in points there are none"""
    made = Made("three")
    told = 0
    for figure in made.figures():
        natives = {result["subject"]: result for result in figure["results"] if "missing" not in result}
        native = natives.get("native")
        for result in natives.values():
            if not native or native["value"] <= 0 or result is native or figure["better"] == "target":
                continue
            ratio = result["value"] / native["value"]
            overlaps = result["low"] <= native["high"] and native["low"] <= result["high"]
            digits = 3 if ratio < 10 else 2 if ratio < 100 else 1
            words = f"{'≈ ' if overlaps else ''}{ratio:.{digits}f}× native"
            if ratio >= 0.01:
                true(words in made.read.sections[figure["id"]], f"no {words} in {figure['id']}")
                told += 1
    true(told > 20, "ratios")
    svg = chart(made.page, "Cost: medians as ratios")
    true(any("ratio to native" in text.text for text in svg.iter("text") if text.text), "its axis")
    equal({series for series, _ in lanes(svg)}, {"s1", "s2"}, "native has no ratio to itself")


@test
def in_turn():
    """what was measured in turn is compared turn by turn, and may be noise where 1 lies within the noise of that ratio;
    files that do not say what was are known by the figures' names"""
    native, ours = [100, 100, 100, 200, 200], [102, 102, 204, 204, 204]  # the third turns were on different cores
    other = [98, 101, 99, 202, 204]
    document = bench_example.make("three")

    def figure(identifier, results, **more):
        return {"id": identifier, "group": identifier.split(".", maxsplit=1)[0], "title": identifier + " of it",
                "definition": "Made by hand.", "unit": "ns", "better": "lower", "target": None, "case": "",
                "results": [bench_example.result(*each) for each in zip(("native", "vgpu", "hami-core"), results)], **more}
    both = (native, ours, other)
    document["figures"] = [
        figure("cost.turns", both, turns=5), figure("cost.none", both, turns=None),
        figure("cost.few", (native[1:], ours[1:], other[1:]), turns=4),
        figure("cost.uneven", (native, ours[1:], other[1:]), turns=1), figure("cost.zero", ([0] * 2 + native, [1, 1] + ours), turns=1),
        figure("cost.launch.async", both), figure("work.gemm", both), figure("compute.below", both),
        figure("cost.processes", (native * 2, [102, 102, 102, 204, 204, 97, 97, 97, 194, 194]), turns=5)]
    made = Made("three", document)
    paired, apart = ["1.020× native", "≈ 1.010× native"], ["≈ 2.040× native", "≈ 1.010× native"]
    for name, words in {"cost.turns": paired, "cost.none": apart, "cost.few": ["≈ 1.020× native", "≈ 1.010× native"],
                        "cost.uneven": ["≈ 2.040× native", "≈ 1.515× native"], "cost.zero": ["≈ 1.020× native"],
                        "cost.launch.async": paired, "work.gemm": paired, "compute.below": apart,
                        "cost.processes": ["≈ 0.995× native"]}.items():
        equal(re.findall("(?:≈ )?[0-9.]+× native", made.read.sections[name]), words, name)
    svg = chart(made.page, "Cost: medians as ratios")
    (_, (low, high, value)), (_, others) = list(lanes(svg))[:2]
    for drawn, ratio in zip((low, value, *others), (1.02, 1.02, 0.984, 1.016, 1.01)):
        wanted = place_of(svg, ratio, any("logarithmic" in (text.text or "") for text in svg.iter("text")))
        true(abs(drawn - wanted) < 0.01, f"{ratio} at {drawn}, not {wanted}")
    true(high > value, "the turn on different cores is in the spread")
    document["figures"] = [dict(figure("compute.deviation.1s", both, turns=None), unit="points")]
    true("× native" not in Made("three", document).read.sections["compute.deviation.1s"], "a ratio of deviations")


@test
def passed_limits():
    """what is left of a limit that was passed is not met, whether a file of an earlier version has it or it follows"""
    document = bench_example.make("two")

    def figure(name, samples, target):
        return {"id": f"memory.{name}", "group": "memory", "title": name, "definition": "Made by hand.", "unit": "MiB",
                "better": "lower", "target": target, "case": "cuMemAlloc", "turns": None,
                "results": [{"subject": "native", "missing": "native has no limit"}, bench_example.result("vgpu", samples)]}
    driver = dict(figure("driver", [9, 9], None), results=[bench_example.result("native", [9, 9]), bench_example.result("vgpu", [9, 9])])
    for samples, words in (([-4616, -4616], "the limit was passed"), ([-0.5, 0], "target met"), ([32, 32], "target met"),
                           ([32, -2], "the limit was passed"), ([128, 128], "target missed")):
        for figures in ([figure("unused", samples, 64)], [figure("card", [4096 + 9 - left for left in samples], 4096), driver]):
            document["figures"] = figures
            text = Made("two", document).read.sections["memory.unused"]
            equal([said for said in ("the limit was passed", "target met", "target missed") if said in text.split("\n", 3)[-1]],
                  [words], f"{samples} in {figures[0]['id']}")


@test
def lost_turns():
    """samples that say of which round they are are compared with those of the same; files that do not say it and have
    not as many are not compared turn by turn; rounds of one process are together, also where one was lost"""
    document = bench_example.make("two")

    def figure(name, turns, *results):
        made = []
        for subject, (samples, rounds) in zip(("native", "vgpu"), results):
            made.append(dict(bench_example.result(subject, samples), **({"rounds": rounds} if rounds else {})))
        return {"id": name, "group": "cost", "title": name, "definition": "Made by hand.", "unit": "ns", "better": "lower",
                "target": 10 if name == "cost.processes" else None, "case": "", "turns": turns, "results": made}
    native, ours = [100, 200, 300, 400, 500], [102, 306, 408, 510]
    slow, without = [9, 9, 9.5, 9, 9, 9.5] * 3 + [12, 12, 11, 12, 12, 11], 7
    document["figures"] = [
        figure("cost.said", 1, (native, [0, 1, 2, 3, 4]), (ours, [0, 2, 3, 4])),
        figure("cost.unsaid", 1, (native, None), (ours, None)),
        figure("cost.same.count", 1, (native[1:], [1, 2, 3, 4]), (ours, [0, 2, 3, 4])),
        figure("cost.apart", 1, (native[:2], [0, 1]), (ours[:2], [2, 3])),
        figure("cost.processes", 6, ([1], [0]), (slow[:without] + slow[without + 1:], [i for i in range(24) if i != without]))]
    made = Made("two", document)
    for name, ratio in {"cost.said": "≈ 1.020×", "cost.unsaid": "≈ 1.190×", "cost.same.count": "≈ 1.020×",
                        "cost.apart": "≈ 1.360×"}.items():
        equal(re.findall("(?:≈ )?[0-9.]+×", made.read.sections[name]), [ratio], name)
    true("not clear: the target is" in made.read.sections["cost.processes"], "the last process is slow")
    for rounds in ([0, 2, 3], [0, 2, 1, 3], [0, 2, 3, -4], [0, 2, 3, 1.5], 7):
        document["figures"] = [figure("cost.said", 1, (native, None), (ours, rounds))]
        with tempfile.TemporaryDirectory() as directory:
            with open(f"{directory}/results.json", "w", encoding="utf-8") as file:
                json.dump(document, file)
            done = run(directory)
            equal((done.returncode, "rounds" in done.stderr, done.stderr.count("\n")), (2, True, 1), done.stderr)


@test
def one_value():
    """one sample has no spread, and the report says so"""
    made = Made("hostile")
    text = made.read.sections["work.single"]
    equal(text.count("one value, no spread; n\u00a0=\u00a01"), 3, "said")
    true("p10–p90 12" not in text, "a spread")


@test
def nothing_measured():
    """a figure that nobody has says why, without a chart"""
    made = Made("three")
    text = made.read.sections["work.torch"]
    equal(text.count("no Python with PyTorch was found"), 3, "reasons")
    true("No chart: nothing was measured" in text, "that there is no chart")


@test
def empty_panel():
    """a load that nobody measured is a panel that says so, and a mark alone stands above its target"""
    document = bench_example.make("two")
    for figure in document["figures"]:
        if figure["id"] == "compute.share" and figure["case"].startswith("one-block-1ms"):
            figure["results"] = [{"subject": result["subject"], "missing": "no time"} for result in figure["results"]]
    page = Made("two", document).page
    for load, words in (("one-block-1ms", True), ("full-1ms", False)):
        panel = chart(page, f"Share of GPU time against the limit, {load}: value")
        equal("not measured" in [text.text for text in panel.iter("text")], words, f"words of {load}")
    part = chart(page, "Share of GPU time against the limit, full-1ms: distance")
    moved = [group.get("transform") for group in part.iter("g") if "class" not in group.attrib]
    equal(set(moved), {"translate(0.0 0)"}, "how far marks are moved")


@test
def legends():
    """a legend says why a subject is not in its chart: no limit to keep, what is compared with, or not measured"""
    document = bench_example.make("three")
    for figure in document["figures"]:
        if figure["id"] == "compute.share":  # native has none, whatever the case
            figure["results"][0] = {"subject": "native", "missing": "native has no limit"}
    made = Made("three", document)
    for name, words in (("compute.share", "no limit"), ("memory.refusal", "no limit"), ("cost.init.added", "is compared with"),
                        ("compute.reaction.limit", None)):
        section = re.search(f'<section class="figure" id="{name}">.*?</section>', made.page, re.S)[0]
        said = dict(re.findall("<bdi>([^<]*)</bdi> <i>([^<]*)</i></li>", section))
        equal(said, {"native": words} if words else {"hami-core": "not measured", "native": "not measured"}, name)


@test
def pictures():
    """scripts/bench-charts makes a picture of each chart"""
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        raise Skip("no chromium here")
    script = os.path.join(os.path.dirname(__file__), "../../scripts/bench-charts")
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(f"{directory}/tmp")

        def draw(*more):
            return subprocess.run([script, f"{directory}/report.html", f"{directory}/png", *more], check=False,
                                  capture_output=True, encoding="utf-8", timeout=120,
                                  env={**ENVIRONMENT, "HOME": directory, "TMPDIR": f"{directory}/tmp"})
        bench_example.write("three", directory)  # it keeps Chromium busy, which is ended, too
        equal(run(directory).returncode, 0, "status")
        done = draw()
        equal((done.returncode, done.stderr), (0, ""), "status and standard error of all charts")
        equal(len(os.listdir(f"{directory}/png")), done.stdout.count("\n"), "pictures")
        equal(os.listdir(f"{directory}/tmp"), [], "what is left")
        shutil.rmtree(f"{directory}/png")
        bench_example.write("one", directory)
        equal(run(directory).returncode, 0, "status")
        done = draw("cost.nothing")
        true(done.returncode == 1 and "accepted: cost.launch.async" in done.stderr, done)
        done = draw("--width", "500")
        equal((done.returncode, done.stdout), (0, f"{directory}/png/cost.launch.async.png\n"), done.stderr)
        with open(f"{directory}/png/cost.launch.async.png", "rb") as file:
            begin = file.read(24)
        width, height = struct.unpack(">II", begin[16:])
        true(begin.startswith(b"\x89PNG") and 900 < width <= 1000 and 300 < height < 900, (width, height))


# ---- the table ----

def on_terminal(kind, width, **environment):
    """The table on a terminal of that width."""
    with tempfile.TemporaryDirectory() as directory:
        bench_example.write(kind, directory)
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        with subprocess.Popen([PROGRAM, "--report", "--output", directory], stdin=subprocess.DEVNULL, stdout=theirs,
                              stderr=subprocess.STDOUT, env={**ENVIRONMENT, **environment}) as program:
            os.close(theirs)
            text = b""
            while True:
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # the last one on the other end is gone
                    piece = b""
                if not piece:
                    break
                text += piece
            os.close(ours)
            equal(program.wait(60), 0, "status")
        return text.decode("utf-8").replace("\r\n", "\n").replace(directory, "DIR")


def without_colours(text):
    return re.sub("\033\\[[0-9;]*m", "", text)


@test
def widths():
    """on a terminal no line of the table is longer than that is wide"""
    for kind in ("two", "three", "hostile", "many"):
        for width in (40, 61, 80, 100, 132, 250):
            text = without_colours(on_terminal(kind, width))
            body = text[:text.rindex("\nreport: ")]
            for line in body.splitlines():
                true(columns(line.replace("\u202e", "")) <= width,
                     f"{kind} at {width}: {columns(line)} columns: {line!r}")
    for width in (40, 80):  # without a terminal
        for line in Made("three", COLUMNS=str(width)).table.splitlines():
            true(columns(line) <= width, f"COLUMNS={width}: {line!r}")


@test
def table_values():
    """the table has every value with its unit, its ratio or distance, and every reason"""
    made = Made("three", COLUMNS="80")
    table = " ".join(made.table.split())
    for figure in made.figures():
        true(" ".join(figure["title"].split()) in table, figure["title"])
        for result in figure["results"]:
            if "missing" in result:
                true(result["missing"] in table, result["missing"])
            else:
                true(shown(result["value"]).replace("\u2212", "-") in table, result["value"])
    lines = {" ".join(line.split()[:-1]): line for line in made.table.splitlines() if line.strip()}
    native, vgpu, hami = (result["value"] for result in made.figures()[0]["results"])
    line = next(line for line in made.table.splitlines() if line.startswith("Launch, asynchronous"))
    equal(line.split()[2:], ["µs", shown(native), shown(vgpu), f"~{vgpu / native:.3f}x", shown(hami),
                             f"{hami / native:.3f}x"], "its line")
    true(any("+39.97" in line or "+39." in line for line in lines.values()), "a distance from the target")
    true(re.search(r"Background CPU .* 1\.\d+ +!", made.table), "a target that was missed")
    wide = Made("three", COLUMNS="200").table
    result = made.figures()[0]["results"][1]
    true(f"{shown(result['low'])}..{shown(result['high'])}" in wide, "spreads where there is room")


@test
def colours():
    """colours are for terminals that want them"""
    true("\033[31m" in on_terminal("three", 100), "a terminal")
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        true("\033" not in on_terminal("three", 100, **environment), environment)
    true("\033" in on_terminal("three", 100, NO_COLOR=""), "an empty NO_COLOR")
    true("\033" not in Made("three").table, "a pipe")
    equal(without_colours(on_terminal("three", 100)), Made("three", COLUMNS="100").table, "the same text")


# ---- what cannot be read or written ----

@test
def damaged():
    """a damaged results.json is one line with its name, and status 2"""
    good = json.dumps(bench_example.make("one"))
    whole = json.loads(good)
    cases = {"": "line 1", "{": "line 1", good[:len(good) // 2]: "line", "[]": "object", good + "x": "end of file",
             json.dumps(dict(whole, version=2)): "version", json.dumps(dict(whole, figures=7)): "figures",
             "\0" * 100: "", "\xff": ""}
    for text, words in cases.items():
        with tempfile.TemporaryDirectory() as directory:
            with open(f"{directory}/results.json", "w", encoding="latin-1") as file:
                file.write(text)
            done = run(directory)
            equal((done.returncode, done.stdout), (2, ""), f"status and output for {text[:20]!r}")
            equal(done.stderr.count("\n"), 1, f"lines: {done.stderr}")
            true(f"{directory}/results.json: " in done.stderr and words in done.stderr, done.stderr)
            equal(os.listdir(directory), ["results.json"], "files")
    with tempfile.TemporaryDirectory() as directory:
        done = run(directory)
        equal((done.returncode, done.stderr.count("\n")), (2, 1), "without a results.json")
        true("No such file" in done.stderr, done.stderr)


@test
def unwritable():
    """a report that cannot be written is one line, and the table is there nevertheless"""
    with tempfile.TemporaryDirectory() as directory:
        bench_example.write("one", directory)
        os.mkdir(f"{directory}/report.html")
        done = run(directory)
        equal((done.returncode, done.stderr.count("\n")), (1, 1), f"status and lines: {done.stderr}")
        true("report.html: " in done.stderr and "Launch, asynchronous" in done.stdout, done.stderr)
        equal(sorted(os.listdir(directory)), ["report.html", "results.json"], "what is left")


@test
def full_output():
    """a standard output that takes nothing is said"""
    with tempfile.TemporaryDirectory() as directory, open("/dev/full", "wb") as full:
        bench_example.write("one", directory)
        done = subprocess.run([PROGRAM, "--report", "--output", directory], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60,
                              env=ENVIRONMENT)
        equal((done.returncode, done.stderr.count(b"\n")), (1, 1), done.stderr)


tap.main()
