/* SPDX-License-Identifier: Apache-2.0 */
/* One call to the resource manager: what it asks for, whichever of its forms it has, and what came
 * of it. The program's pointers are not trusted: the kernel answers a bad one with EFAULT, so
 * reading it here must not fault. Layouts: open kernel modules 580.95.05. */
#ifndef VGPU_RM_RM_CALL_H
#define VGPU_RM_RM_CALL_H

#include "rm/rm_ioctl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rm_call {
    int fd; /* as the program made it */
    unsigned long request;
    void *argument;
    rm_ioctl_function *next;
    unsigned number; /* RM_NR_… of what is asked for, out of its wrapper (RM_NR_XFER) */
    size_t bytes;    /* its structure's */
    uint64_t address;
};

/* Tells what is asked for. False: no such call, or one whose wrapper cannot be read. */
bool rm_call_open(struct rm_call *ret_call, int fd, unsigned long request, void *argument,
    rm_ioctl_function *next);

/* The call as the program made it; result and errno are ioctl's. */
int rm_call_pass(const struct rm_call *call);

/* An object that is to be allocated, by RM_ALLOC, RM_ALLOC_MEMORY or RM_VID_HEAP_CONTROL. */
struct rm_allocation {
    uint32_t client, parent, object, class_id;
    uint32_t engine_type; /* of a channel group; 0: not told */
    uint64_t bytes;       /* of device memory; 0: it is none */
    /* Where the answer will lie; 0: nowhere. */
    uint64_t status_address, object_address, size_address, attr_address;
    bool size_is_limit; /* the size less one */
};

/* Reads it before the kernel is asked. False: the call allocates nothing, or in a form that is not
 * known. */
bool rm_call_allocation(const struct rm_call *call, struct rm_allocation *ret_allocation);

/* The kernel's answer: the status, and with RM_OK object and bytes as they became. */
uint32_t rm_allocation_answer(struct rm_allocation *allocation);

/* Answers in the kernel's place: 0, or -1 with EFAULT as the kernel would. */
int rm_allocation_refuse(const struct rm_allocation *allocation);

/* An object that is to be freed, by RM_FREE or RM_VID_HEAP_CONTROL. */
struct rm_release {
    uint32_t client, object;
    uint64_t status_address;
};
bool rm_call_release(const struct rm_call *call, struct rm_release *ret_release);
uint32_t rm_release_answer(const struct rm_release *release);

/* A call of `bytes` that answered: its structure as it is now. False where the call failed, or was
 * of another size. */
bool rm_call_answer(const struct rm_call *call, int result, void *ret_structure, size_t bytes);

#endif
