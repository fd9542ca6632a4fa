/* SPDX-License-Identifier: Apache-2.0 */
/* The grant: what a node lets one container use of its GPUs, in a file that the container cannot
 * write. The node's agent (vgpu-device-plugin) writes it into a directory of its own on the host,
 * which is mounted read-only into the container at VGPU_GRANT_DIRECTORY. A directory, because a
 * single file that is mounted does not follow a rename.
 *
 * The library maps the file and takes limits, priority, policy, identity and the region's path from
 * it, whatever the environment and the region say. Without the file nothing changes.
 *
 * A grant is changed in place, so that processes that have mapped it see the change: the writer
 * makes `sequence` odd, writes, and makes it even again. The file is never shortened or replaced
 * while the container lives. All words are in the machine's byte order, which `byte_order` proves.
 * Offsets are frozen; new fields take reserved space. */
#ifndef VGPU_GRANT_H
#define VGPU_GRANT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VGPU_GRANT_DIRECTORY "/etc/vgpu/limits.d"
#define VGPU_GRANT_NAME "grant"
#define VGPU_GRANT_MAGIC 0x3154524755504756ull /* "VGPUGRT1" as bytes in the file */
#define VGPU_GRANT_VERSION 1u
#define VGPU_GRANT_BYTE_ORDER 0x01020304u
#define VGPU_GRANT_DEVICES 64u

/* Whether compute limits hold. */
enum vgpu_grant_policy {
    VGPU_GRANT_POLICY_DEFAULT = 0, /* unless `lifted` is set */
    VGPU_GRANT_POLICY_FORCE = 1,   /* always */
    VGPU_GRANT_POLICY_DISABLE = 2, /* never */
};

/* A device that is not listed cannot be used: it counts as full. */
struct vgpu_grant_device {
    char uuid[48];            /* 0: "GPU-..." or "MIG-...", terminated */
    uint64_t memory_limit;    /* 48: bytes; 0 none */
    uint32_t core_limit;      /* 56: percent; 0 none */
    uint32_t core_soft_limit; /* 60: percent, above core_limit; 0 none */
};

struct vgpu_grant {
    uint64_t magic;          /* 0: 0 until the file is complete */
    uint32_t version;        /* 8 */
    uint32_t byte_order;     /* 12 */
    uint64_t size;           /* 16: bytes of this structure */
    uint32_t sequence;       /* 24: odd while the grant is being changed */
    uint32_t device_count;   /* 28: devices[] in use */
    uint32_t priority;       /* 32: 0 high */
    uint32_t priority_set;   /* 36: 0: `priority` says nothing */
    uint32_t policy;         /* 40: enum vgpu_grant_policy */
    uint32_t lifted;         /* 44: 1: compute limits do not hold for now */
    char region_path[256];   /* 48: of the region, in the container; empty: not said */
    char pod_name[256];      /* 304: whose container it is; each terminated, or empty */
    char pod_namespace[64];  /* 560 */
    char pod_uid[64];        /* 624 */
    char container_name[64]; /* 688 */
    uint64_t memory_ratio; /* 752: memory limits in multiples of the container's share of the card,
                            * times 2^20 (docs/memory.md); 0: none exceeds the card */
    uint64_t reserved[33]; /* 760 */
    struct vgpu_grant_device devices[VGPU_GRANT_DEVICES]; /* 1024 */
};

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct vgpu_grant_device) == 64, "frozen layout");
_Static_assert(offsetof(struct vgpu_grant, sequence) == 24, "frozen layout");
_Static_assert(offsetof(struct vgpu_grant, region_path) == 48, "frozen layout");
_Static_assert(offsetof(struct vgpu_grant, container_name) == 688, "frozen layout");
_Static_assert(offsetof(struct vgpu_grant, devices) == 1024, "frozen layout");
_Static_assert(sizeof(struct vgpu_grant) == 5120, "frozen layout");
#endif

#ifdef __cplusplus
}
#endif

#endif
