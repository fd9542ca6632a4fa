/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping by system call, also where a filter refuses the usual ones. */
#ifndef VGPU_BASE_SLEEP_H
#define VGPU_BASE_SLEEP_H

#include <stdint.h>

/* Sleeps about `ns` nanoseconds, or until a signal; errno is kept. */
void sleep_ns(uint64_t ns);

#endif
