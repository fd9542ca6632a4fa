/* SPDX-License-Identifier: Apache-2.0 */
#include "top/graphs.h"

#include "host/size.h"
#include "top/table.h"

#include <stdio.h>
#include <string.h>

#define GPU_TEXT_COLUMNS 50
#define LINE_BYTES TOP_TEXT_BYTES(TOP_WIDTH_MAX)
#define SCALE_COLUMNS 9 /* "139.8GiB " */

typedef float read_value(
    const struct top_model *model, const struct top_history *history, unsigned age);

/* The newest look is on the right. */
static size_t put_bars(char *text, size_t room, const struct top_model *model,
    const struct top_history *history, read_value *value, double scale, unsigned columns,
    unsigned line, unsigned lines)
{
    size_t length = 0;
    for (unsigned i = columns; i-- > 0 && length + 4 < room;)
        length += (size_t)snprintf(text + length, room - length, "%s",
            top_text_bar(value(model, history, i), scale, lines - 1 - line, lines));
    return length;
}

void top_graph_gpu(const struct top_model *model, const struct top_gpu *gpu, unsigned width,
    unsigned line, unsigned lines, char *text)
{
    char said[TOP_TEXT_BYTES(GPU_TEXT_COLUMNS) + 256] = "";
    if (!line)
        top_table_gpu(gpu, said, sizeof(said));
    unsigned columns = width < GPU_TEXT_COLUMNS + 11 ? width : GPU_TEXT_COLUMNS;
    size_t length = top_text_fit(text, LINE_BYTES, said, columns, false);
    if (columns < width) {
        text[length++] = ' ';
        put_bars(text + length, LINE_BYTES - length, model, gpu->history, top_history_gpu, 100,
            width - columns - 1, line, lines);
    }
}

static const struct collected_device *selected_device(
    const struct top_model *model, const struct top_history **ret_history)
{
    const struct top_row *row = top_model_selected(model);
    const struct top_track *track =
        row ? top_model_track(model, row->container, row->device) : NULL;
    *ret_history = track ? track->history : NULL;
    return row && row->device < row->container->device_count ? &row->container->devices[row->device]
                                                             : NULL;
}

static void describe_span(uint64_t delay_ns, unsigned columns, char *text, size_t size)
{
    double seconds = (double)delay_ns / 1e9 * columns;
    if (seconds < 120)
        snprintf(text, size, "%.0f s", seconds);
    else
        snprintf(text, size, "%.0f min", seconds / 60);
}

static unsigned half(unsigned width)
{
    return width / 2 > SCALE_COLUMNS + 2 ? width / 2 - SCALE_COLUMNS - 1 : 1;
}

void top_graph_caption(const struct top_model *model, uint64_t delay_ns, unsigned width, char *text)
{
    const struct top_history *history;
    const struct top_row *row = top_model_selected(model);
    const struct collected_device *device = selected_device(model, &history);
    char name[LINE_BYTES] = "", rest[256] = "", share[16], span[32], most[32] = "";
    if (device) {
        struct top_row container = {.container = row->container, .first = true};
        top_table_name(&container, name, sizeof(name));
        top_table_share(device->share_now, share, sizeof(share));
        describe_span(delay_ns, half(width), span, sizeof(span));
        if (device->core_limit)
            snprintf(most, sizeof(most), " of %u", device->core_limit);
        snprintf(rest, sizeof(rest), " dev %u: GPU %s%s %%, memory %s%s%s; %s", row->device, share,
            most, size_text(device->memory.bytes).text, device->memory_limit ? " of " : "",
            device->memory_limit ? size_text(device->memory_limit).text : "", span);
    }
    unsigned behind = top_text_columns(rest);
    unsigned whole = top_text_columns(name);
    unsigned columns = width > behind + 8 ? width - behind : 8;
    size_t length = top_text_fit(text, LINE_BYTES, name, whole < columns ? whole : columns, false);
    snprintf(text + length, LINE_BYTES - length, "%s", rest);
}

/* Of memory: the limit, else the card, else what was most. */
static double memory_scale(const struct top_model *model, const struct collected_device *device,
    const struct top_history *history, unsigned columns)
{
    double most = 1;
    for (unsigned i = 0; i < columns; i++) {
        double value = (double)top_history_memory(model, history, i);
        most = value > most ? value : most;
    }
    return device->memory_limit     ? (double)device->memory_limit
           : device->physical_bytes ? (double)device->physical_bytes
                                    : most;
}

static size_t put_scale(char *text, size_t room, const char *top, unsigned line, unsigned lines)
{
    char label[32] = "";
    if (!line)
        snprintf(label, sizeof(label), "%s", top);
    else if (line + 1 == lines)
        snprintf(label, sizeof(label), "0");
    size_t length = top_text_fit(text, room, label, SCALE_COLUMNS - 1, true);
    text[length++] = ' ';
    return length;
}

void top_graph_detail(
    const struct top_model *model, unsigned width, unsigned line, unsigned lines, char *text)
{
    const struct top_history *history;
    const struct collected_device *device = selected_device(model, &history);
    unsigned columns = half(width);
    text[0] = '\0';
    if (!device || width < 2 * SCALE_COLUMNS + 10)
        return;
    double scale = memory_scale(model, device, history, columns);
    size_t length = put_scale(text, LINE_BYTES, "100%", line, lines);
    length += put_bars(text + length, LINE_BYTES - length, model, history, top_history_gpu, 100,
        columns, line, lines);
    length += (size_t)snprintf(text + length, LINE_BYTES - length, "  ");
    length +=
        put_scale(text + length, LINE_BYTES - length, size_text((uint64_t)scale).text, line, lines);
    put_bars(text + length, LINE_BYTES - length, model, history, top_history_memory, scale, columns,
        line, lines);
}
