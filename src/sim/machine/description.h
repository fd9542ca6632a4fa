/* SPDX-License-Identifier: Apache-2.0 */
/* The text that describes a pretend machine (VGPU_SIM): its words and what they ask for. Pure
 * parsing. */
#ifndef VGPU_SIM_MACHINE_DESCRIPTION_H
#define VGPU_SIM_MACHINE_DESCRIPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_DEVICES_MAX 16
#define SIM_RULES_MAX 32

/* One kind of device. Sizes in bytes. */
struct sim_model {
    char name[64];
    uint64_t memory_bytes;   /* what NVML calls total */
    uint64_t reserved_bytes; /* kept by the driver and firmware, never given out */
    uint32_t multiprocessors;
    uint32_t compute_major;
    uint32_t compute_minor;
    uint32_t threads_per_multiprocessor;
    uint32_t clock_khz;
    uint32_t memory_clock_khz;
    uint32_t memory_bus_bits;
    uint32_t power_limit_mw;
    uint32_t pci_device_id; /* as NVML gives it: device << 16 | vendor */
    uint32_t architecture;  /* nvmlDeviceArchitecture_t */
    uint64_t l2_cache_bytes;
    uint64_t mig_card; /* of a MIG compute instance: its card's index + 1; 0: a card. 64 bits, as
                          models are compared whole and have no padding */
};

enum sim_nvml_pid {
    SIM_NVML_PID_OWN,  /* the pid that the process itself knows */
    SIM_NVML_PID_NONE, /* NVML knows no process, as from a sibling pid namespace */
    SIM_NVML_PID_HOST, /* other pids than the processes know: pid + SIM_NVML_PID_HOST_SHIFT */
};
#define SIM_NVML_PID_HOST_SHIFT 1000000u

/* How libcuda asks for device memory. */
enum sim_rm_form {
    SIM_RM_FORM_ALLOC,        /* RM_ALLOC */
    SIM_RM_FORM_ALLOC_MEMORY, /* RM_ALLOC_MEMORY */
    SIM_RM_FORM_VID_HEAP,     /* RM_VID_HEAP_CONTROL */
};

enum sim_rule_kind {
    SIM_RULE_FUNCTION,  /* fail=FUNCTION: a driver API or NVML function, by exported name */
    SIM_RULE_RM_NUMBER, /* rm-status=…@NUMBER: an RM class (RM_ALLOC) or command (RM_CONTROL) */
    SIM_RULE_RM_FREE,   /* rm-status=…@free */
    SIM_RULE_RM_DUP,    /* rm-status=…@dup */
    SIM_RULE_API,       /* fail=cu#NTH, fail=nvml#NTH: whichever function of the API */
    SIM_RULE_RM,        /* rm-status=…@#NTH: whichever RM call */
};

/* A failure on demand. nth counts from 1 within a process; 0 means every call. */
struct sim_rule {
    enum sim_rule_kind kind;
    char function[64]; /* of SIM_RULE_API: how the names of its functions begin */
    uint32_t number;
    uint32_t nth;
    uint32_t code;
    bool has_code; /* false: the default of the API, see sim_fail() */
};

struct sim_description {
    struct sim_model devices[SIM_DEVICES_MAX]; /* cards, then instances of those in MIG mode */
    uint32_t device_count;                     /* cards */
    uint32_t instance_count;
    bool shape_given; /* the text named devices, sizes or versions: a machine that exists must agree
                       */
    char driver_version[32];
    uint32_t cuda_version;   /* 13000 = 13.0 */
    uint64_t context_bytes;  /* device memory that a context takes by itself */
    uint64_t unlisted_bytes; /* that the card holds for each process in no process's name */
    char machine_path[512];  /* empty: not named */

    bool no_rm;        /* the RM device answers nothing; libcuda takes memory without ioctls */
    int sandbox_errno; /* with no_rm: what ioctl answers, libcuda having tried it first; or 0 */
    int filter_errno;  /* what the RM answers to controls that libcuda does not need; or 0 */
    bool nvos21;       /* libcuda uses the older, 32-byte RM_ALLOC */
    bool xfer;         /* … wraps its RM calls */
    bool long_params;  /* … gives parameters of RM_ALLOC that are longer than known */
    bool long_calls;   /* … gives RM_ALLOC itself so */
    bool new_objects;  /* … makes objects and calls of numbers that no header has yet */
    bool mps;          /* … has no channels of its own: they are the MPS server's */
    bool no_gsp;       /* the RM cannot disable channels */
    bool vgpu_guest;   /* neither RM nor NVML tell what a process holds */
    bool checkpoint;   /* libcuda has a thread that takes checkpoint calls, which it has as well */
    bool failed_work;  /* destroying a context ends it, and reports that its work failed */
    enum sim_rm_form memory_form;
    uint32_t memory_class; /* that device memory is allocated as; 0: the known one */
    uint32_t vmm_class;    /* … that of cuMemCreate */
    bool no_procaddress;   /* no cuGetProcAddress in libcuda */
    bool no_async;         /* no stream-ordered allocator */
    bool no_vmm;           /* no virtual memory management API */
    bool other_pointers;   /* cuGetProcAddress answers with other pointers than dlsym */
    enum sim_nvml_pid nvml_pid;
    uint32_t nvml_pid_inner; /* NVML gives this process nvml_pid_outer's number; 0: none */
    uint32_t nvml_pid_outer;
    bool accounting;   /* NVML keeps accounts of processes */
    bool video;        /* … and has each of them encode and capture */
    bool confidential; /* … and all of the card's memory is protected */

    struct sim_rule rules[SIM_RULES_MAX];
    uint32_t rule_count;
};

/*
 * Parses text (NULL and "" mean one H200) into *ret_description. Returns 0, or -EINVAL with one
 * line (no newline) in error that names the word and what is accepted; *ret_description is then
 * untouched. Does not allocate or print.
 */
int sim_description_parse(const char *text, struct sim_description *ret_description, char *error,
    size_t error_size) __attribute__((warn_unused_result));

#endif
