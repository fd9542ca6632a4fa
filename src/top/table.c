/* SPDX-License-Identifier: Apache-2.0 */
#include "top/table.h"

#include "base/text.h"
#include "collect/collect_words.h"
#include "host/size.h"

#include <stdio.h>
#include <string.h>

#define NAME_LEAST 20
#define NAME_MOST 60
#define GRAPH_LEAST 10
#define GRAPH_MOST 60
/* Where the width is not bounded. */
#define NAME_PLAIN 80
#define GRAPH_PLAIN 30
#define CELL_BYTES 32

static const struct {
    const char *header;
    unsigned width;
    unsigned leaves;    /* the higher, the sooner it is left out; 0 never */
    bool left;          /* text, not a number */
    enum top_sort sort; /* what its header is marked for; TOP_SORTS nothing */
} columns[TOP_COLUMNS] = {
    [TOP_NAME] = {"CONTAINER/PID COMMAND", NAME_LEAST, 0, true, TOP_BY_NAME},
    [TOP_DEVICE] = {"DEV", 3, 4, false, TOP_SORTS},
    [TOP_MEMORY] = {"MEMORY", 8, 1, false, TOP_BY_MEMORY},
    [TOP_SPILLED] = {"SPILLED", 8, 3, false, TOP_SORTS}, /* only where something is */
    [TOP_LIMIT] = {"LIMIT", 8, 3, false, TOP_SORTS},
    [TOP_NOW] = {"GPU%", 5, 0, false, TOP_BY_GPU},
    [TOP_MINUTE] = {"1MIN", 5, 7, false, TOP_BY_MINUTE},
    [TOP_MOST] = {"MAX%", 6, 5, false, TOP_SORTS},
    [TOP_PRIORITY] = {"PRI", 4, 8, false, TOP_BY_PRIORITY},
    [TOP_STATE] = {"STATE", 10, 2, true, TOP_SORTS},
    [TOP_GRAPH] = {"HISTORY", GRAPH_LEAST, 6, true, TOP_SORTS},
};

/* ---- columns ---- */

static unsigned total_width(const struct top_layout *layout)
{
    unsigned total = 0;
    for (int c = 0; c < TOP_COLUMNS; c++)
        total += layout->widths[c] ? layout->widths[c] + 1 : 0;
    return total - 1;
}

static void leave_out_one(struct top_layout *layout)
{
    int which = TOP_NAME;
    for (int c = 0; c < TOP_COLUMNS; c++) {
        if (layout->widths[c] && columns[c].leaves > columns[which].leaves)
            which = c;
    }
    if (which != TOP_NAME)
        layout->widths[which] = 0;
}

static unsigned least(unsigned one, unsigned other)
{
    return one < other ? one : other;
}

static unsigned longest_name(const struct top_model *model)
{
    char name[TOP_TEXT_BYTES(TOP_WIDTH_MAX)];
    unsigned longest = (unsigned)strlen(columns[TOP_NAME].header);
    for (size_t i = 0; i < model->row_count; i++) {
        top_table_name(&model->rows[i], name, sizeof(name));
        unsigned length = top_text_columns(name);
        longest = length > longest ? length : longest;
    }
    return least(longest, NAME_PLAIN);
}

static bool any_spills(const struct top_model *model)
{
    bool any = false;
    for (size_t i = 0; i < model->row_count; i++) {
        const struct top_row *row = &model->rows[i];
        any |= row->device < row->container->device_count &&
               row->container->devices[row->device].memory.spilled != 0;
    }
    return any;
}

/* What is left goes to the name, then to the graph, then to the name again. */
void top_table_lay_out(const struct top_model *model, unsigned width, struct top_layout *ret_layout)
{
    for (int c = 0; c < TOP_COLUMNS; c++)
        ret_layout->widths[c] = columns[c].width;
    if (!any_spills(model))
        ret_layout->widths[TOP_SPILLED] = 0;
    if (!width) {
        ret_layout->widths[TOP_NAME] = longest_name(model);
        ret_layout->widths[TOP_GRAPH] = GRAPH_PLAIN;
        return;
    }
    width = least(width, TOP_WIDTH_MAX);
    for (int c = 0; c < TOP_COLUMNS && total_width(ret_layout) > width; c++)
        leave_out_one(ret_layout);
    unsigned total = total_width(ret_layout), spare = width > total ? width - total : 0;
    /* Where both are short, each has its part. */
    if (ret_layout->widths[TOP_GRAPH]) {
        unsigned to_graph = least(spare / 2, GRAPH_MOST - GRAPH_LEAST);
        unsigned to_name = least(spare - to_graph, NAME_MOST - NAME_LEAST);
        ret_layout->widths[TOP_GRAPH] += least(spare - to_name, GRAPH_MOST - GRAPH_LEAST);
        spare -= least(spare - to_name, GRAPH_MOST - GRAPH_LEAST);
    }
    ret_layout->widths[TOP_NAME] += spare;
    if (width < NAME_LEAST + 6) /* a name, and what it uses */
        ret_layout->widths[TOP_NAME] = width > 7 ? width - 6 : 1;
}

/* ---- lines ---- */

struct line {
    char *text;
    size_t length;
};

static void put_cell(
    struct line *line, const struct top_layout *layout, enum top_column column, const char *text)
{
    const size_t size = TOP_TEXT_BYTES(TOP_WIDTH_MAX);
    if (!layout->widths[column])
        return;
    if (line->length && line->length + 1 < size)
        line->text[line->length++] = ' ';
    line->length += top_text_fit(line->text + line->length, size - line->length, text,
        layout->widths[column], !columns[column].left);
}

/* Above what it is sorted by stands which way. */
void top_table_header(const struct top_model *model, const struct top_layout *layout, char *line)
{
    struct line to = {.text = line};
    for (int c = 0; c < TOP_COLUMNS; c++) {
        char cell[CELL_BYTES];
        const char *mark = columns[c].sort != model->sort ? "" : model->reverse ? "^" : "v";
        snprintf(cell, sizeof(cell), "%s%s", columns[c].header, mark);
        put_cell(&to, layout, (enum top_column)c, cell);
    }
    line[to.length] = '\0';
}

void top_table_share(double share, char *text, size_t size)
{
    if (share < 0)
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%.*f", share < 99.95 ? 1 : 0, share);
}

/* A pid that cannot be told from here is the container's own, in parentheses. */
void top_table_name(const struct top_row *row, char *text, size_t size)
{
    const struct collected_process *process = row->process;
    int length = 0;
    text[0] = '\0';
    if (!row->first)
        return;
    if (process && process->host_pid)
        length = snprintf(text, size, "%8d ", process->host_pid);
    else if (process)
        length = snprintf(text, size, " (%d) ", process->pid);
    const char *name = process ? process->command : collect_words_container(row->container);
    text_escape(text + length, size - (size_t)length, name, strlen(name));
}

/* The last looks of GPU time as one line. */
static void write_graph(const struct top_model *model, const struct top_history *history,
    unsigned graph_columns, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (unsigned i = graph_columns; i-- > 0 && length + 4 < size;)
        length += (size_t)snprintf(text + length, size - length, "%s",
            top_text_bar(top_history_gpu(model, history, i), 100, 0, 1));
}

static void put_process(
    struct line *to, const struct top_layout *layout, const struct top_row *row, double share)
{
    bool met = row->device < row->container->device_count;
    char cell[CELL_BYTES] = "";
    enum collected_gate gate = met ? row->process->uses[row->device].gate : COLLECT_GATE_NONE;
    if (met)
        snprintf(cell, sizeof(cell), "%u", row->device);
    put_cell(to, layout, TOP_DEVICE, cell);
    put_cell(to, layout, TOP_MEMORY,
        met ? size_text(row->process->uses[row->device].memory.bytes).text : "");
    put_cell(to, layout, TOP_SPILLED,
        met ? size_text(row->process->uses[row->device].memory.spilled).text : "");
    put_cell(to, layout, TOP_LIMIT, "");
    top_table_share(share, cell, sizeof(cell));
    put_cell(to, layout, TOP_NOW, cell);
    put_cell(to, layout, TOP_MINUTE, "");
    put_cell(to, layout, TOP_MOST, "");
    put_cell(to, layout, TOP_PRIORITY, "");
    snprintf(cell, sizeof(cell), "%s%s%s", collect_words_ledger(row->process->ledger),
        gate ? "," : "", gate ? collect_words_gate(gate) : "");
    put_cell(to, layout, TOP_STATE, cell);
    put_cell(to, layout, TOP_GRAPH, "");
}

static void put_limits(
    struct line *to, const struct top_layout *layout, const struct collected_device *device)
{
    char cell[CELL_BYTES] = "-";
    if (device->core_soft_limit)
        snprintf(cell, sizeof(cell), "%u-%u", device->core_limit, device->core_soft_limit);
    else if (device->core_limit)
        snprintf(cell, sizeof(cell), "%u", device->core_limit);
    put_cell(to, layout, TOP_MOST, cell);
}

static void put_container(const struct top_model *model, struct line *to,
    const struct top_layout *layout, const struct top_row *row)
{
    static const struct collected_device none = {
        .share_now = COLLECT_UNKNOWN, .share_minute = COLLECT_UNKNOWN};
    const struct collected_container *container = row->container;
    bool met = row->device < container->device_count, limited;
    const struct collected_device *device = met ? &container->devices[row->device] : &none;
    const struct top_track *track = top_model_track(model, container, row->device);
    char cell[CELL_BYTES] = "-", graph[TOP_TEXT_BYTES(GRAPH_MOST)];
    if (met)
        snprintf(cell, sizeof(cell), "%u", row->device);
    put_cell(to, layout, TOP_DEVICE, cell);
    put_cell(to, layout, TOP_MEMORY, size_text(device->memory.bytes).text);
    put_cell(to, layout, TOP_SPILLED, size_text(device->memory.spilled).text);
    limited = device->memory_limit || device->memory_closed;
    put_cell(to, layout, TOP_LIMIT,
        limited ? size_text(device->memory_closed ? 0 : device->memory_limit).text : "-");
    top_table_share(device->share_now, cell, sizeof(cell));
    put_cell(to, layout, TOP_NOW, cell);
    top_table_share(device->share_minute, cell, sizeof(cell));
    put_cell(to, layout, TOP_MINUTE, cell);
    put_limits(to, layout, device);
    snprintf(cell, sizeof(cell), container->has_priority ? "%u" : "-", container->priority);
    put_cell(to, layout, TOP_PRIORITY, cell);
    put_cell(to, layout, TOP_STATE, collect_words_state(container, device));
    write_graph(
        model, track ? track->history : NULL, layout->widths[TOP_GRAPH], graph, sizeof(graph));
    put_cell(to, layout, TOP_GRAPH, graph);
}

void top_table_row(const struct top_model *model, const struct top_layout *layout,
    const struct top_row *row, char *line)
{
    char name[TOP_TEXT_BYTES(TOP_WIDTH_MAX)];
    struct line to = {.text = line};
    top_table_name(row, name, sizeof(name));
    put_cell(&to, layout, TOP_NAME, name);
    if (row->process)
        put_process(&to, layout, row, top_model_share(model, row));
    else
        put_container(model, &to, layout, row);
    line[to.length] = '\0';
}

/* ---- above the table ---- */

static size_t count_state(const struct top_model *model, const char *state)
{
    size_t count = 0;
    for (size_t c = 0; c < model->now.count; c++) {
        const struct collected_container *container = &model->now.containers[c];
        bool any = false;
        for (unsigned d = 0; d < container->device_count; d++)
            any |= strcmp(collect_words_state(container, &container->devices[d]), state) == 0;
        count += any || (!container->device_count && container->paused && !strcmp(state, "paused"));
    }
    return count;
}

void top_table_summary(const struct top_model *model, char *text, size_t size)
{
    static const char *const states[] = {"throttled", "paused", "held", "closed"};
    size_t processes = 0;
    for (size_t c = 0; c < model->now.count; c++)
        processes += model->now.containers[c].process_count;
    size_t length = (size_t)snprintf(text, size, "%zu container%s, %zu process%s", model->now.count,
        model->now.count == 1 ? "" : "s", processes, processes == 1 ? "" : "es");
    for (unsigned i = 0; i < sizeof(states) / sizeof(states[0]) && length < size; i++) {
        size_t count = count_state(model, states[i]);
        if (count)
            length += (size_t)snprintf(text + length, size - length, ", %zu %s", count, states[i]);
    }
    if (model->now.unreadable && length < size)
        snprintf(
            text + length, size - length, ", %zu of others not readable", model->now.unreadable);
}

void top_table_gpu(const struct top_gpu *gpu, char *text, size_t size)
{
    char uuid[3 * sizeof(gpu->uuid)], share[16], of[32] = "";
    text_escape(uuid, sizeof(uuid), gpu->uuid, strlen(gpu->uuid));
    top_table_share(gpu->share, share, sizeof(share));
    if (gpu->physical_bytes)
        snprintf(of, sizeof(of), " of %s", size_text(gpu->physical_bytes).text);
    snprintf(text, size, "%.12s %5s%% %s%s, %u container%s", uuid, share,
        size_text(gpu->memory_bytes).text, of, gpu->containers, gpu->containers == 1 ? "" : "s");
}
