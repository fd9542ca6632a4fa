/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu ps for people: one table, a line for each container and device, and one for each process and
 * device that it uses. Where it does not fit, columns are left out, the least asked for first. */
#include "tool/ps.h"

#include "base/text.h"
#include "host/size.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum column {
    NAME,
    DEVICE,
    MEMORY,
    SPILLED,
    LIMIT,
    CONTEXT,
    MODULE,
    BUFFER,
    MANAGED,
    OTHER,
    NOW,
    MINUTE,
    SHARE,
    PRIORITY,
    STATE,
    COLUMNS,
};

#define CELL_BYTES 32
#define NAME_LEAST 20 /* columns of a terminal */
#define NAME_FAIR 40  /* columns that the kinds of memory leave to it */
#define KINDS_LEAVE 6 /* columns[].leaves, from here up */

static const struct {
    const char *header;
    unsigned leaves; /* the higher, the sooner it is left out; 0 never */
    bool left;       /* text, not a number */
} columns[COLUMNS] = {
    [NAME] = {"CONTAINER / PID COMMAND", 0, true},
    [DEVICE] = {"DEV", 0, false},
    [MEMORY] = {"MEMORY", 0, false},
    [SPILLED] = {"SPILLED", 5, false}, /* only where something is */
    [LIMIT] = {"LIMIT", 0, false},
    [CONTEXT] = {"CONTEXT", 7, false},
    [MODULE] = {"MODULE", 8, false},
    [BUFFER] = {"BUFFER", 6, false},
    [MANAGED] = {"MANAGED", 9, false},
    [OTHER] = {"OTHER", 10, false},
    [NOW] = {"GPU%", 0, false},
    [MINUTE] = {"1MIN", 1, false},
    [SHARE] = {"MAX%", 0, false},
    [PRIORITY] = {"PRI", 2, false},
    [STATE] = {"STATE", 0, true},
};

struct row {
    char *name; /* fit to be printed; from malloc */
    char cells[COLUMNS][CELL_BYTES];
};

struct table {
    struct row *rows;
    size_t count, room;
    unsigned widths[COLUMNS];
    bool shown[COLUMNS];
    bool spills;
};

static struct row *add_row(struct table *table)
{
    if (table->count == table->room) {
        size_t room = table->room ? 2 * table->room : 256;
        struct row *rows = realloc(table->rows, room * sizeof(*rows));
        if (!rows)
            return NULL;
        table->rows = rows;
        table->room = room;
    }
    struct row *row = &table->rows[table->count++];
    *row = (struct row){0};
    return row;
}

static char *printable(const char *before, const char *text)
{
    char clean[2 * PATH_MAX];
    size_t length = (size_t)snprintf(clean, sizeof(clean), "%s", before);
    text_escape(clean + length, sizeof(clean) - length, text, strlen(text));
    return strdup(clean);
}

static void set_text(struct row *row, enum column column, const char *text)
{
    snprintf(row->cells[column], CELL_BYTES, "%s", text);
}

static void set_size(struct row *row, enum column column, uint64_t bytes)
{
    struct size_text size = size_text(bytes);
    memcpy(row->cells[column], size.text, sizeof(size.text));
}

static void set_memory(struct row *row, const struct collected_bytes *memory)
{
    uint64_t kinds =
        memory->context + memory->module + memory->buffer + memory->managed + memory->spilled;
    set_size(row, MEMORY, memory->bytes);
    set_size(row, SPILLED, memory->spilled);
    set_size(row, CONTEXT, memory->context);
    set_size(row, MODULE, memory->module);
    set_size(row, BUFFER, memory->buffer);
    set_size(row, MANAGED, memory->managed);
    set_size(row, OTHER, memory->bytes > kinds ? memory->bytes - kinds : 0);
}

static void set_share(struct row *row, enum column column, double share)
{
    if (share < 0)
        set_text(row, column, "-");
    else
        snprintf(row->cells[column], CELL_BYTES, "%.*f", share < 9.95 ? 1 : 0, share);
}

static void set_limits(struct row *row, const struct collected_device *device)
{
    if (device->memory_limit || device->memory_closed)
        set_size(row, LIMIT, device->memory_closed ? 0 : device->memory_limit);
    else
        set_text(row, LIMIT, "-");
    if (device->core_soft_limit)
        snprintf(
            row->cells[SHARE], CELL_BYTES, "%u-%u", device->core_limit, device->core_soft_limit);
    else if (device->core_limit)
        snprintf(row->cells[SHARE], CELL_BYTES, "%u", device->core_limit);
    else
        set_text(row, SHARE, "-");
}

static int add_device(
    struct table *table, const struct collected_container *container, unsigned number)
{
    static const struct collected_device none = {
        .share_now = COLLECT_UNKNOWN, .share_minute = COLLECT_UNKNOWN};
    bool met = number < container->device_count;
    const struct collected_device *device = met ? &container->devices[number] : &none;
    struct row *row = add_row(table);
    if (!row || !(row->name = printable("", number ? "" : collect_words_container(container))))
        return -ENOMEM;
    if (met)
        snprintf(row->cells[DEVICE], CELL_BYTES, "%u", number);
    else
        set_text(row, DEVICE, "-");
    set_memory(row, &device->memory);
    set_share(row, NOW, device->share_now);
    set_share(row, MINUTE, device->share_minute);
    set_limits(row, device);
    snprintf(row->cells[PRIORITY], CELL_BYTES, container->has_priority ? "%u" : "-",
        (unsigned)container->priority);
    set_text(row, STATE, collect_words_state(container, device));
    return 0;
}

/* A pid that cannot be told from here is the container's own, in parentheses. */
static char *process_name(const struct collected_process *process)
{
    char before[32];
    if (process->host_pid)
        snprintf(before, sizeof(before), "%8d ", process->host_pid);
    else
        snprintf(
            before, sizeof(before), "%*s(%d) ", process->pid < 100000 ? 1 : 0, "", process->pid);
    return printable(before, process->command);
}

static int add_process(struct table *table, const struct collected_container *container,
    const struct collected_process *process)
{
    bool named = false;
    for (unsigned d = 0; d < container->device_count || !named; d++) {
        bool met = d < container->device_count;
        bool last = d + 1 >= container->device_count;
        if (met && !process->uses[d].memory.bytes && !process->uses[d].gate && (named || !last))
            continue;
        struct row *row = add_row(table);
        if (!row || !(row->name = named ? strdup("") : process_name(process)))
            return -ENOMEM;
        named = true;
        if (met)
            snprintf(row->cells[DEVICE], CELL_BYTES, "%u", d);
        if (met)
            set_memory(row, &process->uses[d].memory);
        enum collected_gate gate = met ? process->uses[d].gate : COLLECT_GATE_NONE;
        const char *release = collect_words_release(process->release_state);
        snprintf(row->cells[STATE], CELL_BYTES, "%s%s%s%s%s", collect_words_ledger(process->ledger),
            gate ? "," : "", gate ? collect_words_gate(gate) : "", release ? "," : "",
            release ? release : "");
    }
    return 0;
}

static int add_container(struct table *table, const struct collected_container *container)
{
    int error = 0;
    for (unsigned d = 0; (d < container->device_count || !d) && !error; d++)
        error = add_device(table, container, d);
    for (unsigned i = 0; i < container->process_count && !error; i++)
        error = add_process(table, container, &container->processes[i]);
    return error;
}

/* Columns of a terminal, as near as one gets without a table of wide characters. */
static unsigned length_of(const char *text)
{
    unsigned length = 0;
    for (; *text; text++)
        length += ((unsigned char)*text & 0xc0) != 0x80;
    return length;
}

static unsigned total_width(const struct table *table)
{
    unsigned total = 0;
    for (int c = 0; c < COLUMNS; c++)
        total += table->shown[c] ? table->widths[c] + 1 : 0;
    return total - 1;
}

static void leave_out_one(struct table *table, unsigned least)
{
    int which = -1;
    for (int c = 0; c < COLUMNS; c++) {
        if (table->shown[c] && columns[c].leaves >= least &&
            (which < 0 || columns[c].leaves > columns[which].leaves))
            which = c;
    }
    if (which >= 0)
        table->shown[which] = false;
}

static void measure(struct table *table, unsigned width)
{
    for (int c = 0; c < COLUMNS; c++) {
        table->shown[c] = c != SPILLED || table->spills;
        table->widths[c] = (unsigned)strlen(columns[c].header);
    }
    for (size_t i = 0; i < table->count; i++) {
        for (int c = 0; c < COLUMNS; c++) {
            const char *text = c == NAME ? table->rows[i].name : table->rows[i].cells[c];
            unsigned length = length_of(text);
            if (length > table->widths[c])
                table->widths[c] = length;
        }
    }
    if (!width)
        return;
    unsigned wanted = table->widths[NAME];
    table->widths[NAME] = wanted < NAME_FAIR ? wanted : NAME_FAIR;
    for (int c = 0; c < COLUMNS && total_width(table) > width; c++)
        leave_out_one(table, KINDS_LEAVE);
    table->widths[NAME] = wanted < NAME_LEAST ? wanted : NAME_LEAST;
    for (int c = 0; c < COLUMNS && total_width(table) > width; c++)
        leave_out_one(table, 1);
    unsigned total = total_width(table), spare = width > total ? width - total : 0;
    unsigned more = wanted - table->widths[NAME];
    table->widths[NAME] += more < spare ? more : spare;
}

/* What is cut ends in "+". */
static void print_name(const char *name, unsigned width, bool pad)
{
    unsigned length = length_of(name), shown = length > width ? width - 1 : length;
    const char *end = name;
    for (unsigned i = 0; i < shown; i++) {
        end++;
        while (((unsigned char)*end & 0xc0) == 0x80)
            end++;
    }
    fwrite_unlocked(name, 1, (size_t)(end - name), stdout);
    if (length > width)
        putchar_unlocked('+');
    for (unsigned i = length; pad && i < width; i++)
        putchar_unlocked(' ');
}

static void print_row(const struct table *table, const char *name, const struct row *row)
{
    print_name(name, table->widths[NAME], true);
    for (int c = DEVICE; c < COLUMNS; c++) {
        const char *text = row ? row->cells[c] : columns[c].header;
        if (!table->shown[c])
            continue;
        unsigned length = (unsigned)strlen(text), width = table->widths[c];
        putchar_unlocked(' ');
        for (unsigned i = length; i < width && !columns[c].left; i++)
            putchar_unlocked(' ');
        fwrite_unlocked(text, 1, length, stdout);
    }
    putchar_unlocked('\n');
}

int ps_print(const struct collection *collection, unsigned width)
{
    struct table table = {0};
    int error = 0;
    for (size_t i = 0; i < collection->count && !error; i++) {
        const struct collected_container *container = &collection->containers[i];
        for (unsigned d = 0; d < container->device_count; d++)
            table.spills |= container->devices[d].memory.spilled != 0;
        error = add_container(&table, container);
    }
    if (!error) {
        measure(&table, width);
        if (table.count)
            print_row(&table, columns[NAME].header, NULL);
        for (size_t i = 0; i < table.count; i++)
            print_row(&table, table.rows[i].name, &table.rows[i]);
    }
    for (size_t i = 0; i < table.count; i++)
        free(table.rows[i].name);
    free(table.rows);
    return error;
}
