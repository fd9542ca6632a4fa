/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resource manager's ioctl interface: requests, classes, controls, statuses and the
 * parameter layouts that we read. Not promised by the vendor: layouts as in the open kernel
 * modules 580.95.05 and 595.45.04, x86-64 and aarch64. Gate every use by self-test.
 */
#ifndef VGPU_ABI_RM_H
#define VGPU_ABI_RM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

/*
 * Requests on /dev/nvidiactl and /dev/nvidia<N>. The call returns 0 and leaves its result in the
 * structure's status. The size in the request tells the two forms of RM_NR_ALLOC apart.
 */
#define RM_IOCTL_TYPE 'F'

#define RM_NR_ALLOC_MEMORY 0x27u
#define RM_NR_FREE 0x29u
#define RM_NR_CONTROL 0x2Au
#define RM_NR_ALLOC 0x2Bu
#define RM_NR_DUP_OBJECT 0x34u
#define RM_NR_SHARE 0x35u
#define RM_NR_VID_HEAP_CONTROL 0x4Au /* an older way to memory; 580 has it still */
#define RM_NR_XFER 0xD3u             /* wraps a request whose structure is too large */
#define RM_NR_EXPORT_TO_DMABUF 0xD9u

#define RM_REQUEST(nr, size) _IOC(_IOC_READ | _IOC_WRITE, RM_IOCTL_TYPE, (nr), (size))
#define RM_REQUEST_TYPE(request) ((unsigned)_IOC_TYPE(request))
#define RM_REQUEST_NR(request) ((unsigned)_IOC_NR(request))
#define RM_REQUEST_SIZE(request) ((size_t)_IOC_SIZE(request))

#define RM_IOCTL_ALLOC21 RM_REQUEST(RM_NR_ALLOC, sizeof(struct rm_alloc21))
#define RM_IOCTL_ALLOC64 RM_REQUEST(RM_NR_ALLOC, sizeof(struct rm_alloc64))
#define RM_IOCTL_FREE RM_REQUEST(RM_NR_FREE, sizeof(struct rm_free))
#define RM_IOCTL_CONTROL RM_REQUEST(RM_NR_CONTROL, sizeof(struct rm_control))
#define RM_IOCTL_DUP_OBJECT RM_REQUEST(RM_NR_DUP_OBJECT, sizeof(struct rm_dup))
#define RM_IOCTL_ALLOC_MEMORY RM_REQUEST(RM_NR_ALLOC_MEMORY, sizeof(struct rm_alloc_memory_fd))
#define RM_IOCTL_VID_HEAP RM_REQUEST(RM_NR_VID_HEAP_CONTROL, sizeof(struct rm_vid_heap))
#define RM_IOCTL_XFER RM_REQUEST(RM_NR_XFER, sizeof(struct rm_xfer))

/* The part that both forms of RM_NR_ALLOC begin with. object 0 on entry: the kernel picks. */
struct rm_alloc21 {
    uint32_t client;
    uint32_t parent;
    uint32_t object; /* in and out */
    uint32_t class_id;
    uint64_t params; /* pointer */
    uint32_t params_size;
    uint32_t status;
};

struct rm_alloc64 {
    uint32_t client;
    uint32_t parent;
    uint32_t object; /* in and out */
    uint32_t class_id;
    uint64_t params; /* pointer */
    uint64_t rights; /* pointer */
    uint32_t params_size;
    uint32_t flags;
    uint32_t status;
    uint32_t pad;
};

/* Frees the object and all below it. */
struct rm_free {
    uint32_t client;
    uint32_t parent;
    uint32_t object;
    uint32_t status;
};

struct rm_control {
    uint32_t client;
    uint32_t object;
    uint32_t cmd;
    uint32_t flags;
    uint64_t params; /* pointer */
    uint32_t params_size;
    uint32_t status;
};

/* Another handle (client, object) on the object (client_src, object_src): no new memory. */
struct rm_dup {
    uint32_t client;
    uint32_t parent;
    uint32_t object; /* in and out */
    uint32_t client_src;
    uint32_t object_src;
    uint32_t flags;
    uint32_t status;
};

/* Lets other clients take handles on the object (cuIpcGetMemHandle on 580.159.04). */
struct rm_share {
    uint32_t client;
    uint32_t object;
    uint32_t policy[3];
    uint32_t status;
};

struct rm_alloc_memory {
    uint32_t client;
    uint32_t parent;
    uint32_t object; /* in and out */
    uint32_t class_id;
    uint32_t flags;
    uint32_t pad0;
    uint64_t memory; /* pointer, in and out */
    uint64_t limit;  /* size - 1, in and out */
    uint32_t status;
    uint32_t pad1;
};

/* What /dev/nvidia<N> takes for RM_NR_ALLOC_MEMORY. */
struct rm_alloc_memory_fd {
    struct rm_alloc_memory call;
    int32_t fd;
    uint32_t pad;
};

/* RM_NR_VID_HEAP_CONTROL; data as `function` says. */
struct rm_vid_heap_memory {
    uint32_t owner;
    uint32_t object; /* in and out */
    uint32_t type;
    uint32_t flags; /* RM_MEMORY_FLAG_… */
    uint32_t attr;  /* in and out; RM_MEMORY_LOCATION reads it */
    uint32_t format;
    uint32_t compr_covg;
    uint32_t zcull_covg;
    uint32_t partition_stride;
    uint32_t width;
    uint32_t height;
    uint32_t pad0;
    uint64_t size; /* in and out */
    uint64_t alignment;
    uint64_t offset;
    uint64_t limit;
    uint64_t address;
    uint64_t range_begin;
    uint64_t range_end;
    uint32_t attr2;
    uint32_t ctag_offset;
    int32_t numa_node;
    uint32_t pad1;
};

struct rm_vid_heap {
    uint32_t client;
    uint32_t parent;
    uint32_t function;
    uint32_t va_space;
    int16_t ivc_heap;
    uint16_t pad0;
    uint32_t status;
    uint64_t total;
    uint64_t free;
    union {
        struct rm_vid_heap_memory memory; /* of RM_VID_HEAP_FREE only owner and object */
        uint8_t bytes[144];
    } data;
};

#define RM_VID_HEAP_ALLOC_SIZE 2u
#define RM_VID_HEAP_FREE 3u

struct rm_xfer {
    uint32_t nr; /* RM_NR_… of the wrapped request */
    uint32_t size;
    uint64_t ptr;
};

_Static_assert(sizeof(struct rm_alloc21) == 32, "NVOS21");
_Static_assert(offsetof(struct rm_alloc21, params) == 16, "NVOS21");
_Static_assert(offsetof(struct rm_alloc21, status) == 28, "NVOS21");
_Static_assert(sizeof(struct rm_alloc64) == 48, "NVOS64");
_Static_assert(offsetof(struct rm_alloc64, rights) == 24, "NVOS64");
_Static_assert(offsetof(struct rm_alloc64, params_size) == 32, "NVOS64");
_Static_assert(offsetof(struct rm_alloc64, status) == 40, "NVOS64");
_Static_assert(sizeof(struct rm_free) == 16, "NVOS00");
_Static_assert(sizeof(struct rm_control) == 32, "NVOS54");
_Static_assert(offsetof(struct rm_control, params) == 16, "NVOS54");
_Static_assert(offsetof(struct rm_control, status) == 28, "NVOS54");
_Static_assert(sizeof(struct rm_dup) == 28, "NVOS55");
_Static_assert(sizeof(struct rm_share) == 24, "NVOS57");
_Static_assert(sizeof(struct rm_alloc_memory) == 48, "NVOS02");
_Static_assert(offsetof(struct rm_alloc_memory, memory) == 24, "NVOS02");
_Static_assert(offsetof(struct rm_alloc_memory, status) == 40, "NVOS02");
_Static_assert(offsetof(struct rm_alloc_memory_fd, fd) == 48, "NVOS02 with descriptor");
_Static_assert(sizeof(struct rm_alloc_memory_fd) == 56, "NVOS02 with descriptor");
_Static_assert(sizeof(struct rm_vid_heap) == 184, "NVOS32");
_Static_assert(offsetof(struct rm_vid_heap, status) == 20, "NVOS32");
_Static_assert(offsetof(struct rm_vid_heap, data) == 40, "NVOS32");
_Static_assert(sizeof(struct rm_vid_heap_memory) == 120, "NVOS32 memory");
_Static_assert(offsetof(struct rm_vid_heap_memory, object) == 4, "NVOS32 memory");
_Static_assert(offsetof(struct rm_vid_heap_memory, attr) == 16, "NVOS32 memory");
_Static_assert(offsetof(struct rm_vid_heap_memory, size) == 48, "NVOS32 memory");
_Static_assert(sizeof(struct rm_xfer) == 16, "transfer");

/* Object classes. */
#define RM_CLASS_CLIENT_0 0x0u /* root client, older name of the same object */
#define RM_CLASS_MEMORY_SYSTEM 0x3Eu
#define RM_CLASS_MEMORY_LOCAL_PRIVILEGED 0x3Fu
#define RM_CLASS_MEMORY_LOCAL 0x40u
#define RM_CLASS_CLIENT 0x41u
#define RM_CLASS_DEVICE 0x80u
#define RM_CLASS_SUBDEVICE 0x2080u
#define RM_CLASS_VASPACE 0x90F1u
#define RM_CLASS_CHANNEL_GROUP 0xA06Cu
#define RM_CLASS_CHANNEL_HOPPER 0xC86Fu

/* GPFIFO channels of all generations end in 6F. */
#define RM_CLASS_IS_CHANNEL(class_id) (((class_id)&0xFFu) == 0x6Fu && (class_id) > 0xFFu)

/* Parameters of RM_CLASS_CLIENT: the client's new handle comes back here as well as in object. */
struct rm_client_params {
    uint32_t client;
};

/* Parameters of RM_CLASS_DEVICE. */
struct rm_device_params {
    uint32_t device_id;
    uint32_t client_share;
    uint32_t target_client;
    uint32_t target_device;
    uint32_t flags;
    uint32_t pad0;
    uint64_t va_space_size;
    uint64_t va_start;
    uint64_t va_limit;
    uint32_t va_mode;
    uint32_t pad1;
};

/* Parameters of RM_CLASS_SUBDEVICE. */
struct rm_subdevice_params {
    uint32_t subdevice_id;
};

/* First part of the parameters of RM_CLASS_CHANNEL_GROUP; later fields differ between drivers. */
struct rm_channel_group_params {
    uint32_t object_error;
    uint32_t object_ecc_error;
    uint32_t va_space;
    uint32_t engine_type;
};

/* engine_type: GR0 to GR7, of which a whole GPU has only the first. */
#define RM_ENGINE_GR0 1u
#define RM_ENGINE_GR7 8u
#define RM_ENGINE_COPY0 9u
#define RM_ENGINE_COPY9 18u
#define RM_ENGINE_IS_GR(engine) ((engine) >= RM_ENGINE_GR0 && (engine) <= RM_ENGINE_GR7)

/* First part of the parameters of a channel (a class ending in 6F). */
struct rm_channel_params {
    uint32_t object_error;
    uint32_t object_buffer;
    uint64_t gpfifo_offset;
    uint32_t gpfifo_entries;
    uint32_t flags;
    uint32_t context_share;
    uint32_t va_space;
};

/* Parameters of RM_CLASS_MEMORY_LOCAL and RM_CLASS_MEMORY_SYSTEM; older drivers end before
 * numa_node. */
struct rm_memory_params {
    uint32_t owner;
    uint32_t type;
    uint32_t flags; /* RM_MEMORY_FLAG_… */
    uint32_t width;
    uint32_t height;
    int32_t pitch;
    uint32_t attr; /* RM_MEMORY_LOCATION reads it */
    uint32_t attr2;
    uint32_t format;
    uint32_t compr_covg;
    uint32_t zcull_covg;
    uint32_t pad0;
    uint64_t range_lo;
    uint64_t range_hi;
    uint64_t size; /* in and out */
    uint64_t alignment;
    uint64_t offset;
    uint64_t limit;
    uint64_t address;
    uint32_t ctag_offset;
    uint32_t va_space;
    uint32_t internal_flags;
    uint32_t tag;
    int32_t numa_node;
    uint32_t pad1;
};

/* An address range, not memory. */
#define RM_MEMORY_FLAG_VIRTUAL 0x00080000u
#define RM_MEMORY_LOCATION(attr) (((attr) >> 25) & 3u)
#define RM_MEMORY_LOCATION_VIDEO 0u
#define RM_MEMORY_LOCATION_PCI 1u
#define RM_MEMORY_LOCATION_ANY 3u

_Static_assert(sizeof(struct rm_device_params) == 56, "device");
_Static_assert(offsetof(struct rm_device_params, va_space_size) == 24, "device");
_Static_assert(sizeof(struct rm_subdevice_params) == 4, "subdevice");
_Static_assert(offsetof(struct rm_channel_group_params, engine_type) == 12, "channel group");
_Static_assert(offsetof(struct rm_channel_params, va_space) == 28, "channel");
_Static_assert(offsetof(struct rm_memory_params, attr) == 24, "memory");
_Static_assert(offsetof(struct rm_memory_params, size) == 64, "memory");
_Static_assert(offsetof(struct rm_memory_params, alignment) == 72, "memory");
_Static_assert(offsetof(struct rm_memory_params, numa_node) == 120, "memory");
_Static_assert(sizeof(struct rm_memory_params) == 128, "memory");

/* Controls on the client object. */
#define RM_CTRL_EXPORT_OBJECT_TO_FD 0x3D05u
#define RM_CTRL_IMPORT_OBJECT_FROM_FD 0x3D06u
#define RM_CTRL_GET_EXPORT_OBJECT_INFO 0x3D08u
#define RM_CTRL_CREATE_EXPORT_OBJECT_FD 0x3D0Au
#define RM_CTRL_EXPORT_OBJECTS_TO_FD 0x3D0Bu
#define RM_CTRL_IMPORT_OBJECTS_FROM_FD 0x3D0Cu

#define RM_EXPORT_METADATA_BYTES 64
#define RM_EXPORT_OBJECTS_MAX 512
#define RM_IMPORT_OBJECTS_MAX 128

#define RM_EXPORT_TYPE_NONE 0u
#define RM_EXPORT_TYPE_RM 1u

#define RM_IMPORT_TYPE_NONE 0u
#define RM_IMPORT_TYPE_VIDEO 1u
#define RM_IMPORT_TYPE_SYSTEM 2u
#define RM_IMPORT_TYPE_FABRIC 3u

/* fd is a /dev/nvidiactl descriptor that the caller opened; the kernel attaches the object to it.
 */
struct rm_export_object {
    uint32_t type; /* RM_EXPORT_TYPE_… */
    uint32_t device;
    uint32_t parent;
    uint32_t object;
    int32_t fd;
    uint32_t flags;
};

struct rm_import_object {
    int32_t fd;
    uint32_t type; /* RM_EXPORT_TYPE_… */
    uint32_t device;
    uint32_t parent;
    uint32_t object; /* in and out */
};

struct rm_export_info {
    int32_t fd;
    uint32_t device_instance;
    uint16_t max_objects;
    uint8_t metadata[RM_EXPORT_METADATA_BYTES];
};

struct rm_create_export_fd {
    uint32_t device;
    uint16_t max_objects;
    uint8_t metadata[RM_EXPORT_METADATA_BYTES];
    int32_t fd;
};

/* objects[0 .. count) go into the descriptor's places index and on; a 0 handle takes one out. */
struct rm_export_objects {
    int32_t fd;
    uint32_t device;
    uint16_t max_objects;
    uint8_t metadata[RM_EXPORT_METADATA_BYTES];
    uint32_t objects[RM_EXPORT_OBJECTS_MAX];
    uint16_t count;
    uint16_t index;
};

/* objects[] are the new handles below parent; types[] says what each turned out to be. */
struct rm_import_objects {
    int32_t fd;
    uint32_t parent;
    uint32_t objects[RM_IMPORT_OBJECTS_MAX];
    uint8_t types[RM_IMPORT_OBJECTS_MAX]; /* RM_IMPORT_TYPE_… */
    uint16_t count;
    uint16_t index;
};

_Static_assert(sizeof(struct rm_export_object) == 24, "export object");
_Static_assert(sizeof(struct rm_import_object) == 20, "import object");
_Static_assert(sizeof(struct rm_export_info) == 76, "export info");
_Static_assert(offsetof(struct rm_create_export_fd, fd) == 72, "create export descriptor");
_Static_assert(sizeof(struct rm_create_export_fd) == 76, "create export descriptor");
_Static_assert(offsetof(struct rm_export_objects, objects) == 76, "export objects");
_Static_assert(offsetof(struct rm_export_objects, count) == 2124, "export objects");
_Static_assert(sizeof(struct rm_export_objects) == 2128, "export objects");
_Static_assert(offsetof(struct rm_import_objects, types) == 520, "import objects");
_Static_assert(offsetof(struct rm_import_objects, count) == 648, "import objects");
_Static_assert(sizeof(struct rm_import_objects) == 652, "import objects");

/* An ioctl of its own on a GPU's device file: the kernel duplicates the handles for itself and
 * keeps the memory until the dma-buf goes. fd -1 makes one; else the objects go into its places
 * index and on. Drivers before mappingType have the older form (seen in the open kernel modules 515
 * and 580).
 */
#define RM_DMABUF_OBJECTS_MAX 128

struct rm_export_dmabuf {
    int32_t fd; /* in and out */
    uint32_t client;
    uint32_t total_objects;
    uint32_t count;
    uint32_t index;
    uint64_t total_bytes;
    uint8_t mapping_type;
    uint8_t may_be_mapped;
    uint32_t objects[RM_DMABUF_OBJECTS_MAX];
    uint64_t offsets[RM_DMABUF_OBJECTS_MAX];
    uint64_t sizes[RM_DMABUF_OBJECTS_MAX];
    uint32_t status;
};

struct rm_export_dmabuf_old {
    int32_t fd;
    uint32_t client;
    uint32_t total_objects;
    uint32_t count;
    uint32_t index;
    uint64_t total_bytes;
    uint32_t objects[RM_DMABUF_OBJECTS_MAX];
    uint64_t offsets[RM_DMABUF_OBJECTS_MAX];
    uint64_t sizes[RM_DMABUF_OBJECTS_MAX];
    uint32_t status;
};

_Static_assert(offsetof(struct rm_export_dmabuf, objects) == 36, "export to a dma-buf");
_Static_assert(offsetof(struct rm_export_dmabuf, offsets) == 552, "export to a dma-buf");
_Static_assert(offsetof(struct rm_export_dmabuf, status) == 2600, "export to a dma-buf");
_Static_assert(sizeof(struct rm_export_dmabuf) == 2608, "export to a dma-buf");
_Static_assert(sizeof(struct rm_export_dmabuf_old) == 2600, "export to a dma-buf");

/* Controls on a subdevice. */
#define RM_CTRL_GPU_GET_GID_INFO 0x2080014Au
#define RM_CTRL_GPU_GET_PIDS 0x2080018Du
#define RM_CTRL_GPU_GET_PID_INFO 0x2080018Eu
#define RM_CTRL_FIFO_DISABLE_CHANNELS 0x2080110Bu

/* Controls on a channel group. SCHEDULE with enable 0 was seen to do nothing (580.159.04). */
#define RM_CTRL_GPFIFO_SCHEDULE 0xA06C0101u
#define RM_CTRL_SET_TIMESLICE 0xA06C0103u
#define RM_CTRL_GET_TIMESLICE 0xA06C0104u

/* The same on a channel, which may be of any generation. */
#define RM_CTRL_IS_CHANNEL_SCHEDULE(cmd)                                                           \
    (RM_CLASS_IS_CHANNEL((cmd) >> 16) && ((cmd)&0xFFFFu) == 0x0103u)

#define RM_GID_BYTES_MAX 256
#define RM_GID_FLAGS_ASCII 0u
#define RM_PID_INFO_MAX 200
#define RM_PID_INFO_INDEX_VIDEO_MEMORY 0u
#define RM_DISABLE_CHANNELS_MAX 64

/* length counts the string's final zero. */
struct rm_gid_info {
    uint32_t index;
    uint32_t flags;
    uint32_t length;
    uint8_t data[RM_GID_BYTES_MAX];
};

struct rm_pid_info {
    uint32_t pid;    /* in */
    uint32_t index;  /* in: RM_PID_INFO_INDEX_… */
    uint32_t result; /* a status */
    uint32_t pad;
    uint64_t private_bytes;
    uint64_t shared_owned_bytes;
    uint64_t shared_duped_bytes;
    uint64_t protected_private_bytes;
    uint64_t protected_shared_owned_bytes;
    uint64_t protected_shared_duped_bytes;
    uint32_t compute_instance;
    uint32_t gpu_instance;
};

struct rm_pid_info_list {
    uint32_t count;
    uint32_t pad;
    struct rm_pid_info list[RM_PID_INFO_MAX];
};

#define RM_PIDS_MAX 950
#define RM_PIDS_BY_CLASS 0u

/* The processes that have objects on the GPU, in the caller's PID namespace: those that are not in
 * it are left out. class_id RM_CLASS_SUBDEVICE: any objects; all others but MPS's: channels. */
struct rm_pids {
    uint32_t id_type; /* RM_PIDS_BY_CLASS */
    uint32_t class_id;
    uint32_t count; /* out */
    uint32_t pids[RM_PIDS_MAX];
};
_Static_assert(sizeof(struct rm_pids) == 3812, "pids");

/* disable 1 takes the channels off the GPU, 0 lets them run again; needs GSP firmware. */
struct rm_disable_channels {
    uint8_t disable;
    uint8_t pad0[3];
    uint32_t count;
    uint8_t only_disable_scheduling;
    uint8_t rewind_gp_put;
    uint8_t pad1[6];
    uint64_t runlist_preempt_event;
    uint32_t clients[RM_DISABLE_CHANNELS_MAX];
    uint32_t channels[RM_DISABLE_CHANNELS_MAX];
};

struct rm_timeslice {
    uint64_t timeslice_us;
};

struct rm_schedule {
    uint8_t enable;
    uint8_t skip_submit;
    uint8_t skip_enable;
};

_Static_assert(sizeof(struct rm_gid_info) == 268, "GID info");
_Static_assert(sizeof(struct rm_pid_info) == 72, "PID info");
_Static_assert(offsetof(struct rm_pid_info, private_bytes) == 16, "PID info");
_Static_assert(offsetof(struct rm_pid_info, compute_instance) == 64, "PID info");
_Static_assert(sizeof(struct rm_pid_info_list) == 14408, "PID info list");
_Static_assert(offsetof(struct rm_disable_channels, count) == 4, "disable channels");
_Static_assert(
    offsetof(struct rm_disable_channels, only_disable_scheduling) == 8, "disable channels");
_Static_assert(offsetof(struct rm_disable_channels, rewind_gp_put) == 9, "disable channels");
_Static_assert(
    offsetof(struct rm_disable_channels, runlist_preempt_event) == 16, "disable channels");
_Static_assert(offsetof(struct rm_disable_channels, clients) == 24, "disable channels");
_Static_assert(offsetof(struct rm_disable_channels, channels) == 280, "disable channels");
_Static_assert(sizeof(struct rm_disable_channels) == 536, "disable channels");
_Static_assert(sizeof(struct rm_timeslice) == 8, "time slice");
_Static_assert(sizeof(struct rm_schedule) == 3, "schedule");

/* Statuses. */
#define RM_OK 0x00u
#define RM_ERR_BUSY_RETRY 0x03u
#define RM_ERR_INSUFFICIENT_PERMISSIONS 0x1Bu
#define RM_ERR_INVALID_ARGUMENT 0x1Fu
#define RM_ERR_INVALID_CLIENT 0x23u
#define RM_ERR_INVALID_OBJECT_HANDLE 0x33u
#define RM_ERR_NO_MEMORY 0x51u
#define RM_ERR_NOT_SUPPORTED 0x56u
#define RM_ERR_OBJECT_NOT_FOUND 0x57u

#endif
