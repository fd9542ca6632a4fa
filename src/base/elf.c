/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over the loaded objects' dynamic symbol tables. */
#include "base/elf.h"

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

struct symbols {
    const ElfW(Sym) * table;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
};

static bool object_holds(const struct dl_phdr_info *info, const void *address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && (uintptr_t)address >= start &&
            (uintptr_t)address < start + segment->p_memsz)
            return true;
    }
    return false;
}

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

/* glibc relocates the dynamic section's pointers, musl and the vDSO do not. */
static const void *dynamic_pointer(const struct dl_phdr_info *info, ElfW(Addr) value)
{
    return (const void *)(value < info->dlpi_addr ? value + info->dlpi_addr : value);
}

static bool symbols_read(const struct dl_phdr_info *info, struct symbols *symbols)
{
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
    memset(symbols, 0, sizeof(*symbols));
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        const void *pointer = dynamic_pointer(info, dynamic->d_un.d_ptr);
        switch (dynamic->d_tag) {
        case DT_SYMTAB:
            symbols->table = pointer;
            break;
        case DT_STRTAB:
            symbols->strings = pointer;
            break;
        case DT_GNU_HASH:
            symbols->gnu_hash = pointer;
            break;
        case DT_HASH:
            symbols->hash = pointer;
            break;
        }
    }
    return symbols->table && symbols->strings;
}

static bool symbol_matches(const struct symbols *symbols, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &symbols->table[index];
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    return symbol->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC) &&
           !strcmp(symbols->strings + symbol->st_name, name);
}

static uint32_t symbol_by_gnu_hash(const struct symbols *symbols, const char *name)
{
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const uint32_t *header = symbols->gnu_hash;
    uint32_t bucket_count = header[0], first = header[1], bloom_words = header[2];
    const uint32_t *buckets =
        (const uint32_t *)((const char *)(header + 4) + bloom_words * sizeof(ElfW(Addr)));
    const uint32_t *chain = buckets + bucket_count;
    uint32_t index = bucket_count ? buckets[hash % bucket_count] : 0;
    if (index < first)
        return 0;
    for (;; index++) {
        uint32_t entry = chain[index - first];
        if ((entry | 1) == (hash | 1) && symbol_matches(symbols, index, name))
            return index;
        if (entry & 1)
            return 0;
    }
}

static uint32_t symbol_by_sysv_hash(const struct symbols *symbols, const char *name)
{
    uint32_t hash = 0;
    for (const char *c = name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash = (hash ^ ((hash & 0xf0000000u) >> 24)) & 0x0fffffffu;
    }
    uint32_t bucket_count = symbols->hash[0];
    const uint32_t *buckets = symbols->hash + 2;
    const uint32_t *chain = buckets + bucket_count;
    for (uint32_t index = bucket_count ? buckets[hash % bucket_count] : 0; index;
         index = chain[index]) {
        if (symbol_matches(symbols, index, name))
            return index;
    }
    return 0;
}

static int visit(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct search *search = argument;
    if (search->inside && !search->passed) {
        search->passed = object_holds(info, search->inside);
        return 0;
    }
    struct symbols symbols;
    if ((search->libc_only && !object_is_libc(info->dlpi_name)) || !symbols_read(info, &symbols))
        return 0;
    uint32_t index = symbols.gnu_hash ? symbol_by_gnu_hash(&symbols, search->name)
                     : symbols.hash   ? symbol_by_sysv_hash(&symbols, search->name)
                                      : 0;
    if (!index)
        return 0;
    const ElfW(Sym) *symbol = &symbols.table[index];
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
    struct symbols symbols;
    const ElfW(Dyn) *dynamic = NULL;
    if (!symbols_read(info, &symbols))
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
    if (!object_holds(info, naming->inside))
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
