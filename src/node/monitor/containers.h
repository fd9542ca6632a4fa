/* SPDX-License-Identifier: Apache-2.0 */
/* The containers of this node by their directories, `<hook_path>/containers/<name>/` (hook_path is
 * /usr/local/vgpu as a rule), and the region in each. The name is `<Pod's UID>_<container>`, or an
 * opaque id where it was not known yet whose the devices are; vgpu-device-plugin's record of the
 * allocation, `<hook_path>/grants/<id>/allocation.json`, tells then, and always wins. What lies in
 * a directory is the container's to write, and may be anything: a symbolic link, a pipe or a device
 * is not opened, a file that is no region gets one line.
 *
 * Calls are made in the loop's thread, and block for as long as local files take. */
#ifndef VGPU_NODE_MONITOR_CONTAINERS_H
#define VGPU_NODE_MONITOR_CONTAINERS_H

#include "net/error.h"
#include "node/monitor/hami_region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTAINERS_MAX 4096

struct containers;
struct pod_names;

struct container {
    const char *directory; /* its name below containers/ */
    const char *grant;     /* name of its directory below grants/, NULL where it has none */
    const char *pod_uid, *container_name; /* NULL: not known */
    int fd;                               /* of the region's file, -1: there is none yet */
    bool may_write;                       /* it is open for writing as well */
    enum hami_region_kind kind;           /* HAMI_REGION_NONE: nothing is in it yet */
};

/* NULL without memory, or where the path is too long. */
struct containers *containers_create(const char *hook_path, struct error *error);
void containers_destroy(struct containers *containers);

/* Looks at all directories. What was there before keeps its place as long as it is there. */
void containers_scan(struct containers *containers);

size_t containers_count(const struct containers *containers);
/* Valid until the next scan or removal. */
const struct container *containers_at(const struct containers *containers, size_t at);

/* The directory of the container's grant file, for region/grant_write.h; false: it has none. */
bool containers_grant_path(const struct containers *containers, const struct container *container,
    char *path, size_t size);

/* Says once in one line that something is wrong with the container's region: `what` failed. */
void containers_report(
    struct containers *containers, const struct container *container, const char *what, int error);

/* Removes the directories of containers whose Pod is gone from the API, that have not changed for
 * `age_s` seconds and in which no process lives. Only where the node's Pods have been known for
 * that long, or 10 s where that is less. A limited number of files at a time; more with the next
 * call. Grants are the plugin's to remove. */
void containers_remove_gone(
    struct containers *containers, const struct pod_names *names, uint64_t age_s);

/* For metrics: how many directories were removed so far. */
uint64_t containers_removed(const struct containers *containers);

#endif
