/* SPDX-License-Identifier: Apache-2.0 */
/* The files of an allocation on the node, below `<hook_path>/vgpu`:
 *   containers/<directory>/          0777, the container's own; its region `<cache>`, 0666
 *   grants/<id>/                     0755, root's
 *     limits.d/grant                 mounted read-only at /etc/vgpu/limits.d
 *     account                        the region's second name, mounted at /etc/vgpu/account: what
 *                                    is mounted stays when the container deletes the first
 *     allocation.json                the record; what has none is no allocation
 *   spare/                           the next grant's files, made ahead
 * Blocking calls on local files. */
#ifndef VGPU_NODE_ALLOCATION_FILES_H
#define VGPU_NODE_ALLOCATION_FILES_H

#include "net/error.h"
#include "node/allocation/allocation_record.h"

#include <stddef.h>

#define ALLOCATION_PATH_BYTES 1280

/* Of grants/<id>, of limits.d and account in it, and of the container's directory. */
struct allocation_paths {
    char grant[ALLOCATION_PATH_BYTES], limits[ALLOCATION_PATH_BYTES],
        account[ALLOCATION_PATH_BYTES];
    char directory[ALLOCATION_PATH_BYTES];
};

/* -ENAMETOOLONG where a path does not fit. */
int allocation_files_paths(const char *hook_path, const struct allocation_record *record,
    struct allocation_paths *ret_paths, struct error *error) __attribute__((warn_unused_result));

/* Makes all of it but the grant file and the record. What lies in the container's directory is
 * removed. On failure the caller removes what was made (allocation_files_remove). */
int allocation_files_make(const char *hook_path, const struct allocation_record *record,
    struct error *error) __attribute__((warn_unused_result));

/* Makes ahead what the next allocation_files_make needs (on ext4 a new file takes 0.15 ms and a
 * directory 0.2 to 0.4 ms), unless it is there. Whatever fails is made by that call. */
void allocation_files_prepare(const char *hook_path);

/* Writes the record: all, or what was before. Its content is on the disk when this returns, and on
 * ext4, XFS and btrfs its name too, if it is new; elsewhere after allocation_files_sync. */
int allocation_files_save(const char *hook_path, const struct allocation_record *record,
    struct error *error) __attribute__((warn_unused_result));

/* The names on the disk, too: two waits for it that nobody needs to wait for. */
int allocation_files_sync(const char *hook_path, const struct allocation_record *record,
    struct error *error) __attribute__((warn_unused_result));

/* Removes grants/<id>. The container's directory is the monitor's to remove. */
void allocation_files_remove(const char *hook_path, const struct allocation_record *record);

/* Reads all records, oldest first. What has no record is removed: its Allocate was never answered.
 * A record that cannot be read stays, with a line in the log. */
int allocation_files_load(const char *hook_path,
    void (*take)(void *context, struct allocation_record *record), void *context,
    struct error *error) __attribute__((warn_unused_result));

/* 32 hexadecimal digits, and a UUID of version 4. */
void allocation_files_random_id(char id[ALLOCATION_ID_BYTES]);
void allocation_files_random_uuid(char uuid[37]);

#endif
