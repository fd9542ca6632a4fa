/* SPDX-License-Identifier: Apache-2.0 */
/* The processes below this one, looked at from outside while they run: which of them map the
 * driver's libraries, which map ours, and why one does not. Reads /proc alone and stops none. A
 * process that comes and goes between two looks is not seen; one that opens the driver's library or
 * a device of NVIDIA's has a look come at once. */
#ifndef VGPU_DOCTOR_WATCH_H
#define VGPU_DOCTOR_WATCH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WATCH_IMAGES 4096

/* A program in a process: another after each exec. */
struct watch_image {
    pid_t pid;
    unsigned own_pid;    /* in the process's own PID namespace, as its reports have it */
    uint64_t start_time; /* field 22 of /proc/PID/stat */
    uint64_t stack;      /* field 28: changes by exec */
    uint64_t due_ns;     /* of the next look */
    unsigned looks;
    /* What was ever seen. */
    bool cuda, nvml;         /* the driver's libraries are mapped */
    bool device;             /* a device of NVIDIA's is open or mapped */
    bool library;            /* libvgpu.so or libvgpu-control.so is */
    bool hidden;             /* it may not be looked at */
    bool described;          /* the rest is filled in */
    bool is_static, is_musl; /* the program */
    bool secure;             /* with other rights than its caller's */
    bool elsewhere;          /* in another mount namespace, or under another root */
    bool preload_named;      /* its LD_PRELOAD names the library */
    char library_path[256];
    char command[256]; /* its command line, cut */
};

struct watch {
    int fd; /* inotify; -1 none */
    uint64_t eager_until_ns;
    struct watch_image *images; /* WATCH_IMAGES of them */
    size_t count;
    size_t missed; /* for which there was no room */
};

/* Makes this process the one to which orphans below it fall, and begins. Returns 0 or -errno. */
int watch_begin(struct watch *watch) __attribute__((warn_unused_result));

/* A look at what is due; returns in how many milliseconds to come again. `all`: at every process,
 * due or not. */
int watch_look(struct watch *watch, bool all);

/* The image of the process with this pid, as it has it itself, that was seen last; NULL: none. */
const struct watch_image *watch_find(
    const struct watch *watch, unsigned own_pid, uint64_t start_time);

/* Whether the process is still there. */
bool watch_lives(const struct watch_image *image);

void watch_end(struct watch *watch);

/* Fills in what a look finds: see struct watch_image. */
void watch_examine(struct watch_image *image);

#endif
