/* SPDX-License-Identifier: Apache-2.0 */
/* The end of streams, contexts and threads, and the beginning of captures: what becomes of their
 * meters. Each waits, at most a second, for threads that are recording a timing event there. */
#ifndef VGPU_PACE_LEAVE_H
#define VGPU_PACE_LEAVE_H

#include "abi/cuda.h"

/* Records a timing event that ends the interval which is open on the stream, whichever thread
 * launched there. */
void leave_close(CUstream stream);

/* Before a capture begins on the stream: until a thread launches there again, no timing event is
 * recorded on it, nor the stream asked for its work, nor the legacy one, which may not be asked for
 * it beside the capture. */
void leave_capture_begins(CUstream stream);

/* Before the stream ends. */
void leave_stream(CUstream stream);

/* The calling thread ends, and its per-thread default streams with it. */
void leave_thread(void);

/* Before the context ends, and all events on its streams. */
void leave_context(CUcontext context);

#endif
