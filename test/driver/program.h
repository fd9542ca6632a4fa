/* SPDX-License-Identifier: Apache-2.0 */
/* A program on a simulated machine that is the test's alone. */
#ifndef VGPU_TEST_PROGRAM_H
#define VGPU_TEST_PROGRAM_H

#include "driver.h"

#include "check.h"

/* A machine for this test alone, in this process and those that it forks from now on. */
void begin(const char *description);
/* The primary context of the first device, current, and the kernel. */
void program_begin(void);

CUstream stream_new(void);
CUevent event_new(void);
void launch(CUstream stream, uint64_t duration_ns);
CUevent record(CUstream stream);

void nap_ms(unsigned ms);

#endif
