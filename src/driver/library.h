/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a driver library and finding its own functions, past every door of ours. */
#ifndef VGPU_DRIVER_LIBRARY_H
#define VGPU_DRIVER_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* The real dlsym (the next one after this library), found without calling it; NULL before any
 * libc is mapped. */
void *library_next_function(const char *name);

/* Opens `soname`, the loaded copy if there is one. `load` false: only a loaded one. NULL where it
 * is absent. */
void *library_open(const char *soname, int load);

/* The function `name` of that library; NULL where it has none. */
void *library_function(void *library, const char *name);

/* Where a driver's table keeps one function. */
struct library_slot {
    void **exported; /* NULL where the library lacks it */
    void **callable; /* then `absent` */
    void *absent;
};

/* Looks `name` up and stores it in the slot; threads that race store the same values. Stores
 * nothing once `*loaded` is set: the library's symbols may stand for hooks by then
 * (door_table_exchange). */
void library_take(void *library, const char *name, const bool *loaded, struct library_slot slot);

#endif
