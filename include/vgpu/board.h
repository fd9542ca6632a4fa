/* SPDX-License-Identifier: Apache-2.0 */
/* The board of a GPU: the file through which the tenants of one GPU, each a container with a region
 * of its own, tell each other that they are at work. One file for each GPU, "vgpu-board-<UUID>", in
 * a directory that the node's containers share.
 *
 * The file is mapped shared by every process that works on the GPU. Offsets are frozen: a field
 * never moves, is never reused for another meaning, and new fields take reserved space, which is
 * zero; zero means "not said". All words are in the machine's byte order, which `byte_order`
 * proves. Times are nanoseconds of CLOCK_MONOTONIC.
 *
 * Trust: every tenant of the GPU can write the whole file. It is advisory: a reader checks each
 * value that it uses, and nothing in it may lift a limit. */
#ifndef VGPU_BOARD_H
#define VGPU_BOARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VGPU_BOARD_MAGIC 0x3144524255504756ull /* "VGPUBRD1" as bytes in the file */
#define VGPU_BOARD_VERSION 1u
#define VGPU_BOARD_BYTE_ORDER 0x01020304u
#define VGPU_BOARD_SLOTS 126u /* with the head 16 KiB */
#define VGPU_BOARD_FILE_PREFIX "vgpu-board-"

/* A tenant that was last at work longer ago than VGPU_BOARD_ACTIVE_NS is idle; so is one whose word
 * lies further in the future than VGPU_BOARD_FUTURE_NS. */
#define VGPU_BOARD_ACTIVE_NS 50000000ull
#define VGPU_BOARD_FUTURE_NS 1000000000ull

/* Of vgpu_board.turn: the slot + 1, below its time. */
#define VGPU_BOARD_TURN_BITS 8
#define VGPU_BOARD_TURN_SLOT ((1ull << VGPU_BOARD_TURN_BITS) - 1)

enum vgpu_board_flags {
    VGPU_BOARD_PAUSED = 1,    /* stopped on purpose: not at work, whatever active_ns says */
    VGPU_BOARD_UNLIMITED = 2, /* has no compute limit */
    VGPU_BOARD_HEAVY = 4,     /* keeps the GPU busy for a good part of the time */
    VGPU_BOARD_WINDOWS = 8,   /* works in windows, and is heard of less often */
    VGPU_BOARD_SPANS = 16,    /* its windows keep to its slot of the period that all such share */
};

/* A tenant. While it lives, each of its processes that uses the board holds an
 * open-file-description read lock on the byte of the file at which its slot lies: a slot that
 * nobody has locked is free. Claimed under a write lock of that byte; written by the tenant's
 * processes alone. Slots never move. */
struct vgpu_board_slot {
    uint64_t tenant;          /* 0: random, the container's on this GPU; 0: never claimed */
    uint64_t active_ns;       /* 8: when it last had work on the GPU or asked for it; 0 idle */
    uint64_t since_ns;        /* 16: when it last turned active, or claimed the slot */
    uint64_t wants_ns;        /* 24: when it was last held back by its limit; 0 never */
    uint64_t busy_ns;         /* 32: GPU time measured so far */
    uint32_t core_limit;      /* 40: percent; 0 none */
    uint32_t core_soft_limit; /* 44: percent; 0 none */
    uint32_t priority;        /* 48: 0 high */
    uint32_t flags;           /* 52: enum vgpu_board_flags */
    uint32_t fixed_pages;     /* 56: of resident_pages, below: what cannot leave the card */
    uint32_t reserved;        /* 60 */
    char name[32];            /* 64: for tools; not terminated if full */
    /* Of device memory, where the tenant has a share of the card (src/residency/turns.h); sizes are
     * pages of 2 MiB. */
    uint32_t share_pages;     /* 96: what it may hold by itself; 0: it has no share, and all that
                                 follows is not said */
    uint32_t wanted_pages;    /* 100: its working set */
    uint32_t claim_pages;     /* 104: it holds no more than this; 0: its share. Written under a
                                 write lock of the byte at which `turn` lies */
    uint32_t resident_pages;  /* 108: what it holds on the card, for tools */
    uint64_t memory_heard_ns; /* 112: when it last said any of this */
    uint64_t turn_waits_ns;   /* 120: since when it waits for the turn; 0: it does not */
};

struct vgpu_board {
    uint64_t magic;        /* 0: a file without it is no board */
    uint32_t version;      /* 8 */
    uint32_t byte_order;   /* 12 */
    uint64_t size;         /* 16: bytes of this structure, and of the file at least */
    uint32_t slot_entries; /* 24: VGPU_BOARD_SLOTS */
    uint32_t slot_high;    /* 28: no slot at or above this was ever claimed */
    uint64_t turn;         /* 32: the tenant whose working set is on the card: the microsecond at
                              which it got the turn, << 8, | its slot + 1; 0 there: no tenant */
    uint64_t reserved[3];  /* 40 */
    uint32_t epoch; /* 64: raised, and its sleepers woken (futex, shared), when a tenant turns
                       active or idle, pauses or goes on, changes its priority, or gives or
                       takes the turn */
    uint32_t reserved_more[47];                     /* 68 */
    struct vgpu_board_slot slots[VGPU_BOARD_SLOTS]; /* 256 */
};

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct vgpu_board_slot) == 128, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, active_ns) == 8, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, since_ns) == 16, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, wants_ns) == 24, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, busy_ns) == 32, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, core_limit) == 40, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, core_soft_limit) == 44, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, priority) == 48, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, flags) == 52, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, name) == 64, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, fixed_pages) == 56, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, share_pages) == 96, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, wanted_pages) == 100, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, claim_pages) == 104, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, resident_pages) == 108, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, memory_heard_ns) == 112, "frozen layout");
_Static_assert(offsetof(struct vgpu_board_slot, turn_waits_ns) == 120, "frozen layout");
_Static_assert(offsetof(struct vgpu_board, turn) == 32, "frozen layout");
_Static_assert(offsetof(struct vgpu_board, size) == 16, "frozen layout");
_Static_assert(offsetof(struct vgpu_board, slot_entries) == 24, "frozen layout");
_Static_assert(offsetof(struct vgpu_board, slot_high) == 28, "frozen layout");
_Static_assert(offsetof(struct vgpu_board, epoch) == 64, "frozen layout");
_Static_assert(offsetof(struct vgpu_board, slots) == 256, "frozen layout");
_Static_assert(sizeof(struct vgpu_board) == 16384, "frozen layout");
#endif

#ifdef __cplusplus
}
#endif

#endif
