/* SPDX-License-Identifier: Apache-2.0 */
#include "hook/door/door_table.h"

#include "base/atomic.h"
#include "base/log.h"
#include "hook/door/elf_exchange.h"
#include "hook/hook.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CALL(name)
#define HOOK(name) {#name, (void *)hook_##name, (void **)&cuda_exported.name},
static const struct elf_exchange cuda_rows[] = {
#include "driver/cuda.def"
};
#undef HOOK
#define HOOK(name) {#name, (void *)hook_##name, (void **)&nvml_exported.name},
static const struct elf_exchange nvml_rows[] = {
#include "driver/nvml.def"
};
#undef CALL
#undef HOOK

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static const struct elf_exchange *find_row(
    const struct elf_exchange *rows, size_t count, const char *name)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, rows[middle].name);
        if (order == 0)
            return &rows[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

void *door_table_find(const char *name, void **ret_real)
{
    const struct elf_exchange *row;
    bool loaded;
    if (name[0] == 'c') {
        row = find_row(cuda_rows, COUNT(cuda_rows), name);
        loaded = row && cuda_load(false);
    } else {
        row = find_row(nvml_rows, COUNT(nvml_rows), name);
        loaded = row && nvml_load(false);
    }
    *ret_real = loaded ? load_relaxed(row->from) : NULL;
    return row ? row->to : NULL;
}

/* Rows are few and this is asked at start only: a scan does. */
void *door_table_hook_of(void *real)
{
    for (size_t i = 0; i < COUNT(cuda_rows); i++) {
        if (load_relaxed(cuda_rows[i].from) == real)
            return cuda_rows[i].to;
    }
    return real;
}

enum { NOT_EXCHANGED, EXCHANGE_REFUSED, EXCHANGED };

static void exchange(const char *library, const void *inside, const struct elf_exchange *rows,
    size_t count, int *state)
{
    if (load_relaxed(state) == EXCHANGED)
        return;
    int result = elf_exchange(inside, rows, count);
    if (result == 0) {
        store_relaxed(state, EXCHANGED);
        report_door_used(REPORT_DOOR_TABLE);
    } else if (exchange_acq_rel(state, EXCHANGE_REFUSED) != EXCHANGE_REFUSED)
        log_warning(
            "%s: its symbol table cannot be changed (%s): libraries that look functions up by "
            "RTLD_NEXT, or are loaded with RTLD_DEEPBIND, pass the limits of the API",
            library, strerror(-result));
}

void door_table_exchange(enum door_library library, bool open)
{
    static int cuda_state, nvml_state;
    if (library == DOOR_LIBRARY_CUDA && cuda_load(open))
        exchange("libcuda.so.1", (const void *)load_relaxed(&cuda_exported.cuInit), cuda_rows,
            COUNT(cuda_rows), &cuda_state);
    else if (library == DOOR_LIBRARY_NVML && nvml_load(open))
        exchange("libnvidia-ml.so.1", (const void *)load_relaxed(&nvml_exported.nvmlInit_v2),
            nvml_rows, COUNT(nvml_rows), &nvml_state);
}
