/* SPDX-License-Identifier: Apache-2.0 */
/* The device, and the kernels: a fixed number of dependent steps of arithmetic, so that a kernel
 * that is interrupted takes longer. A step takes 1 ns on the simulator, which skips instructions.
 */
#ifndef VGPU_LOAD_KERNEL_H
#define VGPU_LOAD_KERNEL_H

#include "load/driver.h"

#include <stdint.h>

#define LOAD_GRAPH_KERNELS 20

/* How a kernel is launched, as far as it matters for how long it takes. */
enum load_form { FORM_FULL, FORM_ONE_BLOCK, FORM_GRAPH, FORM_COOPERATIVE, FORM_PERSISTENT, FORMS };

/* Words of pinned host memory that a persistent kernel and we share, and a wait's value. */
struct load_shared_words {
    uint64_t count; /* chunks of work done */
    uint32_t stop;
    uint32_t value;
};

struct load_device {
    CUdevice device;
    CUcontext context;
    char name[128];
    int multiprocessors;
    bool cooperative;
    CUfunction work, persistent;
    unsigned work_blocks, persistent_blocks; /* that fill the device */
    CUdeviceptr sink, stop;
    volatile struct load_shared_words *words;
    CUdeviceptr words_address;
};

/* A form with its steps: what one launch is. */
struct load_kernel {
    enum load_form form;
    uint32_t steps;
    CUgraphExec graph; /* of FORM_GRAPH */
};

const char *load_form_name(enum load_form form);

/* Makes the primary context of the device current and loads the kernels. */
void load_device_open(struct load_device *device, unsigned ordinal);

/* The same of another context of that device, made here and current afterwards. */
void load_device_open_beside(struct load_device *device, const struct load_device *first);

struct load_kernel load_kernel_make(
    const struct load_device *device, enum load_form form, uint32_t steps);
void load_kernel_launch(
    const struct load_device *device, const struct load_kernel *kernel, CUstream stream);

/* How many kernels one launch is. */
unsigned load_kernel_count(const struct load_kernel *kernel);

/* Whether persistent kernels are to end after one chunk of steps, as they are timed. */
void load_kernel_set_brief(struct load_device *device, bool brief);

/* The persistent kernel as a load: runs until device->words->stop, counting chunks of steps in
 * device->words->count. The simulator runs it for simulated_ns. */
void load_kernel_launch_persistent(const struct load_device *device,
    const struct load_kernel *kernel, uint64_t simulated_ns, CUstream stream);

#endif
