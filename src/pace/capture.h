/* SPDX-License-Identifier: Apache-2.0 */
/* Captures of the program: what is only recorded takes no time yet, and the library's own calls
 * must not end a capture. */
#ifndef VGPU_PACE_CAPTURE_H
#define VGPU_PACE_CAPTURE_H

#include "abi/cuda.h"

#include <stdbool.h>

/* Which stream handle 0 means to an entry point. */
enum stream_zero { STREAM_ZERO_LEGACY, STREAM_ZERO_PER_THREAD };

/* Whether work for the stream is recorded, or refused because of a capture, instead of run. About
 * 50 ns. */
bool capture_records(CUstream stream, enum stream_zero zero);

/* The stream captures into a command list of a graphics API from now on, which the driver's
 * cuStreamIsCapturing does not tell; until it ends capture_records says so. False if it did before.
 * Any thread. */
bool capture_list_begins(CUstream stream, enum stream_zero zero);
void capture_list_ends(CUstream stream, enum stream_zero zero);

/* In a forked child. */
void capture_reset(void);

/* Around calls that the program did not make: this thread may meanwhile make those that a capture,
 * its own or another thread's, forbids and would be broken by. */
struct capture_relaxed {
    CUstreamCaptureMode mode;
    bool relaxed;
};
struct capture_relaxed capture_relax(void);
void capture_restore(struct capture_relaxed *former);

#endif
