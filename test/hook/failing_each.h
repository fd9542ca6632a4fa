/* SPDX-License-Identifier: Apache-2.0 */
/* A workload whose every driver call can be made to fail in turn: how it calls the driver. A call
 * that fails is judged and made again, and must succeed then: one failure on demand hits one call.
 */
#ifndef VGPU_TEST_FAILING_EACH_H
#define VGPU_TEST_FAILING_EACH_H

#include "abi/cuda.h"
#include "abi/nvml.h"
#include "bed.h"

#define EACH_LIMIT "2GiB"
#define EACH_LIMIT_BYTES (2 * GIB)
#define EACH_BYTES (64 * MIB)

struct each_work {
    const char *name;
    void (*body)(void); /* gives back all that it took */
    bool bare;          /* not inside a primary context that is made for it */
};

/* A machine that answers all that the views ask. */
#define EACH_VIEWS_SIM "driver=590.44.01,accounting,video,confidential"

enum each_api { EACH_CUDA, EACH_NVML, EACH_RM, EACH_APIS };

/* How the names of an API's functions begin, as the simulator counts them. */
extern const char *const each_prefixes[EACH_APIS];

/* One run of a workload, written by its process. */
struct each_run {
    uint64_t first[EACH_APIS], last[EACH_APIS]; /* calls before and after the workload's body */
    char failed[64];                            /* what failed on demand */
    unsigned passed_count;
    char passed[128][48]; /* what succeeded, of a run without a failure */
};

/* Runs the workload in the calling process, in which the `nth` call of the API answers `code` (both
 * 0: none does), and afterwards looks for what is left of it. */
void each_run(const struct each_work *work, enum each_api api, uint64_t nth, unsigned code,
    struct each_run *run);

/* Calls a driver function, as a program does, until it answers `wanted`; its last answer. */
#define EACH_CALL(find, wanted, name, ...)                                                         \
    ({                                                                                             \
        __typeof__(name) *each_function = (__typeof__(name) *)find(#name);                         \
        int each_result;                                                                           \
        do {                                                                                       \
            each_before(#name);                                                                    \
            each_result = (int)each_function(__VA_ARGS__);                                         \
        } while (each_after(each_result, wanted));                                                 \
        each_result;                                                                               \
    })
#define DO(name, ...) EACH_CALL(bed_cuda, CUDA_SUCCESS, name, __VA_ARGS__)
#define DO_NVML(name, ...) EACH_CALL(bed_nvml, NVML_SUCCESS, name, __VA_ARGS__)
/* For what the driver answers by itself. */
#define ANSWERS(wanted, name, ...) EACH_CALL(bed_cuda, wanted, name, __VA_ARGS__)
#define ANSWERS_NVML(wanted, name, ...) EACH_CALL(bed_nvml, wanted, name, __VA_ARGS__)

/* Where the workloads' checks are noted. */
void each_checks_go_to(struct check_shared *shared);

void each_before(const char *function);
/* True where the call is to be made again. */
bool each_after(int result, int wanted);

/* Another process uses the card: what it has called so far is not this one's, and what is held is
 * compared again when it has ended. */
void each_foreign_here(void);
void each_foreign_gone(void);

extern const struct each_work each_starting, each_contexts, each_primary, each_linear, each_arrays,
    each_async, each_pools, each_managed_pools, each_managed_graph, each_mapping, each_sharing,
    each_modules, each_launches, each_old_launches, each_graphs, each_changed_graphs, each_views,
    each_lookups, each_ipc, each_newer, each_copies, each_shaped_copies, each_listed_copies,
    each_prefetches, each_waits, each_captures, each_currents, each_detached, each_green,
    each_fills, each_card_copies, each_pointers, each_peers;

#endif
