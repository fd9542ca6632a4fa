/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated CUDA driver's own objects and the functions its files share. All state is under
 * one recursive lock per process (CUDA_LOCKED); the lock is never held across a wait.
 */
#ifndef VGPU_SIM_CUDA_CUDA_SIM_H
#define VGPU_SIM_CUDA_CUDA_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "sim/cuda/entry.h"
#include "sim/machine/machine.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* Unit in which the driver takes device memory, and in which virtual memory is handed out. */
#define MEMORY_PAGE_BYTES (2 * MIB)
/* Requests from here on get a device-memory object of their own. */
#define MEMORY_OWN_OBJECT_BYTES (1 * MIB)
#define POOL_CHUNK_BYTES (32 * MIB)

static inline uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* ---- lock ---- */
int cuda_lock(void);
/* The same for who is not kept by a checkpoint (checkpoint.h). */
int cuda_lock_ungated(void);
void cuda_unlock(int *guard);
#define CUDA_LOCKED __attribute__((cleanup(cuda_unlock), unused)) int cuda_guard = cuda_lock()

/* ---- handles: every object that a program holds a handle of is registered while it lives ---- */
enum object_kind {
    OBJECT_CONTEXT = 1,
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_MODULE,
    OBJECT_FUNCTION,
    OBJECT_LIBRARY,
    OBJECT_KERNEL,
    OBJECT_GRAPH,
    OBJECT_GRAPH_NODE,
    OBJECT_GRAPH_EXEC,
    OBJECT_POOL,
    OBJECT_ARRAY,
    OBJECT_MIPMAP,
    OBJECT_VMM,
    OBJECT_TEXTURE,
    OBJECT_EXTERNAL_MEMORY,
    OBJECT_RESOURCE_DESCRIPTOR,
};

struct object {
    enum object_kind kind;
    struct object *next;
};

void object_add(struct object *object, enum object_kind kind);
void object_remove(struct object *object);
/* NULL unless handle is that of a live object of that kind. */
void *object_find(const void *handle, enum object_kind kind);
/* Calls `visit` with each live object of that kind, until it answers something else than
 * CUDA_SUCCESS, which is returned. */
CUresult object_visit(enum object_kind kind, CUresult (*visit)(void *object));

/* ---- device memory as the resource manager knows it ---- */
struct device;

struct rm_object {
    uint32_t handle; /* 0: none */
    uint64_t bytes;
    uint32_t *others; /* of memory in parts: the handles after the first */
    uint64_t other_count;
};

CUresult rm_open(void);
/* After a failed start, so that cuInit can be tried again. */
void rm_close(void);
int rm_descriptor(void);
uint32_t rm_client(void);
CUresult rm_device_open(struct device *device);
/* Rounds up to whole pages. Blocks for as long as the kernel would. */
CUresult rm_memory_create(struct device *device, uint64_t bytes, struct rm_object *ret_object);
/* Not in the GPU's address space until rm_memory_map. */
CUresult rm_memory_create_unmapped(
    struct device *device, uint64_t bytes, struct rm_object *ret_object);
/* As several objects of part_bytes each; bytes is a multiple of it. All or none. */
CUresult rm_memory_create_parts(
    struct device *device, uint64_t bytes, uint64_t part_bytes, struct rm_object *ret_object);
void rm_memory_map(const struct rm_object *object, bool mapped);
/* Lets other processes duplicate it. */
CUresult rm_memory_share(const struct rm_object *object);
/* Mapped at once. */
CUresult rm_memory_dup(struct device *device, uint32_t client, uint32_t handle, uint64_t bytes,
    struct rm_object *ret_object);
CUresult rm_memory_export(struct device *device, const struct rm_object *object, int *ret_fd);
struct rm_export_dmabuf;
CUresult rm_dmabuf(struct rm_export_dmabuf *params);
CUresult rm_memory_import(
    struct device *device, int fd, uint64_t bytes, struct rm_object *ret_object);
/* On which device (the machine's index) the memory of an exported descriptor is, and how much. */
CUresult rm_export_describe(int fd, unsigned *ret_device, uint64_t *ret_bytes);
void rm_memory_destroy(struct device *device, struct rm_object *object);
/* For a checkpoint: frees the object, and makes it again under its handle, mapped and shared as it
 * was. */
CUresult rm_memory_give(const struct sim_memory_object *object);
CUresult rm_memory_take(const struct sim_memory_object *object);
/* The same for the client, with all that is below it, and a device. The new client has another
 * handle. */
CUresult rm_client_end(void);
CUresult rm_client_begin(void);
CUresult rm_device_restore(struct device *device);
/* With the handle that is given, unless it is 0. An MPS client has none: handle 0, which is not
 * freed. */
CUresult rm_group_create(struct device *device, uint32_t engine, uint32_t *group);
CUresult rm_channel_create(uint32_t group, uint32_t *channel);
void rm_free(uint32_t parent, uint32_t handle);

/* ---- devices ---- */
struct pool;
struct context;

struct device {
    CUdevice ordinal;
    unsigned index; /* the machine's */
    const struct sim_device *facts;
    uint32_t rm_device;
    uint32_t rm_subdevice;
    struct context *primary;
    unsigned primary_refs;
    unsigned primary_flags;
    unsigned greens; /* live green contexts, each of which retains the primary one */
    struct pool *default_pool;
    struct pool *current_pool;
    struct pool *graph_pool;
};

CUresult devices_init(void);
CUresult devices_restore(void);
int device_count(void);
/* NULL unless ordinal is one of ours. */
struct device *device_of(CUdevice ordinal);

/* ---- contexts ---- */
struct stream;
struct block;

#define CONTEXT_OBJECTS 17
#define CONTEXT_COPY_GROUPS 3
#define CONTEXT_CHANNELS 20

struct context {
    struct object object;
    struct device *device;
    struct context *home; /* of a green context: the primary one, which has all but its streams */
    bool live;
    bool primary;
    unsigned refs; /* as cuCtxAttach and cuCtxDetach count */
    unsigned flags;
    unsigned version;
    unsigned long long id;
    struct rm_object memory[CONTEXT_OBJECTS];
    uint32_t groups[1 + CONTEXT_COPY_GROUPS];
    uint32_t channels[CONTEXT_CHANNELS];
    struct sim_group_id timeline; /* its compute group, as the timeline knows it */
    struct rm_object local;
    uint64_t local_bytes_per_thread;
    size_t limits[CU_LIMIT_MAX];
    struct stream *streams; /* also those destroyed whose work is not known to be done: */
    unsigned streams_gone, streams_gone_most; /* their count, and the most that are answered for */
    struct stream *legacy;
    struct block *blocks;
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
};

/* The calling thread's current context, NULL if none; where that is a green one, the primary
 * context. */
struct context *context_current(void);
/* The calling thread's current green context, NULL if it has none. */
struct context *context_current_green(void);
/* A live context of that handle; NULL handle means the current one. May be a green one. */
struct context *context_of(CUcontext handle);
/* Also one that is no more; NULL: there never was one. */
struct context *context_ever_of(CUcontext handle);
/* Makes sure that a kernel of bytes of local memory a thread can run. */
CUresult context_local_grow(struct context *context, uint64_t bytes);

/* ---- allocations, found by any address inside them ---- */
enum allocation_kind {
    ALLOCATION_DEVICE,
    ALLOCATION_BLOCK, /* part of a block shared by small requests */
    ALLOCATION_POOL,
    ALLOCATION_MANAGED,
    ALLOCATION_HOST,
    ALLOCATION_REGISTERED,
    ALLOCATION_MAPPING,
    ALLOCATION_IPC,
    ALLOCATION_EXTERNAL,
    ALLOCATION_GLOBAL, /* a module's */
};

struct vmm;
struct rm_object vmm_object(const struct vmm *vmm);
/* Whether any memory of the host that cuMemCreate made, or an import gave, is mapped or held. */
bool vmm_has_host(void);

/* Where memory of a pool, of a graph or of cuMemCreate lies. */
enum memory_place {
    PLACE_DEVICE,
    PLACE_MANAGED, /* with a preferred location or none */
    PLACE_HOST,
};

/* Whether the driver knows such memory, by its manual (cuMemPoolCreate, cuMemCreate). *ret_device:
 * the location's, NULL where that is none. */
CUresult place_of(CUmemAllocationType type, const CUmemLocation *location,
    enum memory_place *ret_place, struct device **ret_device);
/* Two locations that mean the same. */
bool place_is_same(const CUmemLocation *one, const CUmemLocation *other);

struct allocation {
    uint64_t address;
    uint64_t bytes;
    enum allocation_kind kind;
    enum memory_place place; /* of ALLOCATION_POOL and ALLOCATION_MAPPING */
    struct context *context;
    struct device *device;
    struct rm_object rm;
    struct block *block;
    struct pool *pool;
    struct vmm *vmm;
    uint64_t access; /* of a mapping: CUmemAccess_flags by place, in two bits each */
    bool shown;      /* a mapping's contents lie in its range's window (vmm.c) */
    unsigned host_flags;
    unsigned refs; /* of an IPC import */
    bool graph;
    bool sync_memops;
    unsigned long long id;
    char *contents; /* made at the first write */
};

struct allocation *allocation_find(uint64_t address);
struct allocation *allocation_at(uint64_t address); /* only at its first byte */
/* Fills in the id and takes the record into the address tree. */
CUresult allocation_add(struct allocation allocation, struct allocation **ret_allocation);
/* Takes it out and frees record and contents, not the memory it stood for. */
void allocation_forget(struct allocation *allocation);
CUresult memory_create(struct context *context, uint64_t bytes, enum allocation_kind kind,
    struct allocation **ret_allocation);
void memory_destroy(struct allocation *allocation);
/* Frees all that the context allocated. */
void memory_context_finish(struct context *context);
/* All allocations that match, to be freed by the caller; NULL with *ret_count 0 if there are none.
 */
struct allocation **allocation_collect(
    bool (*match)(const struct allocation *, const void *), const void *what, size_t *ret_count);

/* Device addresses: a private range, never mapped. 0 when exhausted. */
uint64_t address_take(uint64_t bytes, uint64_t alignment);
bool address_take_at(uint64_t address, uint64_t bytes);
void address_release(uint64_t address, uint64_t bytes);
bool address_is_device(uint64_t address);

/* Largest single transfer whose contents are kept. */
#define CONTENTS_KEPT_BYTES (64 * MIB)
/* Where [address, address + bytes) can be read or written by the simulator itself; *ret_host is
 * NULL where the contents are not kept. Host addresses stand for themselves. */
CUresult contents_of(uint64_t address, uint64_t bytes, char **ret_host);
/* The same for a range of mappings that touch each other. */
/* How many of the bytes lie in mappings that are backed by the host. */
uint64_t bytes_on_host(uint64_t address, uint64_t bytes);
/* About the rate of PCIe 5, either way. */
#define BUS_BYTES_PER_US 25000
/* Copies what was written of a stretch of mappings to another, in whole pages of the host, however
 * long it is. False where either is none: nothing was done. */
bool vmm_copy(uint64_t to, uint64_t from, uint64_t bytes);
CUresult vmm_contents(uint64_t address, uint64_t bytes, char **ret_host);
/* The reserved range that a mapping's address lies in. */
struct vmm_range {
    uint64_t address;
    uint64_t bytes;
};
struct vmm_range vmm_reserved(uint64_t address);
/* Makes *contents at first need; NULL if there is no memory. */
char *contents_get(char **contents, uint64_t bytes);
void contents_drop(char *contents, uint64_t bytes);
/* The memory object that a block is, and its address. */
struct rm_object memory_block_object(const struct block *block, uint64_t *ret_address);

/* ---- pools ---- */
struct pool *pool_of(CUmemoryPool handle);
CUresult pools_init(struct device *device);
CUresult pool_allocate(
    struct pool *pool, struct context *context, uint64_t bytes, struct allocation **ret_allocation);
void pool_free(struct allocation *allocation);
/* What every synchronisation does: memory above the release thresholds goes back. */
void pools_release(struct device *device);

/* ---- modules ---- */
struct kernel_facts {
    bool has_duration; /* its first parameter is its duration in ns */
    bool meets;        /* its second which meeting it is part of, its third of how many kernels */
    bool touches;      /* its second where it counts in memory, its third how many bytes long */
    bool reads;        /* its second where it reads, its third how many bytes long */
    uint64_t local_bytes;
    uint32_t shared_bytes;
    uint32_t max_threads;
    uint32_t params;
    uint32_t params_bytes;
    const uint32_t *param_offsets;
    const uint32_t *param_sizes;
};

/* handle is a CUfunction or a CUkernel; false if it is neither. */
bool library_kernel_facts(const void *handle, struct kernel_facts *ret_facts);
void modules_context_finish(struct context *context);

/* ---- streams (work/stream.h has the rest) ---- */
CUresult streams_context_init(struct context *context);
void streams_context_finish(struct context *context);
/* True if any capture forbids unsafe calls to this thread; spoils it as the driver does. */
bool capture_forbids(void);
/* Waits, without the lock, until all of the context's work is done. */
CUresult stream_wait_context(struct context *context);

#endif
