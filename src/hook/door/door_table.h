/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks by name and by the driver's function that they stand for. */
#ifndef VGPU_HOOK_DOOR_DOOR_TABLE_H
#define VGPU_HOOK_DOOR_DOOR_TABLE_H

#include <stdbool.h>

/* The hook that stands for the driver's function `real`, or `real` itself where we do not replace
 * it. */
void *door_table_hook_of(void *real);

/* The hook exported as `name`, NULL where we have none. ret_real: the driver's own function (NULL
 * where its library lacks it or is not loaded). */
void *door_table_find(const char *name, void **ret_real);

enum door_library { DOOR_LIBRARY_CUDA, DOOR_LIBRARY_NVML };

/* Has the dynamic linker find our hooks in the driver library's own symbol table: for look-ups that
 * no other door of ours sees (door_symbol.c). `open` false: only if the program has loaded it.
 * Done once; later calls change nothing. Any thread; takes the loader's lock. Where the table
 * cannot be written, says so once in the log. */
void door_table_exchange(enum door_library library, bool open);

#endif
