/* SPDX-License-Identifier: Apache-2.0 */
/* What HAMi-core's raw-API test programs share here: one call of the driver's each, what must hold
 * of it, and exit status 0 only where it did (77: there is no driver). They run natively, under the
 * library and on the simulator.
 *
 * Whether the program is in a slice is what CUDA_DEVICE_MEMORY_LIMIT_0 or CUDA_DEVICE_MEMORY_LIMIT
 * says. Then the device must show just that much memory, and what the program gives back must leave
 * what is in use as it was, to the byte: nobody else of the container may allocate meanwhile.
 * Natively others may use the card too, so less is asserted. */
#ifndef VGPU_TEST_RAW_H
#define VGPU_TEST_RAW_H

#include "driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RAW_MIB (1ull << 20)
#define RAW_BYTES (64 * RAW_MIB) /* what most of the programs allocate */

/* Loads the driver and makes the first device's primary context current; says what the device shows
 * and what the context holds. Ends the program with 77 where there is no driver, with 1 where the
 * device does not show the limit. */
void raw_begin(void);

bool raw_in_slice(void);
uint64_t raw_total(void); /* of the device, by cuMemGetInfo */
uint64_t raw_used(void);  /* total less free */

/* Prints what was found; the program will end with 1 where it is not good. */
void raw_check(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* That the call was refused with CUDA_ERROR_OUT_OF_MEMORY and with nothing else. */
void raw_check_refused(CUresult result, const char *what);

/* That the device memory at `pointer` keeps what is written to its first and last bytes. */
void raw_check_contents(CUdeviceptr pointer, uint64_t bytes);

/* That the device reads and writes the host memory at `memory` (pinned), through device memory. */
void raw_check_host(void *memory, uint64_t bytes);

/* The exit status. */
int raw_end(void);

/* A kind of memory: `take` allocates so many bytes of it, or about so many; `use` checks that it is
 * memory; `give` frees it. */
struct raw_kind {
    const char *name; /* "cuMemAlloc" */
    CUresult (*take)(uint64_t bytes);
    void (*use)(uint64_t bytes);
    CUresult (*give)(void);
    uint64_t largest; /* bytes of one allocation, as the API has it; 0: any */
    bool may_exceed;  /* natively it may be more than the card has */
};

/* The whole program for a kind of device memory: it counts while it is held, whole and once; as
 * much as the whole device is refused; and the program goes on. Returns the exit status. */
int raw_device_memory(const struct raw_kind *kind);

/* And for host memory: it is no device memory. */
int raw_host_memory(const struct raw_kind *kind);

#endif
