/* SPDX-License-Identifier: Apache-2.0 */
/* What a test may ask of the library that is preloaded for virtual time; NULL without it. */
#ifndef VGPU_TEST_TIME_SLEEPS_H
#define VGPU_TEST_TIME_SLEEPS_H

#include <sys/types.h>

/* Sleeps and waits with a deadline of this process's thread so far. The library's own waits, which
 * the kernel counts as well, are not among them. */
unsigned vtime_sleeps_of(pid_t tid) __attribute__((weak, visibility("default")));

#endif
