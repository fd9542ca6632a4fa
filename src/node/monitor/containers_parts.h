/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the containers share. For containers*.c alone. */
#ifndef VGPU_NODE_MONITOR_CONTAINERS_PARTS_H
#define VGPU_NODE_MONITOR_CONTAINERS_PARTS_H

#include "net/file_read.h"
#include "node/monitor/containers.h"

#include <limits.h>
#include <sys/queue.h>
#include <sys/stat.h>

#define CONTAINERS_NAME_BYTES 256
#define CONTAINERS_LINES_MAX 8 /* about one container */

/* What the plugin has written about an allocation. */
struct containers_record {
    SLIST_ENTRY(containers_record) next;
    char id[CONTAINERS_NAME_BYTES];
    struct file_stamp stamp;
    bool seen, valid;
    int64_t serial; /* of two that name the same directory the later one counts */
    char directory[CONTAINERS_NAME_BYTES], cache[CONTAINERS_NAME_BYTES];
    char pod_uid[CONTAINERS_NAME_BYTES], container[CONTAINERS_NAME_BYTES];
};
SLIST_HEAD(containers_records, containers_record);

/* Reads `path` (<hook_path>/grants) anew as far as it has changed. */
void containers_records_scan(struct containers_records *records, const char *path);
void containers_records_free(struct containers_records *records);
/* NULL: none. */
const struct containers_record *containers_records_find(
    const struct containers_records *records, const char *directory);

struct containers_entry {
    struct container container;
    char directory[CONTAINERS_NAME_BYTES];
    char grant[CONTAINERS_NAME_BYTES];
    char uid[CONTAINERS_NAME_BYTES], name[CONTAINERS_NAME_BYTES];
    char file[CONTAINERS_NAME_BYTES]; /* of the region in the directory; "": none found */
    struct stat file_status;          /* of the open file */
    struct timespec changed;          /* the directory, when its files were last looked for */
    bool seen;
    bool removing; /* some of its files are gone already */
    unsigned lines;
    int last_error;
};

struct containers {
    char hook_path[PATH_MAX], path[PATH_MAX], grants_path[PATH_MAX];
    struct containers_records records;
    struct containers_entry **entries;
    size_t count, room;
    bool said_many;
    uint64_t removed;
    unsigned removal_lines;
};

/* Closes the region's file. */
void containers_close(struct containers_entry *entry);
/* Takes the entry out and frees it. */
void containers_drop(struct containers *containers, size_t at);

#endif
