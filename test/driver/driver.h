/* SPDX-License-Identifier: Apache-2.0 */
/* The driver API for test programs, by dlopen and dlsym as most programs do it, and what a test
 * wants beside it: the region's figures and NVML's own, asked by a process that is not in the
 * slice. */
#ifndef VGPU_TEST_DRIVER_H
#define VGPU_TEST_DRIVER_H

#include "abi/cuda.h"
#include "vgpu/region.h"

#include <stdbool.h>
#include <stdint.h>

struct driver {
#define FUNCTION(name) __typeof__(name) *name;
#include "functions.def"
#undef FUNCTION
};

extern struct driver driver;

/* Loads the driver; false (and one line on stdout, "SKIP: ...") where there is none. */
bool driver_load(void);

const char *driver_error(CUresult result);

/* Stops the program with one line where the call fails. */
#define DRIVER_CALL(call) driver_must((call), #call, __FILE__, __LINE__)
void driver_must(CUresult result, const char *call, const char *file, int line);

/* Initialises the driver and makes the first device's primary context the current one. */
CUcontext driver_enter(void);

/* Prints the promise with "ok" or "NOT OK"; driver_broken: how many were not kept so far. */
void driver_promise(const char *what, bool kept);
extern int driver_broken;

/* A kernel with 32 KiB of local memory a thread (`big`), and one that does nothing (`nop`); each
 * takes one 64-bit parameter. */
extern const char driver_ptx[];

/* A kernel (`spin`) that runs for its parameter's nanoseconds, by the device's global timer. */
extern const char driver_spin_ptx[];

/* What the container's region says this process holds on the first device; all zero outside. */
struct vgpu_usage driver_region_usage(void);

/* What NVML says the process holds on the card, asked by a process without the library; -1 where
 * it does not know the process; of pid 0, what all hold. The first call starts that process. */
int64_t driver_nvml_bytes(int pid);

#endif
