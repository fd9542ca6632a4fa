/* SPDX-License-Identifier: Apache-2.0 */
#include "top/screen.h"

#include "base/text.h"
#include "host/choose.h"
#include "collect/collect_words.h"
#include "top/graphs.h"
#include "top/table.h"
#include "top/terminal.h"

#define NCURSES_NOMACROS
#define NCURSES_WIDECHAR 1
#include <curses.h>

#include <string.h>

#define LEAST_COLUMNS 20
#define LEAST_LINES 4
#define LINE_BYTES TOP_TEXT_BYTES(TOP_WIDTH_MAX)

/* How many lines of the screen each part has. */
struct parts {
    unsigned width, height;
    unsigned gpus, gpu_lines; /* GPUs shown, and lines of each */
    unsigned rows;
    unsigned detail; /* of its graphs; 0: without a caption too */
};

static unsigned least(unsigned one, unsigned other)
{
    return one < other ? one : other;
}

/* The table has what the graphs leave, and they leave it two thirds. */
static struct parts divide(const struct top_model *model, const struct top_input *input)
{
    struct parts parts = {
        .width = least((unsigned)COLS, TOP_WIDTH_MAX), .height = (unsigned)LINES, .gpu_lines = 1};
    unsigned fixed = 4; /* title, header, status, keys */
    if (!input->hide_graphs && parts.height >= 10) {
        unsigned room = (parts.height - fixed) / 4;
        parts.gpus = least((unsigned)model->gpu_count, room);
        if (parts.gpus && parts.height >= 40)
            parts.gpu_lines = least(room / parts.gpus, 4);
        parts.detail = parts.height >= 40 ? 6 : parts.height >= 24 ? 3 : parts.height >= 18 ? 2 : 0;
    }
    unsigned used = fixed + parts.gpus * parts.gpu_lines + (parts.detail ? parts.detail + 1 : 0);
    parts.rows = parts.height > used ? parts.height - used : 0;
    return parts;
}

static void put(unsigned y, unsigned x, const char *text, attr_t attributes)
{
    attrset((int)attributes);
    mvaddstr((int)y, (int)x, text);
    attrset(A_NORMAL);
}

/* A whole line in one look. */
static void put_line(unsigned y, unsigned width, const char *text, attr_t attributes)
{
    char line[LINE_BYTES];
    top_text_fit(line, sizeof(line), text, width, false);
    put(y, 0, line, attributes);
}

static attr_t coloured(short colour)
{
    return top_terminal_has_colour() ? (attr_t)COLOR_PAIR(colour) : A_NORMAL;
}

static void draw_title(const struct top_model *model, const struct top_input *input, unsigned width)
{
    char left[512], right[256];
    size_t length = (size_t)snprintf(left, sizeof(left), "vgpu top: ");
    if (model->looks)
        top_table_summary(model, left + length, sizeof(left) - length);
    else
        snprintf(left + length, sizeof(left) - length, "looking for containers");
    snprintf(right, sizeof(right), "by %s%s, %.4g s", top_sort_name(model->sort),
        model->reverse ? " reversed" : "", (double)input->delay_ns / 1e9);
    unsigned columns = top_text_columns(right);
    put_line(0, width, left, A_BOLD);
    if (top_text_columns(left) + columns + 2 <= width)
        put(0, width - columns, right, A_NORMAL);
}

static void draw_gpus(const struct top_model *model, const struct parts *parts)
{
    char line[LINE_BYTES];
    for (unsigned i = 0; i < parts->gpus; i++) {
        for (unsigned l = 0; l < parts->gpu_lines; l++) {
            top_graph_gpu(model, &model->gpus[i], parts->width, l, parts->gpu_lines, line);
            put(1 + i * parts->gpu_lines + l, 0, line, coloured(COLOR_CYAN));
        }
    }
    if (parts->gpus && parts->gpus < model->gpu_count) {
        snprintf(line, sizeof(line), "and %zu GPUs more", model->gpu_count - parts->gpus + 1);
        put_line(parts->gpus * parts->gpu_lines, parts->width, line, A_NORMAL);
    }
}

static attr_t row_look(const struct top_row *row)
{
    const struct collected_container *container = row->container;
    if (row->process || row->device >= container->device_count)
        return A_NORMAL;
    switch (collect_words_state(container, &container->devices[row->device])[0]) {
    case 'r': /* running */
        return coloured(COLOR_GREEN);
    case 't': /* throttled */
    case 'c': /* closed */
        return coloured(COLOR_RED);
    case 'p': /* paused */
    case 'h': /* held */
        return coloured(COLOR_YELLOW);
    default:
        return A_NORMAL;
    }
}

/* The part of the rows in which the selected one is, with as little scrolling as will do. */
static size_t first_shown(const struct top_model *model, unsigned rows)
{
    static size_t first;
    if (model->selected < first)
        first = model->selected;
    if (rows && model->selected >= first + rows)
        first = model->selected - rows + 1;
    if (first && first + rows > model->row_count)
        first = model->row_count > rows ? model->row_count - rows : 0;
    return first;
}

static void draw_table(const struct top_model *model, const struct parts *parts)
{
    struct top_layout layout;
    char line[LINE_BYTES];
    unsigned y = 1 + parts->gpus * parts->gpu_lines;
    size_t first = first_shown(model, parts->rows);
    top_table_lay_out(model, parts->width, &layout);
    top_table_header(model, &layout, line);
    put_line(y, parts->width, line, A_REVERSE);
    for (unsigned i = 0; i < parts->rows && first + i < model->row_count; i++) {
        const struct top_row *row = &model->rows[first + i];
        top_table_row(model, &layout, row, line);
        put_line(y + 1 + i, parts->width, line,
            first + i == model->selected ? A_REVERSE | A_BOLD : row_look(row));
    }
}

static void draw_detail(
    const struct top_model *model, const struct top_input *input, const struct parts *parts)
{
    char line[LINE_BYTES];
    unsigned y = parts->height - 2 - parts->detail;
    if (!parts->detail || !model->row_count)
        return;
    top_graph_caption(model, input->delay_ns, parts->width, line);
    put_line(y - 1, parts->width, line, A_UNDERLINE);
    for (unsigned l = 0; l < parts->detail; l++) {
        top_graph_detail(model, parts->width, l, parts->detail, line);
        put_line(y + l, parts->width, line, coloured(COLOR_CYAN));
    }
}

/* What is wrong comes first. */
static bool describe(const struct top_model *model, const struct top_input *input,
    const struct top_notice *notice, char *text, size_t size)
{
    if (input->message[0]) {
        snprintf(text, size, "%s", input->message);
        return input->message_is_bad;
    }
    const struct collect_problem *problem =
        model->now.problem_count ? &model->now.problems[0] : NULL;
    if (notice->silent_ns)
        snprintf(text, size, "no answer for %.0f s: a file system or /proc keeps the look waiting",
            (double)notice->silent_ns / 1e9);
    else if (notice->look_error)
        snprintf(text, size, "cannot look: %s", strerror(-notice->look_error));
    else if (notice->is_changing)
        snprintf(text, size, "the change is on its way");
    else if (problem)
        snprintf(text, size, "%.200s: %s", problem->path ? problem->path : "",
            choose_explain(problem->error));
    else if (model->filter[0])
        snprintf(text, size, "only what contains \"%s\"; Esc shows all", model->filter);
    else if (model->looks && !model->now.count)
        snprintf(text, size, "no container with a program in it was found");
    else
        text[0] = '\0';
    return notice->silent_ns || notice->look_error || problem;
}

/* As many as have room, the most asked for first. */
static void draw_keys(unsigned y, unsigned width)
{
    static const char *const keys[] = {"q quit", "h help", "/ filter", "s sort", "p pause",
        "r resume", "c cores", "m memory", "t processes", "C soft cores", "P priority", "i invert",
        "g graphs"};
    char line[256] = "";
    size_t length = 0;
    for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (length + 2 + strlen(keys[i]) <= width)
            length += (size_t)snprintf(
                line + length, sizeof(line) - length, "%s%s", length ? "  " : "", keys[i]);
    }
    put_line(y, width, line, A_DIM);
}

static void draw_status(const struct top_model *model, const struct top_input *input,
    const struct top_notice *notice, const struct parts *parts)
{
    char text[2 * TOP_MESSAGE_BYTES + TOP_FILTER_BYTES], clean[2 * sizeof(text)];
    unsigned y = parts->height - 2, cursor = 0;
    bool asks = input->mode != TOP_LIST, bad = false;
    if (asks)
        snprintf(text, sizeof(text), "%s%s", input->prompt, input->text);
    else
        bad = describe(model, input, notice, text, sizeof(text));
    text_escape(clean, sizeof(clean), text, strlen(text));
    /* Where it does not fit, the end is what matters. */
    const char *shown = clean;
    while (asks && top_text_columns(shown) >= parts->width) {
        shown++;
        while (((unsigned char)*shown & 0xc0) == 0x80)
            shown++;
    }
    put_line(y, parts->width, shown, bad ? A_BOLD | coloured(COLOR_RED) : asks ? A_BOLD : 0);
    if (asks)
        put_line(y + 1, parts->width,
            input->mode == TOP_CONFIRM ? "" : "Enter: done  Esc: leave it", A_DIM);
    else
        draw_keys(y + 1, parts->width);
    cursor = top_text_columns(shown);
    curs_set(asks ? 1 : 0);
    move((int)y, (int)least(cursor, parts->width - 1));
}

static void draw_help(const struct parts *parts)
{
    static const char *const lines[] = {"Keys of vgpu top", "",
        "up down PgUp PgDn Home End    select a line; Home: stay on the first",
        "Enter    fold the container's processes, and unfold them",
        "t        processes of all containers: show or hide",
        "s S      sort by the next or former: gpu minute memory priority processes name",
        "i        invert the order", "/        show only what contains a text; Esc: all again",
        "p r      pause the selected container, resume it",
        "c C      its share of GPU time (cores), its soft limit",
        "m P      its memory, its priority", "g        graphs: show or hide",
        "+ -      look half or twice as often; space: look now", "q        quit", "",
        "GPU% 1MIN: share of the GPU's time over a second, a minute; of a",
        "process since the last look. A dash: not measured (no limit).", "",
        "Any key goes back. More: man vgpu-top"};
    for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]) && i < parts->height; i++)
        put_line(i, parts->width, lines[i], i ? A_NORMAL : A_BOLD);
}

void top_screen_draw(
    const struct top_model *model, struct top_input *input, const struct top_notice *notice)
{
    struct parts parts = divide(model, input);
    erase();
    input->page = parts.rows;
    if (parts.width < LEAST_COLUMNS || parts.height < LEAST_LINES) {
        mvaddnstr(0, 0, "too small", (int)parts.width);
    } else if (input->mode == TOP_HELP) {
        draw_help(&parts);
    } else {
        draw_title(model, input, parts.width);
        draw_gpus(model, &parts);
        draw_table(model, &parts);
        draw_detail(model, input, &parts);
        draw_status(model, input, notice, &parts);
    }
    refresh();
}

void top_screen_print(const struct top_model *model, unsigned width, FILE *stream)
{
    struct top_layout layout;
    char line[LINE_BYTES];
    top_table_summary(model, line, sizeof(line));
    fprintf(stream, "%s\n", line);
    for (size_t i = 0; i < model->gpu_count; i++) {
        top_graph_gpu(
            model, &model->gpus[i], width ? least(width, TOP_WIDTH_MAX) : 110, 0, 1, line);
        fprintf(stream, "%s\n", line);
    }
    top_table_lay_out(model, width, &layout);
    top_table_header(model, &layout, line);
    fprintf(stream, "%s\n", line);
    for (size_t i = 0; i < model->row_count; i++) {
        top_table_row(model, &layout, &model->rows[i], line);
        fprintf(stream, "%s\n", line);
    }
}
