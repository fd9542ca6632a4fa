/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu doctor found, for people and for programs. */
#include "doctor/print.h"

#include "base/text.h"
#include "host/json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const words[] = {"ok", "note", "problem"};

static unsigned count(const struct checks *checks, enum check_status status)
{
    unsigned found = 0;
    for (size_t i = 0; i < checks->count; i++)
        found += checks->list[i].status == status;
    return found;
}

/* ---- for people ---- */

/* Five good doors are one line. */
static void join_doors(const struct checks *checks, struct checks *ret_joined)
{
    struct check *door = NULL;
    ret_joined->count = 0;
    for (size_t i = 0; i < checks->count; i++) {
        const struct check *check = &checks->list[i];
        bool good = check->status == CHECK_FINE && !strcmp(check->name, "door");
        size_t used = good && door ? strlen(door->text) : 0;
        if (good && door) {
            snprintf(door->text + used, sizeof(door->text) - used, ", %s", check->text);
            continue;
        }
        ret_joined->list[ret_joined->count] = *check;
        door = good ? &ret_joined->list[ret_joined->count] : door;
        ret_joined->count++;
    }
}

#define COLUMNS 80
#define INDENT 20
#define ALIKE 8 /* lines of one name and status; the others are counted */

static bool same_line(const struct check *one, const struct check *other)
{
    return one->status == other->status && !strcmp(one->name, other->name) &&
           !strcmp(one->text, other->text) && one->device >= 0 && other->device >= 0 &&
           (!one->remedy || !other->remedy ? one->remedy == other->remedy
                                           : !strcmp(one->remedy, other->remedy));
}

static size_t add_range(char *name, size_t size, size_t length, int first, int last)
{
    char separator = strchr(name, ' ') ? ',' : ' ', range[32];
    if (first == last)
        snprintf(range, sizeof(range), "%c%d", separator, first);
    else
        snprintf(range, sizeof(range), "%c%d-%d", separator, first, last);
    return length + (size_t)snprintf(name + length, size - length, "%s", range);
}

/* "gate 0-3,5": the devices that the line is said of. */
static void name_line(const struct checks *checks, size_t index, char *name, size_t size)
{
    const struct check *check = &checks->list[index];
    size_t length = (size_t)snprintf(name, size, "%s", check->name);
    int first = check->device, last = check->device;
    if (first < 0)
        return;
    for (size_t i = index + 1; i < checks->count && length + 32 < size; i++) {
        int device = checks->list[i].device;
        if (!same_line(check, &checks->list[i]))
            continue;
        if (device != last + 1) {
            length = add_range(name, size, length, first, last);
            first = device;
        }
        last = device;
    }
    (void)add_range(name, size, length, first, last);
}

/* Fills lines of 80 columns; what has no blank is not cut. A character that is not ASCII counts as
 * one column. */
static void print_filled(FILE *stream, const char *text)
{
    size_t column = INDENT;
    bool first = true;
    while (*text) {
        size_t bytes = strcspn(text, " "), columns = 0;
        for (size_t i = 0; i < bytes; i++)
            columns += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (!first && column + 1 + columns > COLUMNS) {
            fprintf(stream, "\n%*s", INDENT, "");
            column = INDENT;
        } else if (!first) {
            putc(' ', stream);
            column++;
        }
        fprintf(stream, "%.*s", (int)bytes, text);
        column += columns;
        text += bytes + (text[bytes] == ' ');
        first = false;
    }
    putc('\n', stream);
}

static void print_check(FILE *stream, const struct checks *checks, size_t index, bool coloured)
{
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m"};
    const struct check *check = &checks->list[index];
    char name[96], text[1024], remedy[512];
    name_line(checks, index, name, sizeof(name));
    text_escape(text, sizeof(text), check->text, strlen(check->text));
    fprintf(stream, "%s%-8s%s%-11s ", coloured ? colours[check->status] : "", words[check->status],
        coloured ? "\033[0m" : "", name);
    print_filled(stream, text);
    if (check->remedy) {
        snprintf(remedy, sizeof(remedy), "remedy: %s", check->remedy);
        fprintf(stream, "%*s", INDENT, "");
        print_filled(stream, remedy);
    }
}

/* What is printed of it: not what was said of another device, and a bounded number of each name. */
static bool gets_line(
    const struct checks *checks, size_t index, const bool *printed, bool *ret_many)
{
    const struct check *check = &checks->list[index];
    unsigned before = 0;
    *ret_many = false;
    for (size_t i = 0; i < index; i++) {
        if (same_line(&checks->list[i], check))
            return false;
        before += printed[i] && checks->list[i].status == check->status &&
                  !strcmp(checks->list[i].name, check->name);
    }
    *ret_many = before >= ALIKE;
    return !*ret_many;
}

static bool takes_colours(FILE *stream)
{
    const char *terminal = getenv("TERM"), *plain = getenv("NO_COLOR");
    return isatty(fileno(stream)) && terminal && strcmp(terminal, "dumb") != 0 &&
           !(plain && *plain);
}

void doctor_print(FILE *stream, const struct checks *all)
{
    static struct checks joined;
    const struct checks *checks = &joined;
    join_doors(all, &joined);
    static bool printed[sizeof(joined.list) / sizeof(joined.list[0])];
    bool coloured = takes_colours(stream), many;
    unsigned notes = count(checks, CHECK_NOTE), problems = count(checks, CHECK_PROBLEM);
    unsigned left_out = 0;
    for (size_t i = 0; i < checks->count; i++) {
        printed[i] = gets_line(checks, i, printed, &many);
        if (printed[i])
            print_check(stream, checks, i, coloured);
        left_out += many;
    }
    fprintf(stream, "%u problem%s, %u note%s", problems, problems == 1 ? "" : "s", notes,
        notes == 1 ? "" : "s");
    if (left_out)
        fprintf(stream, "; %u more lines like these: --json has them", left_out);
    putc('\n', stream);
}

/* ---- for programs ---- */

static void print_check_json(struct json *json, const struct check *check)
{
    json_write_begin_object(json, NULL);
    json_write_string(json, "check", check->name);
    if (check->device >= 0)
        json_write_signed(json, "device", check->device);
    else
        json_write_null(json, "device");
    json_write_string(json, "status", words[check->status]);
    json_write_string(json, "text", check->text);
    json_write_string(json, "remedy", check->remedy);
    json_write_end_inner(json);
}

void doctor_print_json_checks(struct json *json, const struct checks *checks)
{
    json_write_number(json, "problems", count(checks, CHECK_PROBLEM));
    json_write_number(json, "notes", count(checks, CHECK_NOTE));
    json_write_begin_array(json, "checks");
    for (size_t i = 0; i < checks->count; i++)
        print_check_json(json, &checks->list[i]);
    json_write_end_inner(json);
}

void doctor_print_json(const struct checks *checks, const struct facts *facts)
{
    struct json json;
    json_write_begin(&json, stdout);
    json_write_number(&json, "doctor", 1);
    doctor_print_json_checks(&json, checks);
    json_write_begin_object(&json, "facts");
    for (size_t i = 0; i < facts->count; i++)
        json_write_string(&json, facts->list[i].name, facts->list[i].value);
    json_write_end_inner(&json);
    json_write_end(&json);
}
