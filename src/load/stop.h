/* SPDX-License-Identifier: Apache-2.0 */
/* Ending by SIGINT and SIGTERM: in order and with a report, or, where the driver keeps the thread
 * (in a container that is paused a launch waits for as long as that lasts), after a while without.
 */
#ifndef VGPU_LOAD_STOP_H
#define VGPU_LOAD_STOP_H

#include <stdatomic.h>

/* Set by SIGINT and SIGTERM, which load_catch_signals catches. */
extern atomic_int load_stop;
void load_catch_signals(void);

/* From now on, where no driver call returns for 5 s after the signal, the process says so and
 * ends by it. For a process that works: one that waits for others is not to call this. */
void load_watch_stop(void);

#endif
