/* SPDX-License-Identifier: Apache-2.0 */
/* The table on the terminal: a line for each figure, with native's value first and beside each
 * other one its ratio to it, or how far it is off its target. Where the columns of the subjects
 * leave no room for the figure's name, each subject has a line of its own. */
#include "bench/results/need.h"
#include "bench/report/report.h"

#include "bench/report/lines.h"
#include "bench/report/view.h"
#include "bench/results/settings.h"

#include <stdlib.h>
#include <string.h>

#define NAME_LEAST 20 /* columns for the names of figures */
#define NAME_MOST 56
#define LABEL_MOST 16 /* columns of a label above its column */
#define NOTES_MOST 64

struct widths {
    unsigned value, spread, beside;
    unsigned whole; /* with what is between them, and wide enough for the head */
};

struct table {
    struct lines lines;
    const struct bench_results *results;
    const char *group; /* the one that is printed: widths are of its figures */
    bool spreads;      /* p10 and p90 beside each value */
    unsigned name_width, unit_width;
    struct widths *widths; /* of each subject's column */
    const char *notes[NOTES_MOST];
    unsigned note_count;
};

struct cell {
    char value[REPORT_NUMBER], spread[2 * REPORT_NUMBER + 4], beside[REPORT_NUMBER + 8];
    enum line_style style;
    bool missing;
};

/* The unit as it is printed, to be freed. */
static char *unit_of(const struct table *table, const struct bench_figure *figure)
{
    const char *mark = table->results->simulated ? ", simulated" : "";
    size_t room = strlen(figure->unit) + strlen(mark) + 1;
    char *text = bench_need(malloc(room));
    snprintf(text, room, "%s%s", figure->unit, mark);
    return text;
}

/* ---- a cell's words ---- */

/* The number of the note with that text, from 1; 0 where there is room for no more. */
static unsigned note_of(struct table *table, const char *text)
{
    for (unsigned i = 0; i < table->note_count; i++) {
        if (!strcmp(table->notes[i], text))
            return i + 1;
    }
    if (table->note_count == NOTES_MOST)
        return 0;
    table->notes[table->note_count++] = text;
    return table->note_count;
}

/* How a verdict looks. */
static const struct {
    const char *mark;
    enum line_style style;
} looks[] = {
    [REPORT_NONE] = {"", LINE_PLAIN},
    [REPORT_MET] = {"", LINE_GOOD},
    [REPORT_MISSED] = {"!", LINE_BAD},
    [REPORT_UNCLEAR] = {"~!", LINE_WARN},
};

static void write_beside(struct cell *cell, const struct report_stand *stand)
{
    char number[REPORT_NUMBER] = "";
    if (stand->has_ratio)
        report_ratio(number, stand->ratio);
    else if (stand->has_off)
        report_signed(number, stand->off);
    snprintf(cell->beside, sizeof(cell->beside), "%s%s%s%s",
        stand->has_ratio && stand->may_be_none ? "~" : "", number, stand->has_ratio ? "x" : "",
        looks[stand->verdict].mark);
    cell->style = looks[stand->verdict].style;
}

static struct cell cell_of(struct table *table, const struct bench_figure *figure, size_t subject)
{
    struct cell cell = {.missing = true, .style = LINE_QUIET};
    const char *label = table->results->subjects[subject].label;
    const struct bench_result *result = bench_figure_result(figure, label);
    if (!result || result->missing) {
        unsigned note = note_of(table, report_missing_reason(result));
        snprintf(cell.value, sizeof(cell.value), note ? "- [%u]" : "-", note);
        return cell;
    }
    cell.missing = false;
    report_number(cell.value, result->value);
    if (result->sample_count > 1) {
        char low[REPORT_NUMBER], high[REPORT_NUMBER];
        snprintf(cell.spread, sizeof(cell.spread), "%s..%s", report_number(low, result->low),
            report_number(high, result->high));
    }
    struct report_stand stand = report_stand_of(figure, result);
    write_beside(&cell, &stand);
    return cell;
}

/* ---- the columns ---- */

static unsigned larger(unsigned one, unsigned other)
{
    return one > other ? one : other;
}

/* The label as it stands above a column: its number among the subjects where it is too long. */
static void head_of(const struct table *table, size_t subject, char *head, size_t size)
{
    const char *label = table->results->subjects[subject].label;
    if (lines_width(label) <= LABEL_MOST)
        snprintf(head, size, "%s", label);
    else
        snprintf(head, size, "(%zu)", subject + 1);
}

static bool in_group(const struct table *table, const struct bench_figure *figure)
{
    return !strcmp(figure->group, table->group);
}

static void measure(struct table *table, size_t subject)
{
    struct widths *widths = &table->widths[subject];
    char head[4 * LABEL_MOST + 24];
    *widths = (struct widths){0};
    for (size_t i = 0; i < table->results->figure_count; i++) {
        if (!in_group(table, &table->results->figures[i]))
            continue;
        struct cell cell = cell_of(table, &table->results->figures[i], subject);
        widths->value = larger(widths->value, lines_width(cell.value));
        widths->beside = larger(widths->beside, lines_width(cell.beside));
        if (table->spreads)
            widths->spread = larger(widths->spread, lines_width(cell.spread));
    }
    table->note_count = 0;
    head_of(table, subject, head, sizeof(head));
    widths->whole = widths->value + (widths->spread ? 2 : 0) + widths->spread +
                    (widths->beside ? 1 : 0) + widths->beside;
    widths->whole = larger(widths->whole, lines_width(head));
}

/* Whether names have room; sets the widths. */
static bool fits(struct table *table, bool spreads)
{
    unsigned names = NAME_LEAST, taken = 0;
    table->spreads = spreads;
    table->unit_width = 4;
    for (size_t i = 0; i < table->results->figure_count; i++) {
        const struct bench_figure *figure = &table->results->figures[i];
        if (!in_group(table, figure))
            continue;
        char *unit = unit_of(table, figure);
        table->unit_width = larger(table->unit_width, lines_width(unit));
        free(unit);
        names = larger(names, lines_width(figure->title));
        names = larger(names, lines_width(figure->condition) + 2);
    }
    for (size_t i = 0; i < table->results->subject_count; i++) {
        measure(table, i);
        taken += table->widths[i].whole + 2;
    }
    taken += table->unit_width + 2;
    unsigned left = table->lines.look.columns > taken ? table->lines.look.columns - taken : 0;
    if (names > NAME_MOST)
        names = NAME_MOST;
    table->name_width = left < names ? left : names;
    return left >= NAME_LEAST;
}

/* ---- lines ---- */

static void print_heads(const struct table *table)
{
    const struct lines *lines = &table->lines;
    lines_cell(lines, LINE_QUIET, "", 0, table->name_width + 2, false);
    lines_cell(lines, LINE_QUIET, "unit", 4, table->unit_width, false);
    for (size_t i = 0; i < table->results->subject_count; i++) {
        char head[4 * LABEL_MOST + 24];
        head_of(table, i, head, sizeof(head));
        fputs("  ", lines->out);
        lines_cell(lines, LINE_BOLD, head, strlen(head), table->widths[i].whole, true);
    }
    putc('\n', lines->out);
}

/* The name over as many lines as it needs; the last one goes on. */
static void print_name(const struct table *table, const char *name, unsigned indent)
{
    unsigned width;
    for (;;) {
        size_t length = lines_words(name, table->name_width - indent, &width);
        fprintf(table->lines.out, "%*s", (int)indent, "");
        lines_cell(&table->lines, LINE_PLAIN, name, length, 0, false);
        name += length;
        while (*name == ' ')
            name++;
        if (!*name)
            break;
        putc('\n', table->lines.out);
    }
    fprintf(table->lines.out, "%*s", (int)(table->name_width - indent - width) + 2, "");
}

static void print_cell(const struct table *table, const struct cell *cell, size_t subject)
{
    const struct lines *lines = &table->lines;
    const struct widths *widths = &table->widths[subject];
    unsigned beside = widths->beside ? widths->beside + 1 : 0;
    unsigned spread = widths->spread ? widths->spread + 2 : 0;
    lines_cell(lines, cell->style, cell->value, strlen(cell->value),
        widths->whole - beside - spread + 2, true);
    bool last = subject + 1 == table->results->subject_count;
    if (!last || *cell->spread || *cell->beside) /* no blanks at the line's end */
        lines_cell(
            lines, LINE_QUIET, cell->spread, spread ? strlen(cell->spread) : 0, spread, true);
    if (!last || *cell->beside)
        lines_cell(lines, cell->style, cell->beside, strlen(cell->beside), beside, true);
}

static void print_figure(
    struct table *table, const struct bench_figure *figure, const char *name, unsigned indent)
{
    const struct lines *lines = &table->lines;
    char *unit = unit_of(table, figure);
    print_name(table, name, indent);
    lines_cell(lines, LINE_QUIET, unit, strlen(unit), table->unit_width, false);
    free(unit);
    for (size_t i = 0; i < table->results->subject_count; i++) {
        struct cell cell = cell_of(table, figure, i);
        print_cell(table, &cell, i);
    }
    putc('\n', lines->out);
}

/* A line for each subject, which may go on in the next. */
static void print_stacked(struct table *table, const struct bench_figure *figure)
{
    for (size_t i = 0; i < table->results->subject_count; i++) {
        const char *label = table->results->subjects[i].label;
        struct cell cell = cell_of(table, figure, i);
        char *unit = unit_of(table, figure);
        size_t room = strlen(label) + strlen(unit) + sizeof(cell) + 16;
        char *text = bench_need(calloc(1, room));
        snprintf(text, room, "%s: %s%s%s%s%s%s%s", label, cell.value, cell.missing ? "" : " ",
            cell.missing ? "" : unit, *cell.spread ? ", " : "", cell.spread,
            *cell.beside ? ", " : "", cell.beside);
        lines_paragraph(&table->lines, cell.style, "    ", text);
        free(text);
        free(unit);
    }
}

static void print_family(struct table *table, const struct report_family *family, bool stacked)
{
    const struct bench_figure *first = family->figures[0];
    bool single = family->count == 1 && !*first->condition;
    if (single && !stacked) {
        print_figure(table, first, first->title, 0);
        return;
    }
    lines_paragraph(&table->lines, LINE_PLAIN, "", first->title);
    for (size_t i = 0; i < family->count; i++) {
        const struct bench_figure *figure = family->figures[i];
        const char *name = *figure->condition ? figure->condition : "-";
        if (stacked) {
            if (*figure->condition)
                lines_paragraph(&table->lines, LINE_QUIET, "  ", name);
            print_stacked(table, figure);
        } else {
            print_figure(table, figure, name, 2);
        }
    }
}

static void print_group_name(const struct table *table, const char *group)
{
    char text[128];
    snprintf(text, sizeof(text), "%s%s", report_group_name(group),
        table->results->simulated ? BENCH_SIMULATED : "");
    lines_paragraph(&table->lines, LINE_BOLD, "", text);
}

static void print_group(struct table *table, const char *group)
{
    struct report_families families = report_families_make(table->results, group);
    table->group = group;
    bool stacked = !fits(table, true) && !fits(table, false);
    if (families.count) {
        putc('\n', table->lines.out);
        print_group_name(table, group);
    }
    if (families.count && !stacked)
        print_heads(table);
    for (size_t i = 0; i < families.count; i++)
        print_family(table, &families.list[i], stacked);
    for (unsigned i = 0; i < table->note_count; i++) {
        char begin[16];
        snprintf(begin, sizeof(begin), "  [%u] ", i + 1);
        lines_paragraph(&table->lines, LINE_QUIET, begin, table->notes[i]);
    }
    table->note_count = 0;
    report_families_finish(&families);
}

/* ---- above and below ---- */

static void print_settings(const struct table *table, const struct bench_subject *subject)
{
    size_t count;
    struct bench_setting *settings = bench_settings_of(subject, &count);
    for (size_t i = 0; i < count; i++) {
        size_t room = strlen(settings[i].name) + strlen(settings[i].value) + 2;
        char *text = bench_need(malloc(room));
        snprintf(text, room, "%s=%s", settings[i].name, settings[i].value);
        char *safe = lines_safe(text);
        lines_paragraph(&table->lines, LINE_QUIET, "    ", safe);
        free(safe);
        free(text);
    }
    free(settings);
}

static void print_machine(const struct table *table)
{
    const struct bench_machine *machine = &table->results->machine;
    char *gpu = lines_safe(machine->gpu), *driver = lines_safe(machine->driver);
    char *cuda = lines_safe(machine->cuda), *when = lines_safe(machine->when);
    size_t room = strlen(gpu) + strlen(driver) + strlen(cuda) + strlen(when) + 64;
    char *text = bench_need(calloc(1, room));
    snprintf(text, room, "vgpu bench, %s: %s%s, driver %s, CUDA %s, %s",
        table->results->full ? "full" : "quick", gpu,
        table->results->simulated ? BENCH_SIMULATED : "", driver, cuda, when);
    lines_paragraph(&table->lines, LINE_BOLD, "", text);
    free(text);
    free(gpu);
    free(driver);
    free(cuda);
    free(when);
    if (table->results->simulated)
        lines_paragraph(&table->lines, LINE_WARN, "",
            "Simulated: these figures are of the simulator and say nothing of a GPU.");
    for (size_t i = 0; i < table->results->subject_count; i++) {
        const struct bench_subject *subject = &table->results->subjects[i];
        char begin[32];
        snprintf(begin, sizeof(begin), "(%zu) ", i + 1);
        lines_paragraph(&table->lines, LINE_PLAIN, begin, subject->label);
        char *library = subject->library ? lines_safe(subject->library) : NULL;
        if (library)
            lines_paragraph(&table->lines, LINE_QUIET, "    ", library);
        free(library);
        if (subject->build)
            lines_paragraph(&table->lines, LINE_QUIET, "    build ", subject->build);
        print_settings(table, subject);
    }
}

static void print_key(const struct table *table)
{
    putc('\n', table->lines.out);
    lines_paragraph(&table->lines, LINE_QUIET, "",
        "Medians. 1.020x: of native's, in the same turn where both have turns; ~: it may be noise; "
        "+0.2 or -0.2: off the target; !: the target was missed; ~!: not clear, the target is "
        "within the median's noise or there is a single sample; -: not measured, for the reason "
        "[n].");
}

void bench_table_print(
    const struct bench_results *results, FILE *out, const struct bench_look *look)
{
    struct table table = {.lines = {.out = out, .look = *look}, .results = results};
    table.widths = bench_need(calloc(results->subject_count + 1, sizeof(*table.widths)));
    print_machine(&table);
    for (size_t i = 0; bench_groups[i]; i++)
        print_group(&table, bench_groups[i]);
    print_key(&table);
    free(table.widths);
}
