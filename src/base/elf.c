/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over the loaded objects' dynamic symbol tables. */
#include "base/elf.h"

#include "base/elf_symbols.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct search {
    const char *name;
    const void *inside; /* skip all objects up to the one that holds this address; NULL: none */
    bool libc_only;
    bool passed;
    void *found;
};

static bool object_is_libc(const char *path)
{
    static const char *const names[] = {"libc.so", "libc.musl", "libc-2", "libdl", "ld-musl"};
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strncmp(base, names[i], strlen(names[i])))
            return true;
    }
    return false;
}

static int visit(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct search *search = argument;
    if (search->inside && !search->passed) {
        search->passed = elf_symbols_hold(info, search->inside);
        return 0;
    }
    struct elf_symbols symbols;
    if ((search->libc_only && !object_is_libc(info->dlpi_name)) ||
        !elf_symbols_read(info, &symbols))
        return 0;
    const ElfW(Sym) *symbol = elf_symbols_find(&symbols, search->name);
    if (!symbol)
        return 0;
    void *address = (void *)(info->dlpi_addr + symbol->st_value);
    if (ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC)
        address = ((void *(*)(void))address)();
    search->found = address;
    return 1;
}

void *elf_next_function(const char *name, const void *inside)
{
    struct search search = {.name = name, .inside = inside};
    dl_iterate_phdr(visit, &search);
    return search.found;
}

void *elf_libc_function(const char *name)
{
    struct search search = {.name = name, .libc_only = true};
    dl_iterate_phdr(visit, &search);
    return search.found;
}

struct need {
    const char *name;
    bool found;
};

static int visit_needs(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct need *need = argument;
    struct elf_symbols symbols;
    const ElfW(Dyn) *dynamic = NULL;
    if (!elf_symbols_read(info, &symbols))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
    for (; dynamic && dynamic->d_tag != DT_NULL && !need->found; dynamic++)
        need->found = dynamic->d_tag == DT_NEEDED && !strncmp(symbols.strings + dynamic->d_un.d_val,
                                                         need->name, strlen(need->name));
    return need->found;
}

bool elf_is_needed(const char *name)
{
    struct need need = {.name = name};
    dl_iterate_phdr(visit_needs, &need);
    return need.found;
}

struct naming {
    const void *inside;
    char *name;
    size_t size;
};

static int visit_name(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct naming *naming = argument;
    if (!elf_symbols_hold(info, naming->inside))
        return 0;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash ? slash + 1 : info->dlpi_name;
    size_t length = strnlen(base, naming->size - 1);
    memcpy(naming->name, base, length);
    naming->name[length] = '\0';
    return 1;
}

void elf_object_name(const void *inside, char *ret_name, size_t size)
{
    struct naming naming = {inside, ret_name, size};
    *ret_name = '\0';
    dl_iterate_phdr(visit_name, &naming);
}
