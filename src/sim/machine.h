/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pretend machine: one shared file that the simulated libcuda, NVML and RM device of all its
 * processes map. This header is what those libraries may call; the file's layout is in
 * machine_layout.h.
 */
#ifndef VGPU_SIM_MACHINE_H
#define VGPU_SIM_MACHINE_H

#include "sim/description.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_WARN_UNUSED __attribute__((warn_unused_result))

/* ---- The machine ---- */

/*
 * Finds or creates the machine and maps it: VGPU_SIM holds the description; the file is its
 * machine=FILE, else VGPU_SIM_MACHINE, else /tmp/vgpu-sim-<uid>-<session id>. The first comer's
 * description shapes the devices. Cheap when done before; any thread. Returns 0 or -errno: -EINVAL
 * description not understood (or at odds with the machine that exists), others from the file. A
 * failure is remembered and said once on stderr. No descriptor stays open. Every other function
 * here needs a successful sim_attach(), unless it says otherwise.
 */
int sim_attach(void) SIM_WARN_UNUSED;

/* This process' own description: behaviours hold per process, the shape (devices) is the machine's.
 * Never NULL. */
const struct sim_description *sim_description(void);

const char *sim_driver_version(void); /* "580.159.04" */
unsigned sim_cuda_version(void);      /* 13000 */

/* ---- Devices: index 0 to count - 1 is the NVML index, and the deviceId of RM class 0x80 ---- */
struct sim_device {
    struct sim_model model;
    char uuid[48];          /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", derived from the index */
    uint8_t uuid_bytes[16]; /* the same, as cuDeviceGetUuid gives it */
    char pci_bus_id[16]; /* "0000:01:00.0": 4-digit domain, upper-case hex, as cuDeviceGetPCIBusId
                            gives it */
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device;
    uint32_t minor; /* of /dev/nvidiaN */
};

unsigned sim_device_count(void);
const struct sim_device *sim_device(unsigned index); /* NULL if there is none; valid for ever */

struct sim_usage {
    uint64_t total_bytes;    /* NVML's total */
    uint64_t reserved_bytes; /* CUDA's total is total - reserved */
    uint64_t used_bytes;     /* given out to objects of all processes */
    uint64_t free_bytes;     /* total - reserved - used */
};
/* What the card has given out now; memory of dead processes is collected first. */
void sim_device_usage(unsigned index, struct sim_usage *ret_usage);

/* ---- RM descriptors ---- */

/*
 * A new descriptor of the machine (close-on-exec), as open("/dev/nvidiactl") or /dev/nvidia<N>
 * would be, or -errno
 * (-EMFILE: no slot left). RM clients allocated through it live until its last duplicate is closed:
 * close(2) frees all, and a forked child that inherited it keeps all. It is only good for ioctl,
 * dup, close, and passing to others.
 */
int sim_rm_open(void) SIM_WARN_UNUSED;

/* Whether fd is a descriptor of the machine. Keeps errno. */
bool sim_rm_is_descriptor(int fd);

/*
 * What the simulated libcuda and NVML use for every RM call: ioctl(2) by its symbol, so that
 * interposers see it; with no-rm (after a try with sandbox=), or where libvgpu-sim-rm.so is not
 * loaded (ENOTTY), the call is executed without any ioctl. Returns 0 with the result in the
 * structure's status, or -1 with errno.
 */
int sim_rm_ioctl(int fd, unsigned long request, void *arg) SIM_WARN_UNUSED;

/* Executes an RM ioctl on the machine, never by ioctl(2). Same result. */
int sim_rm_execute(int fd, unsigned long request, void *arg) SIM_WARN_UNUSED;

/*
 * Maps the memory into the GPU's address space, or no longer (nvidia-uvm's business in the real
 * driver, which takes a handle of its own for it: mapped memory is never private). Freeing the
 * object ends it too.
 */
void sim_memory_map(int fd, uint32_t client, uint32_t object, bool mapped);

/* ---- Processes on a device ---- */
struct sim_process {
    pid_t pid;                   /* that made the RM client; not shifted by nvml-pid=host */
    uint64_t private_bytes;      /* memory with one handle only */
    uint64_t shared_owned_bytes; /* memory with more handles, this process' own */
    uint64_t shared_duped_bytes; /* memory that another process owns (RM_DUP_OBJECT, import) */
    uint64_t busy_ns;            /* GPU time used since the process came */
};
/* Those with a channel group on the device, that is with a context. Fills at most max entries, each
 * pid once, dead ones collected first; returns how many there are in all. */
unsigned sim_device_processes(unsigned index, struct sim_process *ret_processes, unsigned max);

/* ---- Compute timeline: first come, first served per device; times are CLOCK_MONOTONIC in ns ----
 */
uint64_t sim_clock_ns(void);

/*
 * Appends work of duration_ns to the device's queue, to begin no sooner than not_before_ns (the
 * completion of what it follows on its stream; 0 = now). fd is the RM descriptor of the context:
 * when it dies, its work not done yet is dropped and later work moves up (a time of completion
 * given before stays as it was given). Returns the time of completion. UINT64_MAX as duration:
 * never ends (a persistent kernel).
 */
uint64_t sim_work_submit(int fd, unsigned index, uint64_t not_before_ns, uint64_t duration_ns);

/* NVML's view, one sample each 200 ms (seen on H200, driver 580.159.04). Share of the last whole
 * window, 0 to 100. */
#define SIM_SAMPLE_NS 200000000ull
#define SIM_SAMPLES_MAX 72
struct sim_sample {
    uint64_t end_ns;
    pid_t pid; /* the one that ran last in the window: a sample names one process only */
    unsigned busy_percent;
};
unsigned sim_device_utilization(unsigned index);
/* Windows with work in them that ended after since_ns, oldest first; returns how many, at most
 * SIM_SAMPLES_MAX. */
unsigned sim_device_samples(
    unsigned index, uint64_t since_ns, struct sim_sample ret_samples[SIM_SAMPLES_MAX]);

/* ---- Failing on demand, counting ---- */

/*
 * Counts a call of the function (exported name, "cuMemAlloc_v2") and asks whether a fail= rule
 * wants it to fail. True: return *ret_code at once, without any effect (default code: 2 for cu…,
 * 999 for nvml…). Rules count the calls of this process; sim_calls() those of the whole machine.
 * Any thread; cheap. Works without sim_attach() (false).
 */
bool sim_fail(const char *function, uint32_t *ret_code) SIM_WARN_UNUSED;
void sim_count(const char *function); /* counts only, no rule */
uint64_t sim_calls(const char *function);

/* Calls failed on demand are counted as SIM_FAILED and SIM_FAILED " cuMemAlloc_v2" besides. */
#define SIM_FAILED "failed"
void sim_count_failed(const char *function);

/* The calls of all functions whose names begin so: "cu", "nvml", "RM_". */
uint64_t sim_calls_all(const char *prefix);
/* One of them, as it is counted; NULL where there is none. */
const char *sim_called(const char *prefix);

#endif
