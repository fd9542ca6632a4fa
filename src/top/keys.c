/* SPDX-License-Identifier: Apache-2.0 */
#include "top/keys.h"

#include "base/text.h"
#include "host/limits.h"
#include "collect/collect_words.h"
#include "host/size.h"
#include "host/say.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const limit_names[] = {"cores", "soft-cores", "memory", "priority"};

void top_keys_say(struct top_input *input, bool bad, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(input->message, sizeof(input->message), format, arguments);
    va_end(arguments);
    input->message_is_bad = bad;
}

static void arrange(struct top_input *input, struct top_model *model)
{
    if (top_model_arrange(model) != 0)
        top_keys_say(input, true, "out of memory");
}

/* ---- a line of text ---- */

static void start_text(struct top_input *input, enum top_mode mode)
{
    input->mode = mode;
    input->text[0] = '\0';
    input->message[0] = '\0';
}

static size_t encode(uint32_t key, char *bytes)
{
    if (key < 0x80) {
        bytes[0] = (char)key;
        return 1;
    }
    size_t count = key < 0x800 ? 2 : key < 0x10000 ? 3 : 4;
    for (size_t i = count - 1; i > 0; i--, key >>= 6)
        bytes[i] = (char)(0x80 | (key & 0x3f));
    bytes[0] = (char)((0xf00 >> count) | key);
    return count;
}

static void write_key(struct top_input *input, uint32_t key)
{
    size_t length = strlen(input->text);
    char bytes[4];
    if (key == TOP_KEY_ERASE) {
        while (length && ((unsigned char)input->text[--length] & 0xc0) == 0x80) {
        }
        input->text[length] = '\0';
    } else if (key == 0x15) { /* ^U */
        input->text[0] = '\0';
    } else if (key >= ' ' && key != 0x7f && key < TOP_KEY_UP && (key < 0x80 || key >= 0xa0)) {
        size_t count = encode(key, bytes);
        if (length + count < sizeof(input->text)) {
            memcpy(input->text + length, bytes, count);
            input->text[length + count] = '\0';
        }
    }
}

/* ---- the filter ---- */

static void set_filter(struct top_input *input, struct top_model *model, const char *text)
{
    snprintf(model->filter, sizeof(model->filter), "%s", text);
    arrange(input, model);
}

static void begin_filter(struct top_input *input, const struct top_model *model)
{
    start_text(input, TOP_FILTER);
    memcpy(input->filter_before, model->filter, sizeof(input->filter_before));
    memcpy(input->text, model->filter, sizeof(input->text));
    snprintf(input->prompt, sizeof(input->prompt), "show what contains: ");
}

static void press_in_filter(struct top_input *input, struct top_model *model, uint32_t key)
{
    if (key == TOP_KEY_ESCAPE)
        memcpy(input->text, input->filter_before, sizeof(input->text));
    else if (key != TOP_KEY_ENTER)
        write_key(input, key);
    if (key == TOP_KEY_ESCAPE || key == TOP_KEY_ENTER)
        input->mode = TOP_LIST;
    set_filter(input, model, input->text);
}

/* ---- limits and pauses ---- */

/* They are for the row that is selected now, wherever it moves later. */
static const struct top_row *begin_order(struct top_input *input, const struct top_model *model)
{
    const struct top_row *row = top_model_selected(model);
    if (!row) {
        top_keys_say(input, true, "no container is selected");
        return NULL;
    }
    const char *name = collect_words_container(row->container);
    text_escape(input->name, sizeof(input->name), name, strlen(name));
    top_order_begin(&input->order, row->container);
    input->device_count = row->container->device_count;
    return row;
}

static void ask(struct top_input *input, const char *question)
{
    input->mode = TOP_CONFIRM;
    input->text[0] = '\0';
    snprintf(input->prompt, sizeof(input->prompt), "%.200s? y: yes, other keys: no ", question);
}

static void begin_pause(struct top_input *input, const struct top_model *model, bool paused)
{
    char question[sizeof(input->name) + 32];
    if (!begin_order(input, model))
        return;
    input->order.is_pause = true;
    input->order.paused = paused;
    snprintf(question, sizeof(question), "%s %s", paused ? "pause" : "resume", input->name);
    snprintf(input->done, sizeof(input->done), "%s is %s", input->name,
        paused ? "paused; r lets it go on" : "resumed");
    ask(input, question);
}

static void current_value(enum top_limit limit, const struct top_row *row, char *text, size_t size)
{
    static const struct collected_device none;
    const struct collected_container *container = row->container;
    const struct collected_device *device =
        row->device < container->device_count ? &container->devices[row->device] : &none;
    if (limit == TOP_PRIORITY_LEVEL && container->has_priority)
        snprintf(text, size, "%u", container->priority);
    else if (limit == TOP_CORES && device->core_limit)
        snprintf(text, size, "%u", device->core_limit);
    else if (limit == TOP_SOFT_CORES && device->core_soft_limit)
        snprintf(text, size, "%u", device->core_soft_limit);
    else if (limit == TOP_MEMORY_LIMIT && device->memory_limit)
        snprintf(text, size, "%s", size_text(device->memory_limit).text);
    else
        snprintf(text, size, "none");
}

static void begin_limit(
    struct top_input *input, const struct top_model *model, enum top_limit limit)
{
    static const char *const units[] = {
        "percent, 0: no limit", "percent, 0: none", "2GiB, 512m, 0: no limit", "0 is high"};
    char now[32];
    const struct top_row *row = begin_order(input, model);
    if (!row)
        return;
    start_text(input, TOP_VALUE);
    input->limit = limit;
    current_value(limit, row, now, sizeof(now));
    snprintf(input->prompt, sizeof(input->prompt),
        "%s (%s; now %s) of %.100s: ", limit_names[limit], units[limit], now, input->name);
}

static void take_line(const char *line, void *context)
{
    top_keys_say(context, true, "%s", line);
}

static bool parse_value(struct top_input *input)
{
    static int (*const parsers[])(const char *, const char *, struct region_change *) = {
        limits_parse_cores, limits_parse_soft_cores, limits_parse_memory, limits_parse_priority};
    say_take_errors(take_line, input);
    int status =
        parsers[input->limit](limit_names[input->limit], input->text, &input->order.change);
    say_take_errors(NULL, NULL);
    return status == 0;
}

static void ask_for_limit(struct top_input *input, const char *value)
{
    char question[TOP_MESSAGE_BYTES], of[32] = "";
    if (input->order.device != REGION_ALL_DEVICES)
        snprintf(of, sizeof(of), " on device %d", input->order.device);
    else if (input->device_count > 1 && input->limit != TOP_PRIORITY_LEVEL)
        snprintf(of, sizeof(of), " on all devices");
    snprintf(question, sizeof(question), "set %s of %.100s to %.24s%s", limit_names[input->limit],
        input->name, value, of);
    snprintf(input->done, sizeof(input->done), "%s of %.100s: %.24s%s", limit_names[input->limit],
        input->name, value, of);
    ask(input, question);
}

static void take_value(struct top_input *input)
{
    char value[sizeof(input->text)];
    memcpy(value, input->text, sizeof(value));
    input->mode = TOP_LIST;
    if (!value[0]) {
        top_keys_say(input, false, "nothing was changed");
    } else if (!parse_value(input)) {
        return;
    } else if (input->device_count > 1 && input->limit != TOP_PRIORITY_LEVEL) {
        memcpy(input->filter_before, value, sizeof(value)); /* not in use meanwhile */
        start_text(input, TOP_WHICH);
        snprintf(input->prompt, sizeof(input->prompt),
            "of which device, 0 to %u (empty: all): ", input->device_count - 1);
    } else {
        ask_for_limit(input, value);
    }
}

static void take_device(struct top_input *input)
{
    int device = REGION_ALL_DEVICES;
    input->mode = TOP_LIST;
    say_take_errors(take_line, input);
    int status = input->text[0] ? limits_parse_device("device", input->text, &device) : 0;
    say_take_errors(NULL, NULL);
    if (status)
        return;
    input->order.device = device;
    ask_for_limit(input, input->filter_before);
}

static void press_in_text(struct top_input *input, uint32_t key)
{
    if (key == TOP_KEY_ESCAPE) {
        input->mode = TOP_LIST;
        top_keys_say(input, false, "nothing was changed");
    } else if (key != TOP_KEY_ENTER) {
        write_key(input, key);
    } else if (input->mode == TOP_VALUE) {
        take_value(input);
    } else {
        take_device(input);
    }
}

static void press_in_confirm(struct top_input *input, uint32_t key)
{
    input->mode = TOP_LIST;
    input->wants_order = key == 'y' || key == 'Y';
    top_keys_say(input, false, "%s", input->wants_order ? "" : "nothing was changed");
}

/* ---- the list ---- */

static void fold(struct top_input *input, struct top_model *model)
{
    const struct top_row *row = top_model_selected(model);
    struct top_track *track = row ? top_model_track(model, row->container, 0) : NULL;
    if (track)
        track->folded = !track->folded;
    arrange(input, model);
}

static void sort(struct top_input *input, struct top_model *model, int step)
{
    model->sort = (enum top_sort)((model->sort + TOP_SORTS + step) % TOP_SORTS);
    arrange(input, model);
    top_keys_say(input, false, "sorted by %s", top_sort_name(model->sort));
}

static void change_delay(struct top_input *input, bool longer)
{
    uint64_t delay = longer ? input->delay_ns * 2 : input->delay_ns / 2;
    if (delay >= TOP_DELAY_LEAST_NS && delay <= TOP_DELAY_MOST_NS)
        input->delay_ns = delay;
    top_keys_say(input, false, "a look every %.4g s", (double)input->delay_ns / 1e9);
}

static bool steer(struct top_input *input, struct top_model *model, uint32_t key)
{
    long page = input->page > 1 ? (long)input->page - 1 : 1;
    switch (key) {
    case TOP_KEY_UP:
    case 'k':
        top_model_move(model, -1);
        return true;
    case TOP_KEY_DOWN:
    case 'j':
        top_model_move(model, 1);
        return true;
    case TOP_KEY_PAGE_UP:
        top_model_move(model, -page);
        return true;
    case TOP_KEY_PAGE_DOWN:
        top_model_move(model, page);
        return true;
    case TOP_KEY_FIRST:
        model->follows = false;
        arrange(input, model);
        return true;
    case TOP_KEY_LAST:
        top_model_move(model, (long)model->row_count);
        return true;
    case TOP_KEY_ENTER:
        fold(input, model);
        return true;
    case TOP_KEY_ESCAPE:
        set_filter(input, model, "");
        return true;
    default:
        return false;
    }
}

static bool press_for_order(struct top_input *input, const struct top_model *model, uint32_t key)
{
    switch (key) {
    case 'p':
    case 'r':
        begin_pause(input, model, key == 'p');
        return true;
    case 'c':
        begin_limit(input, model, TOP_CORES);
        return true;
    case 'C':
        begin_limit(input, model, TOP_SOFT_CORES);
        return true;
    case 'm':
        begin_limit(input, model, TOP_MEMORY_LIMIT);
        return true;
    case 'P':
        begin_limit(input, model, TOP_PRIORITY_LEVEL);
        return true;
    default:
        return false;
    }
}

static void press_in_list(struct top_input *input, struct top_model *model, uint32_t key)
{
    input->message[0] = '\0';
    if (steer(input, model, key) || press_for_order(input, model, key))
        return;
    switch (key) {
    case 'q':
        input->wants_end = true;
        break;
    case 's':
    case 'S':
        sort(input, model, key == 's' ? 1 : -1);
        break;
    case 'i':
        model->reverse = !model->reverse;
        arrange(input, model);
        break;
    case 't':
        model->hide_processes = !model->hide_processes;
        arrange(input, model);
        break;
    case 'g':
        input->hide_graphs = !input->hide_graphs;
        break;
    case '/':
        begin_filter(input, model);
        break;
    case '+':
    case '-':
        change_delay(input, key == '+');
        break;
    case ' ':
        input->wants_look = true;
        break;
    case 'h':
    case '?':
        input->mode = TOP_HELP;
        break;
    default:
        top_keys_say(input, false, "h lists the keys");
    }
}

void top_keys_press(struct top_input *input, struct top_model *model, uint32_t key)
{
    switch (input->mode) {
    case TOP_LIST:
        press_in_list(input, model, key);
        break;
    case TOP_FILTER:
        press_in_filter(input, model, key);
        break;
    case TOP_VALUE:
    case TOP_WHICH:
        press_in_text(input, key);
        break;
    case TOP_CONFIRM:
        press_in_confirm(input, key);
        break;
    case TOP_HELP:
        input->mode = TOP_LIST;
    }
}
