/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's records of its allocations: whose a directory is. Root's files, but bounded all the
 * same. */
#include "node/monitor/containers_parts.h"

#include "codec/json_read.h"
#include "net/log_line.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD_BYTES_MAX (1u << 20)
#define NAME "allocation.json"

static int decode(struct containers_record *record, const json_t *json, struct error *error)
{
    int64_t serial = 0;
    int failed = json_read_string(
        NAME, json, "directory", record->directory, sizeof(record->directory), error);
    if (!failed)
        failed = json_read_string(NAME, json, "cache", record->cache, sizeof(record->cache), error);
    if (!failed)
        failed =
            json_read_string(NAME, json, "uid", record->pod_uid, sizeof(record->pod_uid), error);
    if (!failed)
        failed = json_read_string(
            NAME, json, "container", record->container, sizeof(record->container), error);
    if (!failed)
        failed = json_read_int(NAME, json, "serial", 0, INT64_MAX, &serial, error);
    if (!failed && (strchr(record->directory, '/') || strchr(record->cache, '/')))
        failed = error_set(error, EINVAL, NAME ": a name has a slash");
    record->serial = serial;
    /* Without a directory it is of MIG devices, or of an Allocate that was refused. */
    record->valid = !failed && *record->directory && *record->pod_uid && *record->container;
    return failed;
}

static void read_record(struct containers_record *record, const char *path)
{
    struct error error = {.code = 0};
    char *text = NULL;
    size_t bytes;
    record->valid = false;
    int failed = file_read(path, RECORD_BYTES_MAX, &text, &bytes, &record->stamp, &error);
    if (failed == -ENOENT)
        return; /* the plugin makes it last */
    json_t *json = failed ? NULL : json_read_text(NAME, text, &error);
    if (json)
        (void)!decode(record, json, &error);
    if (error.code)
        log_line(LOG_LINE_WARNING, "containers: grants/%s: %s", record->id, error.text);
    json_decref(json);
    free(text);
}

static struct containers_record *find_id(struct containers_records *records, const char *id)
{
    struct containers_record *record;
    SLIST_FOREACH(record, records, next)
    {
        if (!strcmp(record->id, id))
            return record;
    }
    record = calloc(1, sizeof(*record));
    if (!record)
        return NULL;
    snprintf(record->id, sizeof(record->id), "%s", id);
    SLIST_INSERT_HEAD(records, record, next);
    return record;
}

static void look_at(struct containers_records *records, const char *path, const char *id)
{
    char file[PATH_MAX];
    int length = snprintf(file, sizeof(file), "%s/%s/" NAME, path, id);
    struct containers_record *record =
        length < (int)sizeof(file) && strlen(id) < CONTAINERS_NAME_BYTES ? find_id(records, id)
                                                                         : NULL;
    if (!record)
        return;
    record->seen = true;
    if (access(file, F_OK) != 0 && errno == ENOENT) {
        record->valid = false;
        record->stamp = (struct file_stamp){.inode = 0};
        return;
    }
    if (file_stamp_differs(&record->stamp, file) || !record->stamp.inode)
        read_record(record, file);
}

static void drop_unseen(struct containers_records *records)
{
    struct containers_records kept = SLIST_HEAD_INITIALIZER(kept);
    while (!SLIST_EMPTY(records)) {
        struct containers_record *record = SLIST_FIRST(records);
        SLIST_REMOVE_HEAD(records, next);
        if (record->seen)
            SLIST_INSERT_HEAD(&kept, record, next);
        else
            free(record);
    }
    *records = kept;
}

/* Where the directory cannot be read nothing is forgotten, unless it is gone. */
void containers_records_scan(struct containers_records *records, const char *path)
{
    struct containers_record *record;
    DIR *directory = opendir(path);
    size_t count = 0;
    if (!directory && errno != ENOENT)
        return;
    SLIST_FOREACH(record, records, next)
    {
        record->seen = false;
    }
    for (struct dirent *item; directory && count < CONTAINERS_MAX && (item = readdir(directory));) {
        if (item->d_name[0] == '.')
            continue;
        look_at(records, path, item->d_name);
        count++;
    }
    if (directory)
        closedir(directory);
    drop_unseen(records);
}

void containers_records_free(struct containers_records *records)
{
    while (!SLIST_EMPTY(records)) {
        struct containers_record *record = SLIST_FIRST(records);
        SLIST_REMOVE_HEAD(records, next);
        free(record);
    }
}

const struct containers_record *containers_records_find(
    const struct containers_records *records, const char *directory)
{
    const struct containers_record *record, *found = NULL;
    SLIST_FOREACH(record, records, next)
    {
        if (record->valid && !strcmp(record->directory, directory) &&
            (!found || record->serial > found->serial))
            found = record;
    }
    return found;
}
