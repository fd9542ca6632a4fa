/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants of a simulated machine: vgpu-load under the library, each in a container of its own, with
 * one directory for the boards. What they got is read from the machine itself, each look at one
 * instant of its own time, so that a loaded computer, on which looks come late, changes no figure.
 */
#ifndef VGPU_TEST_TENANTS_WORLD_H
#define VGPU_TEST_TENANTS_WORLD_H

#include "check.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MS 1000000ull
#define TENANTS_MAX 12
#define TENANTS_DEVICES 2

struct tenant_how {
    const char *cores, *soft, *priority, *memory; /* as the variables take them; NULL: none */
    const char *cores_second;                     /* of the second device, where it is another */
    const char *board;                            /* the directory; NULL: the one that all share */
    const char *joins;                            /* another's region; NULL: its own */
    const char *load;                             /* vgpu-load's arguments, separated by blanks */
    const char *program; /* of test/tenants, in the place of vgpu-load, by its arguments alone */
    const char *gate;    /* VGPU_GATE; NULL: as the library chooses */
};

struct tenant {
    pid_t pid;
    char region[256];
};

/* A machine ("1xh200") and a directory of boards of the test's own: once a test. */
void world_begin(const char *machine);
const char *world_boards(void);
/* A file of that name in the test's own directory. */
void world_path(const char *name, char ret_path[160]);

struct tenant tenant_start(const struct tenant_how *how);
/* Blocks until its work is on the device. */
void tenant_until_busy(const struct tenant *tenant);
void tenant_kill(struct tenant *tenant);
/* Ends it as a user would; its exit status. */
int tenant_stop(struct tenant *tenant);
/* `vgpu COMMAND --region ITS-REGION [OPTION VALUE]`. */
void tenant_order(
    const struct tenant *tenant, const char *command, const char *option, const char *value);

/* The time slice of its channel group, us. */
uint32_t tenant_slice_us(const struct tenant *tenant);
/* GPU time so far, over all devices. */
uint64_t tenant_busy_ns(const struct tenant *tenant);
/* The same of any number of them at one instant, which it returns; who is gone has 0. */
uint64_t world_busy_ns(const struct tenant *tenants, unsigned count, uint64_t *ret_busy_ns);

/* ---- what was seen of them, look by look ---- */
struct look {
    uint64_t now_ns;
    uint64_t busy_ns[TENANTS_MAX];
    bool stopped[TENANTS_MAX][TENANTS_DEVICES]; /* all channels of its group are disabled */
};

struct trace {
    unsigned count;
    struct look *looks;
};

uint64_t world_now_ns(void);
/* Looks each millisecond or so for so long; the trace is the world's, and the next one ends it. */
struct trace world_watch(const struct tenant *tenants, unsigned count, unsigned ms);

/* Busy time at a moment, between the looks evenly. */
double trace_busy_at(const struct trace *trace, unsigned tenant, uint64_t at_ns);
/* The part of the time between the two in which it had the device. */
double trace_share(const struct trace *trace, unsigned tenant, uint64_t from_ns, uint64_t to_ns);
/* The same over the whole trace. */
double trace_share_all(const struct trace *trace, unsigned tenant);
uint64_t trace_begin(const struct trace *trace);
uint64_t trace_end(const struct trace *trace);
/* The first moment after `from_ns` from which it does nothing for `quiet_ns`, or from which it
 * works again; 0: none. */
uint64_t trace_falls_quiet(
    const struct trace *trace, unsigned tenant, uint64_t from_ns, uint64_t quiet_ns);
uint64_t trace_works(const struct trace *trace, unsigned tenant, uint64_t from_ns);
/* The longest time in which it did nothing at all. */
uint64_t trace_longest_gap_ns(const struct trace *trace, unsigned tenant);

/* The tenant registry of the world's GPU, mapped for good. */
struct vgpu_board *world_board(void);

#endif
