/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of a GPU (include/vgpu/board.h) as this process uses it: what the tenants of the GPU
 * tell each other. Advisory: where there is no registry, or a hostile one, fairness between tenants
 * is lost, and nothing else.
 *
 * Any thread may call any function at any time between registry_attach and registry_detach, except
 * where said otherwise. All keep errno. What touches the mapping opens a guard window
 * (base/guard.h) by itself: within the caller's own that costs nothing, by itself 0.3 to 0.8 us. */
#ifndef VGPU_REGISTRY_REGISTRY_H
#define VGPU_REGISTRY_REGISTRY_H

#include "vgpu/board.h"

#include "base/lock.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct registry {
    struct vgpu_board *shared; /* NULL: none was ever had. It stays until registry_detach */
    struct lock lock;          /* attaching; held over file locks */
    int fd;                    /* close-on-exec, high; carries the slot's lock; -1 none */
    int slot;                  /* ours; -1: none was to be had. Without one, look and wait work */
    uint64_t tenant;           /* of our container on this GPU */
    dev_t device;              /* identity of the mapped file */
    ino_t inode;
    bool lost;               /* the file was shortened; memory of our own lies in its place */
    bool kept_from_children; /* forked children do not have the mapping */
    bool failure_said;
    uint32_t priority;     /* as last published */
    uint64_t published_ns; /* the active_ns that this process wrote last */
    uint64_t looked_ns;    /* when registry_keep last looked after the file */
    uint64_t waited_ns;    /* when registry_wait last came back */
    char name[32];
    char path[PATH_MAX];
};

/* What a tenant says of itself: the container's values, not the process's. */
struct registry_own {
    bool active; /* work of it is on the GPU, or asks to be */
    bool wants;  /* it is held back by its limit */
    bool paused;
    bool saturating;          /* it keeps the GPU busy for a good part of the time */
    bool windows;             /* it works in windows: the next word may take 28 ms */
    bool divided;             /* which keep to its slot while there are others that do so */
    uint32_t core_limit;      /* percent; 0 none */
    uint32_t core_soft_limit; /* percent; 0 none */
    uint32_t priority;        /* 0 high */
    uint64_t busy_ns;         /* GPU time measured so far (vgpu_compute.busy_ns) */
};

/* Those of the other tenants at work whose windows keep to slots. They are counted in the view as
 * well; their limits are 1 to 100 each. */
struct registry_divided {
    unsigned count, saturating;
    unsigned limit_sum, saturating_limit_sum; /* percent */
    unsigned before_limit_sum;                /* of those whose slots are before ours */
    unsigned least_limit;                     /* 0 where there is none */
    uint64_t busy_ns;                         /* as registry_view.busy_ns */
};

/* What the other tenants say, each value bounded. Those at work are those that said so within the
 * last VGPU_BOARD_ACTIVE_NS and are not paused. */
struct registry_view {
    uint32_t epoch;            /* for registry_wait; read before the rest. 0 without a registry */
    unsigned active;           /* other tenants at work, at most VGPU_BOARD_SLOTS */
    unsigned active_limit_sum; /* percent: their limits, each 1 to 100; one without counts 100 */
    unsigned higher;           /* of them: of higher priority than ours (as last published) */
    unsigned equal;            /* of them: of our priority */
    unsigned higher_limit_sum; /* percent */
    unsigned equal_limit_sum;  /* percent */
    unsigned saturating; /* of them: those that keep the GPU busy for a good part of the time */
    unsigned saturating_limit_sum; /* percent */
    unsigned wanting;              /* of them: held back by their limits within the same time */
    struct registry_divided divided;
    uint64_t busy_ns;   /* GPU time that all others say they had so far, at work or not; wraps
                           around, and jumps where one comes or goes */
    uint64_t since_ns;  /* when the last of them turned active, at most now; 0 where none */
    uint64_t heard_ns;  /* when a tenant at work was heard of last, also one that died since, at
                           most now; 0: nobody was within VGPU_BOARD_ACTIVE_NS */
    uint64_t silent_ns; /* when the last of those will have been silent for too long to be at work,
                           unless it is heard of again; 0 where none was heard of */
    uint64_t idle_ns;   /* when the first of them will count as idle unless it is heard of
                           again, at most now + VGPU_BOARD_ACTIVE_NS; UINT64_MAX: none */
};

/* A tenant at work says so each 10 ms, each 20 while it knows of no other, each 28 in windows: one
 * that has not for this time does not work. */
#define REGISTRY_SILENT_NS 28000000ull
#define REGISTRY_SILENT_WINDOWS_NS 40000000ull

/* A random tenant id, never 0. */
uint64_t registry_tenant_new(void);

/* Opens the registry of the GPU `uuid` in `directory`, made where it is missing, and claims or
 * joins the container's slot. `tenant` is the container's id on this GPU (account_tenant); 0: a
 * random one. `name`, cut to 32 bytes, is for tools; NULL: the command's name. The directory is
 * never made. Follows no symbolic link at the file's name, opens nothing but a regular file,
 * truncates nothing; what is neither a registry nor blank is left as it is. Blocks at most 20 ms,
 * on another process that claims a slot. Whatever it returns, `registry` may be used: registry_keep
 * tries again. Returns 0, or -errno: -ENOENT the directory does not exist (not a word in the log);
 * after one warning -EPROTO the file is no registry, -EACCES and the like as the kernel said. */
int registry_attach(struct registry *registry, const char *directory, const char *uuid,
    uint64_t tenant, const char *name) __attribute__((warn_unused_result));

/* As registry_attach for a file that exists, for tools: claims no slot, mends nothing, not a word
 * in the log. Only registry_look, registry_tenants and registry_detach may be used with it. Returns
 * 0 or -errno. */
int registry_open(struct registry *registry, const char *directory, const char *uuid)
    __attribute__((warn_unused_result));

/* Says that we are idle (registry_idle), gives the slot back, unmaps and closes. Nobody else may be
 * using `registry`. At the process's end registry_idle does as well. */
void registry_detach(struct registry *registry);

/* In a forked child, before anything else here: forgets the parent's. The parent's slot stays its
 * own. `registry` then is as one that was detached. */
void registry_reset(struct registry *registry);

/* Looks after the file, at most each 100 ms: where it was deleted, replaced or shortened, where the
 * program closed our descriptor, or where our slot was taken, attaches anew. Else one comparison.
 * Where there never was a registry, tries once a second. About 2 us where it looks and all is well.
 */
void registry_keep(struct registry *registry, uint64_t now_ns);

/* True where we have a slot. */
bool registry_is_attached(const struct registry *registry);

/* Writes what we say. Stores, and no system call, but where we turn active or idle, or change
 * `paused` or the priority: then wakes all that sleep on the epoch. Not active: idle at once,
 * unless another process of the container was active since this one said so. */
void registry_publish(struct registry *registry, const struct registry_own *own, uint64_t now_ns);

/* Idle at once, unless another process of the container was active since this one said so: what
 * registry_publish does where `active` is false, and nothing else. Takes no lock. */
void registry_idle(struct registry *registry);

/* What the others say, without those that died. Loads, and a system call of 0.2 us for each that
 * says that it is at work and has not been heard of for 20 ms. */
void registry_look(struct registry *registry, uint64_t now_ns, struct registry_view *ret_view);

/* Sleeps until the epoch is another than `epoch`, at most `timeout_ns`; may return sooner. Returns
 * at most each half millisecond, so that a hostile registry cannot make us spin. Without a registry
 * sleeps for the whole time. */
void registry_wait(struct registry *registry, uint32_t epoch, uint64_t timeout_ns);

/* The epoch itself, for FUTEX_WAIT (shared, not private) beside other words; NULL without a
 * registry. Not to be read outside a window. Where the file was shortened, FUTEX_WAIT returns
 * EFAULT at once.
 */
uint32_t *registry_wait_word(struct registry *registry);

/* Wakes all that sleep in registry_wait on this GPU's registry, of all tenants. */
void registry_wake(struct registry *registry);

/* Whether some process of the slot's tenant lives, or that cannot be told. A system call. */
bool registry_slot_is_held(struct registry *registry, unsigned slot);

/* A tenant as the registry has it, its name terminated: for tools. */
struct registry_tenant {
    struct vgpu_board_slot said; /* as it lies there: unchecked */
    char name[33];
    bool active, ours;
    bool takes_turns; /* it wants more of the card's memory than its share */
    bool has_turn;    /* and has the turn */
    bool held;        /* its slot is locked: some process of it lives, or that cannot be told */
};

/* All tenants whose slots are held; returns how many were filled. A system call each. */
unsigned registry_tenants(struct registry *registry, uint64_t now_ns,
    struct registry_tenant ret_tenants[VGPU_BOARD_SLOTS]);

#endif
