/* SPDX-License-Identifier: Apache-2.0 */
/* A reader of PTX declarations; instructions are skipped. */
#include "sim/cuda/ptx.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at;
    char word[256];
};

static const char *skip_comment(const char *at)
{
    const char *end;

    if (at[0] == '/' && at[1] == '/') {
        end = strchr(at, '\n');
        return end ? end : at + strlen(at);
    }
    end = strstr(at + 2, "*/");
    return end ? end + 2 : at + strlen(at);
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '$' || c == '%';
}

/* The next word or single sign; false at the end. */
static bool next(struct reader *reader)
{
    size_t length = 0;

    for (;;) {
        if (isspace((unsigned char)*reader->at))
            reader->at++;
        else if (reader->at[0] == '/' && (reader->at[1] == '/' || reader->at[1] == '*'))
            reader->at = skip_comment(reader->at);
        else
            break;
    }
    if (!*reader->at)
        return false;
    if (!is_word(*reader->at)) {
        reader->word[length++] = *reader->at++;
    } else {
        while (is_word(*reader->at)) {
            if (length < sizeof reader->word - 1)
                reader->word[length++] = *reader->at;
            reader->at++;
        }
    }
    reader->word[length] = '\0';
    return true;
}

static bool is(const struct reader *reader, const char *word)
{
    return strcmp(reader->word, word) == 0;
}

/* Bytes of .u64, .f32, .b8, .v4 … types; 0 if the word is none. */
static uint32_t type_bytes(const char *word)
{
    static const char *const kinds[] = {".u", ".s", ".b", ".f"};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i]);

        if (strncmp(word, kinds[i], length) == 0 && isdigit((unsigned char)word[length]))
            return (uint32_t)strtoul(word + length, NULL, 10) / 8;
    }
    return 0;
}

struct variable {
    char name[256];
    uint64_t bytes;
    uint32_t alignment;
    char type[8];
};

/* From after ".param", ".local", ".global" … to the sign that ends the declaration. */
static bool variable_read(struct reader *reader, struct variable *ret)
{
    struct variable variable = {.alignment = 1};
    uint64_t element = 0;
    uint64_t vector = 1;
    uint64_t count = 1;

    while (next(reader)) {
        if (is(reader, ".align")) {
            if (!next(reader))
                return false;
            variable.alignment = (uint32_t)strtoul(reader->word, NULL, 10);
        } else if (strncmp(reader->word, ".v", 2) == 0 && isdigit((unsigned char)reader->word[2])) {
            vector = strtoul(reader->word + 2, NULL, 10);
        } else if (type_bytes(reader->word)) {
            element = type_bytes(reader->word);
            snprintf(variable.type, sizeof variable.type, "%.*s", (int)sizeof variable.type - 1,
                reader->word);
        } else if (is(reader, "[")) {
            if (!next(reader))
                return false;
            count *= is(reader, "]") ? 0 : strtoull(reader->word, NULL, 0);
        } else if (is(reader, ",") || is(reader, ")") || is(reader, ";") || is(reader, "=")) {
            break;
        } else if (reader->word[0] != '.' && reader->word[0] != ']' && !variable.name[0]) {
            memcpy(variable.name, reader->word, sizeof variable.name);
        }
    }
    variable.bytes = element * vector * count;
    if (variable.alignment < element * vector && vector * element <= 16)
        variable.alignment = (uint32_t)(element * vector);
    *ret = variable;
    return variable.name[0] && element;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);

    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

static bool is_named(const struct variable *variable, const char *type, const char *end)
{
    return strcmp(variable->type, type) == 0 && ends_with(variable->name, end);
}

static bool param_read(struct reader *reader, struct ptx_entry *entry)
{
    struct variable variable;
    uint32_t i = entry->params;

    if (!variable_read(reader, &variable) || i == PTX_PARAMS_MAX)
        return false;
    if (i == 0)
        entry->has_duration = is_named(&variable, ".u64", "duration_ns");
    if (i == 1)
        entry->meets = entry->has_duration && is_named(&variable, ".u64", "meeting");
    if (i == 1)
        entry->touches = entry->has_duration && is_named(&variable, ".u64", "touched_at");
    if (i == 1)
        entry->reads = entry->has_duration && is_named(&variable, ".u64", "read_at");
    if (i == 2)
        entry->meets &= is_named(&variable, ".u32", "parties");
    if (i == 2)
        entry->touches &= is_named(&variable, ".u64", "touched_bytes");
    if (i == 2)
        entry->reads &= is_named(&variable, ".u64", "read_bytes");
    entry->offsets[i] =
        (entry->params_bytes + variable.alignment - 1) / variable.alignment * variable.alignment;
    entry->sizes[i] = (uint32_t)variable.bytes;
    entry->params_bytes = entry->offsets[i] + entry->sizes[i];
    entry->params++;
    return true;
}

/* ( .param …, .param … ) */
static bool params_read(struct reader *reader, struct ptx_entry *entry)
{
    while (!is(reader, ")")) {
        if (!next(reader))
            return false;
        if (is(reader, ".param") && !param_read(reader, entry))
            return false;
    }
    return true;
}

/* { … } */
static bool body_read(struct reader *reader, struct ptx_entry *entry)
{
    struct variable variable;
    int depth = 1;

    while (depth && next(reader)) {
        if (is(reader, "{"))
            depth++;
        else if (is(reader, "}"))
            depth--;
        else if (is(reader, ".local") && variable_read(reader, &variable))
            entry->local_bytes += variable.bytes;
        else if (is(reader, ".shared") && variable_read(reader, &variable))
            entry->shared_bytes += variable.bytes;
    }
    return depth == 0;
}

static int entry_read(struct reader *reader, struct ptx *ptx)
{
    struct ptx_entry entry = {0};
    struct ptx_entry *entries;

    if (!next(reader))
        return -EINVAL;
    entry.name = strdup(reader->word);
    if (!entry.name)
        return -ENOMEM;
    while (next(reader) && !is(reader, "{")) {
        bool good = true;

        if (is(reader, "("))
            good = params_read(reader, &entry);
        else if (is(reader, ".maxntid") && next(reader))
            entry.max_threads = (uint32_t)strtoul(reader->word, NULL, 10);
        if (!good || is(reader, ";"))
            break;
    }
    if (!is(reader, "{") || !body_read(reader, &entry)) {
        free(entry.name);
        return -EINVAL;
    }
    entries = realloc(ptx->entries, (ptx->entry_count + 1) * sizeof *entries);
    if (!entries) {
        free(entry.name);
        return -ENOMEM;
    }
    ptx->entries = entries;
    entries[ptx->entry_count++] = entry;
    return 0;
}

static int global_read(struct reader *reader, struct ptx *ptx)
{
    struct variable variable;
    struct ptx_global *globals;

    if (!variable_read(reader, &variable))
        return -EINVAL;
    globals = realloc(ptx->globals, (ptx->global_count + 1) * sizeof *globals);
    if (!globals)
        return -ENOMEM;
    ptx->globals = globals;
    globals[ptx->global_count].name = strdup(variable.name);
    globals[ptx->global_count].bytes = variable.bytes;
    return globals[ptx->global_count++].name ? 0 : -ENOMEM;
}

int ptx_parse(const char *text, struct ptx *ret_ptx)
{
    struct reader reader = {.at = text};
    struct ptx ptx = {0};
    bool versioned = false;
    bool external = false;
    int rc = 0;

    while (rc == 0 && next(&reader)) {
        if (is(&reader, ".version")) {
            versioned = true;
        } else if (is(&reader, ".target") && next(&reader)) {
            ptx.target = strncmp(reader.word, "sm_", 3) == 0
                             ? (uint32_t)strtoul(reader.word + 3, NULL, 10)
                             : 0;
        } else if (is(&reader, ".extern")) {
            external = true;
        } else if (is(&reader, ".entry")) {
            rc = entry_read(&reader, &ptx);
        } else if (is(&reader, ".global") || is(&reader, ".const")) {
            if (!external)
                rc = global_read(&reader, &ptx);
            external = false;
        } else if (is(&reader, "{")) {
            struct ptx_entry function = {0};

            external = false;
            rc = body_read(&reader, &function) ? 0 : -EINVAL;
        } else if (is(&reader, ";")) {
            external = false;
        }
    }
    if (rc == 0 && (!versioned || !ptx.target))
        rc = -EINVAL;
    if (rc == 0)
        *ret_ptx = ptx;
    else
        ptx_finish(&ptx);
    return rc;
}

void ptx_finish(struct ptx *ptx)
{
    for (size_t i = 0; i < ptx->entry_count; i++)
        free(ptx->entries[i].name);
    for (size_t i = 0; i < ptx->global_count; i++)
        free(ptx->globals[i].name);
    free(ptx->entries);
    free(ptx->globals);
    *ptx = (struct ptx){0};
}
