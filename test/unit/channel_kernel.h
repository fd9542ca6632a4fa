/* SPDX-License-Identifier: Apache-2.0 */
/* A pretend kernel module with channel groups and channels, which answers as NVIDIA's does and
 * records who was disabled; and the calls by which a driver makes them, through rm_memory_ioctl. */
#ifndef VGPU_TEST_CHANNEL_KERNEL_H
#define VGPU_TEST_CHANNEL_KERNEL_H

#include "rm/rm_memory.h"

#include "abi/rm.h"
#include "check.h"

#define CLIENT 0xc1d00001u
#define CLIENT_2 0xc1d00002u
#define DEVICE 0x10u /* its UUID, and with it the region's index, by the device's number */
#define SUBDEVICE 0x11u
#define DEVICE_2 0x20u
#define SUBDEVICE_2 0x21u
#define GROUP 0x100u
#define GROUP_COPY 0x101u
#define GROUP_2 0x102u
#define CHANNELS 0x1000u /* and on */
#define CHANNELS_COPY 0x2000u
#define CHANNELS_2 0x3000u
#define SLICE_US 2048

struct channel_kernel {
    /* What is to go wrong. */
    uint32_t status;         /* of the next allocation or free, then RM_OK */
    uint32_t disable_status; /* of each disabling; enabling goes well */
    uint32_t enable_status;  /* of the next enable_failures enablings */
    unsigned enable_failures;
    uint32_t list_status;  /* of each list of more than one channel … */
    bool list_in_part;     /* a list that is refused has its first half switched all the same */
    uint32_t bad_channel;  /* in a list, it answers … */
    uint32_t bad_status;   /* … this */
    uint32_t slice_status; /* of the controls on time slices */
    bool nameless;         /* GPUs are not told */
    int error;             /* the next `errors` controls fail with this errno */
    unsigned errors;
    unsigned slow_ms;     /* each switch takes this long */
    void (*during)(void); /* called amid the next switch */
    /* What was seen. */
    unsigned controls;                        /* of switches and time slices */
    unsigned switches, longest_list, unknown; /* unknown: lists with a handle that is not there */
    bool first_switches[4];                   /* whether each disabled */
    int last_fd;
};
extern struct channel_kernel kernel;

int kernel_ioctl(int fd, unsigned long request, void *argument);

unsigned kernel_disabled(void); /* channels that are */
bool kernel_is_disabled(uint32_t client, uint32_t channel);
uint64_t kernel_slice_us(uint32_t client, uint32_t group);
void kernel_forget(uint32_t client); /* freed where nobody saw it */

extern int kernel_fd; /* on which the calls below are made */

/* As a driver: they answer the status. */
uint32_t kernel_allocate(uint32_t client, uint32_t parent, uint32_t object, uint32_t class_id);
uint32_t kernel_allocate_group(uint32_t client, uint32_t parent, uint32_t object, uint32_t engine);
uint32_t kernel_free(uint32_t client, uint32_t object);
uint32_t kernel_control(uint32_t client, uint32_t object, uint32_t command);

/* `count` channels with the handles first and on. */
void kernel_allocate_channels(uint32_t client, uint32_t group, uint32_t first, unsigned count);

/* A process in a container of its own, with a client, a device and a subdevice; and with `count`
 * channels below a compute group, two below one of a copy engine. */
void kernel_begin(void);
void kernel_begin_channels(unsigned count);
/* A client with a device of that number (0 or 1), subdevice and compute group of `count` channels
 * from `first` on. */
void kernel_add_client(uint32_t client, uint32_t device_handle, unsigned number, uint32_t group,
    uint32_t first, unsigned count);

#endif
