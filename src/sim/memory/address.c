/* SPDX-License-Identifier: Apache-2.0 */
/* The private range that device memory lies in: numbers only, nothing is mapped. */
#include "sim/cuda/cuda_sim.h"

#include <stdlib.h>

/* Neither the kernel's mmap area nor a sanitizer's shadow lies here. */
#define RANGE_FIRST 0x200000000000u
#define RANGE_END 0x500000000000u

/* Free stretches, sorted by address, never touching each other. */
struct stretch {
    uint64_t first;
    uint64_t end;
    struct stretch *next;
};

static struct stretch *free_stretches;
static bool range_ready;

static void range_init(void)
{
    if (range_ready)
        return;
    range_ready = true;
    free_stretches = malloc(sizeof *free_stretches);
    if (free_stretches)
        *free_stretches = (struct stretch){RANGE_FIRST, RANGE_END, NULL};
}

bool address_is_device(uint64_t address)
{
    return address >= RANGE_FIRST && address < RANGE_END;
}

/* Takes [first, first + bytes) out of *at, in which it lies. */
static bool stretch_cut(struct stretch **at, uint64_t first, uint64_t bytes)
{
    struct stretch *stretch = *at;
    uint64_t end = first + bytes;

    if (first > stretch->first && end < stretch->end) {
        struct stretch *rest = malloc(sizeof *rest);

        if (!rest)
            return false;
        *rest = (struct stretch){end, stretch->end, stretch->next};
        stretch->end = first;
        stretch->next = rest;
    } else if (first > stretch->first) {
        stretch->end = first;
    } else if (end < stretch->end) {
        stretch->first = end;
    } else {
        *at = stretch->next;
        free(stretch);
    }
    return true;
}

uint64_t address_take(uint64_t bytes, uint64_t alignment)
{
    range_init();
    bytes = round_up(bytes, MEMORY_PAGE_BYTES);
    if (alignment < MEMORY_PAGE_BYTES)
        alignment = MEMORY_PAGE_BYTES;
    for (struct stretch **at = &free_stretches; *at; at = &(*at)->next) {
        uint64_t first = round_up((*at)->first, alignment);

        if (first >= (*at)->first && first < (*at)->end && bytes <= (*at)->end - first)
            return stretch_cut(at, first, bytes) ? first : 0;
    }
    return 0;
}

bool address_take_at(uint64_t address, uint64_t bytes)
{
    range_init();
    bytes = round_up(bytes, MEMORY_PAGE_BYTES);
    for (struct stretch **at = &free_stretches; *at; at = &(*at)->next) {
        if (address >= (*at)->first && address < (*at)->end && bytes <= (*at)->end - address)
            return stretch_cut(at, address, bytes);
    }
    return false;
}

void address_release(uint64_t address, uint64_t bytes)
{
    struct stretch **at = &free_stretches;
    struct stretch *freed = malloc(sizeof *freed);

    if (!freed)
        return;
    while (*at && (*at)->end < address)
        at = &(*at)->next;
    *freed = (struct stretch){address, address + round_up(bytes, MEMORY_PAGE_BYTES), *at};
    while (freed->next && freed->next->first <= freed->end) {
        struct stretch *joined = freed->next;

        if (joined->first < freed->first)
            freed->first = joined->first;
        if (joined->end > freed->end)
            freed->end = joined->end;
        freed->next = joined->next;
        free(joined);
    }
    *at = freed;
}
