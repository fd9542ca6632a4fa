/* SPDX-License-Identifier: Apache-2.0 */
/* What runs inside a measured process. It finds the driver as programs do, by dlopen and dlsym, and
 * writes lines "KEY VALUE REPETITIONS" or "KEY ! reason" to stdout; what fails otherwise ends it
 * with one line on stderr. */
#ifndef VGPU_BENCH_WORKER_H
#define VGPU_BENCH_WORKER_H

#include "load/kernel.h"

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Beside what the load generator looks up; NULL where the driver has none. */
#define WORKER_CUDA(ROW)                                                                           \
    ROW(cuDriverGetVersion)                                                                        \
    ROW(cuDeviceTotalMem_v2)                                                                       \
    ROW(cuMemFree_v2)                                                                              \
    ROW(cuMemGetInfo_v2)                                                                           \
    ROW(cuMemAllocPitch_v2)                                                                        \
    ROW(cuMemAllocManaged)                                                                         \
    ROW(cuMemAllocAsync)                                                                           \
    ROW(cuMemAllocFromPoolAsync)                                                                   \
    ROW(cuMemFreeAsync)                                                                            \
    ROW(cuMemPoolCreate)                                                                           \
    ROW(cuMemPoolSetAttribute)                                                                     \
    ROW(cuMemPoolTrimTo)                                                                           \
    ROW(cuDeviceGetDefaultMemPool)                                                                 \
    ROW(cuArrayCreate_v2)                                                                          \
    ROW(cuArray3DCreate_v2)                                                                        \
    ROW(cuArrayDestroy)                                                                            \
    ROW(cuMipmappedArrayCreate)                                                                    \
    ROW(cuMipmappedArrayDestroy)                                                                   \
    ROW(cuMemCreate)                                                                               \
    ROW(cuMemRelease)                                                                              \
    ROW(cuGraphCreate)                                                                             \
    ROW(cuGraphAddMemAllocNode)                                                                    \
    ROW(cuGraphExecDestroy)                                                                        \
    ROW(cuGraphDestroy)                                                                            \
    ROW(cuDeviceGraphMemTrim)

struct worker_cuda {
#define WORKER_ROW(name) __typeof__(name) *name;
    WORKER_CUDA(WORKER_ROW)
#undef WORKER_ROW
};

extern struct worker_cuda worker_cuda;

/* Finds the driver's functions. */
void worker_open(void);

/* Ends the process where the driver lacks it or it fails. */
#define WORKER_CALL(name, ...)                                                                     \
    (worker_cuda.name ? load_check(worker_cuda.name(__VA_ARGS__), #name)                           \
                      : load_fail("this driver has no " #name))

/* Nothing is written while it is true: what is measured then is to warm up. */
extern bool worker_quiet;

/* The value is written with nine digits. */
void worker_write(const char *key, double value, unsigned long repetitions);
/* The median of `count` values of nanoseconds, divided. Sorts them. */
void worker_write_median(const char *key, uint64_t *values_ns, unsigned count, double divisor);

/* Waits for a line on stdin; false at its end. */
bool worker_wait(void);

/* The first letter of the next line on stdin, ' ' of an empty one; 0 at its end. The rest of it,
 * without its end, is put into `rest`, cut where that is too small. */
char worker_command(char *rest, size_t size);

/* Says that it waits for a turn; or, at the end of one, that this is done. */
void worker_say(const char *word);

/* Pins the calling thread alone to the CPU that the line names ("turn cpu 7"); where it names none,
 * or that fails, it runs on as it did. Returns the mask that the thread had, for worker_unpin: what
 * is started later is not to inherit the pinned one. */
cpu_set_t worker_pin(const char *line);
void worker_unpin(const cpu_set_t *former);

/* Keeps this thread busy for the time given: caches and the core's clock are as in a program that
 * works.
 */
void worker_spin(uint64_t ns);

/* CPU time that all threads but this one took so far. */
double worker_other_threads_s(void);

uint64_t worker_now_ns(void);

int worker_cost(int argc, char **argv);
int worker_init(int argc, char **argv);
int worker_crowd(int argc, char **argv);
int worker_busy(int argc, char **argv);
int worker_refuse(int argc, char **argv);
int worker_refusal_time(int argc, char **argv);
int worker_hold(int argc, char **argv);
int worker_race(int argc, char **argv);
int worker_retry(int argc, char **argv);
int worker_storm(int argc, char **argv);
int worker_gemm(int argc, char **argv);

#endif
