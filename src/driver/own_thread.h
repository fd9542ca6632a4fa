/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library's own. */
#ifndef VGPU_DRIVER_OWN_THREAD_H
#define VGPU_DRIVER_OWN_THREAD_H

#include <stdbool.h>

/* Starts a detached thread that runs `run` with NULL. It inherits a mask in which all signals are
 * blocked: they are the program's. False where none can be made. */
bool own_thread_start(void *(*run)(void *argument));

#endif
