/* SPDX-License-Identifier: Apache-2.0 */
#include "node/allocation/allocation_files.h"

#include "net/file_read.h"
#include "net/log_line.h"
#include "vgpu/grant.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD "allocation.json"
#define UNNAMED ".new" /* a record that is written and has not got its name */
#define RECORD_BYTES_MAX (4 << 20)

/* Below <hook_path>/vgpu: the files of the next grant, and those that are being made. */
#define SPARE "spare"
#define UNFINISHED "spare.new"
#define CONTAINER "container" /* in a spare: the container's directory */

__attribute__((format(printf, 2, 3))) static int print_path(
    char path[ALLOCATION_PATH_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path, ALLOCATION_PATH_BYTES, format, arguments);
    va_end(arguments);
    return length < 0 || length >= ALLOCATION_PATH_BYTES ? -ENAMETOOLONG : 0;
}

int allocation_files_paths(const char *hook_path, const struct allocation_record *record,
    struct allocation_paths *ret_paths, struct error *error)
{
    struct allocation_paths paths;
    if (print_path(paths.grant, "%s/vgpu/grants/%s", hook_path, record->id) ||
        print_path(paths.limits, "%s/limits.d", paths.grant) ||
        print_path(paths.account, "%s/account", paths.grant) ||
        print_path(paths.directory, "%s/vgpu/containers/%s", hook_path,
            record->directory ? record->directory : ""))
        return error_set(error, ENAMETOOLONG, "HOOK_PATH %s is too long", hook_path);
    *ret_paths = paths;
    return 0;
}

static int failed(struct error *error, const char *what, const char *path)
{
    return error_set(error, errno, "cannot %s %s: %s", what, path, strerror(errno));
}

/* With exactly this mode, whatever the umask. */
static int make_directory(const char *path, mode_t mode, struct error *error)
{
    if (mkdir(path, mode) != 0 && errno != EEXIST)
        return failed(error, "make", path);
    return chmod(path, mode) ? failed(error, "set the mode of", path) : 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    (void)remove(path);
    return 0;
}

/* No symbolic link is followed, and no other file system entered. */
static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Makes an empty file, or finds one that was made ahead. */
static int make_account(const char *path, struct error *error)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return failed(error, "make", path);
    int result = fchmod(fd, 0666) ? failed(error, "set the mode of", path) : 0;
    close(fd);
    return result;
}

static int make_region(const struct allocation_paths *paths, const char *cache, struct error *error)
{
    char path[ALLOCATION_PATH_BYTES];
    if (print_path(path, "%s/%s", paths->directory, cache))
        return error_set(error, ENAMETOOLONG, "%s/%s is too long", paths->directory, cache);
    int result = make_account(paths->account, error);
    if (!result && link(paths->account, path) != 0)
        result = failed(error, "link", path);
    return result;
}

static int make_parents(const char *hook_path, struct error *error)
{
    char path[ALLOCATION_PATH_BYTES];
    static const char *const names[] = {"", "/containers", "/grants"};
    for (size_t i = 0; i < 3; i++) {
        if (print_path(path, "%s/vgpu%s", hook_path, names[i]))
            return error_set(error, ENAMETOOLONG, "HOOK_PATH %s is too long", hook_path);
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            return failed(error, "make", path);
    }
    return 0;
}

/* The files of a grant, as far as they do not depend on whose it is. */
static int make_grant(const char *path, struct error *error)
{
    char limits[ALLOCATION_PATH_BYTES], account[ALLOCATION_PATH_BYTES];
    if (print_path(limits, "%s/limits.d", path) || print_path(account, "%s/account", path))
        return error_set(error, ENAMETOOLONG, "%s is too long", path);
    int result = make_directory(path, 0755, error);
    if (!result)
        result = make_directory(limits, 0755, error);
    return result ? result : make_account(account, error);
}

/* Another plugin on the node may take it first: then all of it is made now. */
static void take_spare(const char *hook_path, const char *grant)
{
    char spare[ALLOCATION_PATH_BYTES];
    if (!print_path(spare, "%s/vgpu/" SPARE, hook_path))
        (void)rename(spare, grant);
}

/* For what is written later; where it fails, it is made then. */
static void make_empty(const char *directory, const char *name, mode_t mode)
{
    char path[ALLOCATION_PATH_BYTES];
    if (print_path(path, "%s/%s", directory, name))
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd >= 0)
        close(fd);
}

void allocation_files_prepare(const char *hook_path)
{
    char spare[ALLOCATION_PATH_BYTES], made[ALLOCATION_PATH_BYTES], path[ALLOCATION_PATH_BYTES];
    struct error error;
    if (print_path(spare, "%s/vgpu/" SPARE, hook_path) ||
        print_path(made, "%s/vgpu/" UNFINISHED, hook_path) || access(spare, F_OK) == 0)
        return;
    if (make_grant(made, &error))
        return; /* the next Allocate meets it, and says so */
    if (!print_path(path, "%s/" CONTAINER, made) && make_directory(path, 0777, &error))
        return;
    make_empty(made, "limits.d/" VGPU_GRANT_NAME, 0644);
    make_empty(made, RECORD UNNAMED, 0600);
    /* One that another plugin made meanwhile does as well. */
    (void)rename(made, spare);
}

int allocation_files_make(
    const char *hook_path, const struct allocation_record *record, struct error *error)
{
    struct allocation_paths paths;
    char ready[ALLOCATION_PATH_BYTES];
    int result = allocation_files_paths(hook_path, record, &paths, error);
    if (!result)
        result = make_parents(hook_path, error);
    if (result)
        return result;
    if (!record->limited)
        return make_directory(paths.grant, 0755, error);
    take_spare(hook_path, paths.grant);
    result = make_grant(paths.grant, error);
    if (result)
        return result;
    remove_tree(paths.directory);
    if (print_path(ready, "%s/" CONTAINER, paths.grant) || rename(ready, paths.directory) != 0)
        result = make_directory(paths.directory, 0777, error);
    return result ? result : make_region(&paths, record->cache, error);
}

static int sync_directory(const char *path, struct error *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return failed(error, "open", path);
    int result = fsync(fd) ? failed(error, "write out", path) : 0;
    close(fd);
    return result;
}

static int write_text(const char *path, const char *text, struct error *error)
{
    size_t bytes = strlen(text), done = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return failed(error, "make", path);
    while (done < bytes) {
        ssize_t wrote = write(fd, text + done, bytes - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            break;
        done += (size_t)wrote;
    }
    int result = done < bytes || fsync(fd) != 0 ? failed(error, "write", path) : 0;
    close(fd);
    return result;
}

int allocation_files_save(
    const char *hook_path, const struct allocation_record *record, struct error *error)
{
    struct allocation_paths paths;
    char path[ALLOCATION_PATH_BYTES], made[ALLOCATION_PATH_BYTES];
    int result = allocation_files_paths(hook_path, record, &paths, error);
    if (result)
        return result;
    if (print_path(path, "%s/" RECORD, paths.grant) || print_path(made, "%s" UNNAMED, path))
        return error_set(error, ENAMETOOLONG, "HOOK_PATH %s is too long", hook_path);
    json_t *object = allocation_record_encode(record);
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    result = text ? write_text(made, text, error)
                  : error_set(error, ENOMEM, RECORD ": no memory, or a text that is not UTF-8");
    free(text);
    json_decref(object);
    if (!result && rename(made, path) != 0)
        result = failed(error, "rename", made);
    return result;
}

int allocation_files_sync(
    const char *hook_path, const struct allocation_record *record, struct error *error)
{
    struct allocation_paths paths;
    char grants[ALLOCATION_PATH_BYTES];
    int result = allocation_files_paths(hook_path, record, &paths, error);
    if (!result && print_path(grants, "%s/vgpu/grants", hook_path))
        result = error_set(error, ENAMETOOLONG, "HOOK_PATH %s is too long", hook_path);
    if (!result)
        result = sync_directory(paths.grant, error);
    return result ? result : sync_directory(grants, error);
}

void allocation_files_remove(const char *hook_path, const struct allocation_record *record)
{
    struct allocation_paths paths;
    char path[ALLOCATION_PATH_BYTES];
    if (allocation_files_paths(hook_path, record, &paths, NULL))
        return;
    /* The record first: what has none is removed at the next start. */
    static const char *const names[] = {RECORD UNNAMED, RECORD};
    for (size_t i = 0; i < 2; i++)
        if (!print_path(path, "%s/%s", paths.grant, names[i]))
            (void)unlink(path);
    remove_tree(paths.grant);
}

static bool is_id(const char *name)
{
    return strlen(name) == ALLOCATION_ID_BYTES - 1 &&
           strspn(name, "0123456789abcdef") == ALLOCATION_ID_BYTES - 1;
}

/* A loss of power may take the name back, not the file: one that is whole is the record. */
static void name_whole(const char *path)
{
    char made[ALLOCATION_PATH_BYTES], *text;
    size_t bytes;
    if (print_path(made, "%s" UNNAMED, path) ||
        file_read(made, RECORD_BYTES_MAX, &text, &bytes, NULL, NULL))
        return;
    json_t *object = json_loadb(text, bytes, 0, NULL);
    if (object)
        (void)rename(made, path);
    json_decref(object);
    free(text);
}

static struct allocation_record *load_one(const char *grants, const char *id)
{
    char directory[ALLOCATION_PATH_BYTES], path[ALLOCATION_PATH_BYTES], *text = NULL;
    struct allocation_record *record = NULL;
    struct error error = {.text = "the path is too long"};
    size_t bytes;
    if (print_path(directory, "%s/%s", grants, id) || print_path(path, "%s/" RECORD, directory))
        return NULL;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        name_whole(path);
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        log_line(LOG_LINE_INFO, "allocation: %s was not finished; it is removed", id);
        remove_tree(directory);
        return NULL;
    }
    int result = file_read(path, RECORD_BYTES_MAX, &text, &bytes, NULL, &error);
    json_error_t where;
    json_t *object = result ? NULL : json_loadb(text, bytes, 0, &where);
    if (!result && !object)
        result = error_set(&error, EINVAL, "not JSON: %s", where.text);
    if (!result)
        result = allocation_record_decode(object, &record, &error);
    if (!result && strcmp(record->id, id) != 0) {
        result = error_set(&error, EINVAL, "it is of another allocation");
        allocation_record_destroy(record);
    }
    json_decref(object);
    free(text);
    if (result)
        log_line(LOG_LINE_WARNING, "allocation: %s is left alone: %s", path, error.text);
    return result ? NULL : record;
}

static int compare_serials(const void *a, const void *b)
{
    const struct allocation_record *const *x = a, *const *y = b;
    return (*x)->serial < (*y)->serial ? -1 : (*x)->serial > (*y)->serial;
}

static int read_all(const char *grants, struct allocation_record ***ret_list, size_t *ret_count,
    struct error *error)
{
    struct allocation_record **list = NULL;
    size_t count = 0;
    int result = 0;
    DIR *directory = opendir(grants);
    if (!directory)
        return failed(error, "open", grants);
    for (struct dirent *entry; !result && (entry = readdir(directory));) {
        struct allocation_record *record =
            is_id(entry->d_name) ? load_one(grants, entry->d_name) : NULL;
        struct allocation_record **grown =
            record ? reallocarray(list, count + 1, sizeof(struct allocation_record *)) : list;
        if (record && !grown) {
            allocation_record_destroy(record);
            result = error_set(error, ENOMEM, "%s: no memory", grants);
        } else if (record) {
            list = grown;
            list[count++] = record;
        }
    }
    closedir(directory);
    *ret_list = list;
    *ret_count = count;
    return result;
}

/* What a daemon that was killed left half made. */
static void remove_unfinished(const char *hook_path)
{
    char path[ALLOCATION_PATH_BYTES];
    if (!print_path(path, "%s/vgpu/" UNFINISHED, hook_path))
        remove_tree(path);
}

int allocation_files_load(const char *hook_path,
    void (*take)(void *context, struct allocation_record *record), void *context,
    struct error *error)
{
    char grants[ALLOCATION_PATH_BYTES];
    struct allocation_record **list = NULL;
    size_t count = 0;
    int result = make_parents(hook_path, error);
    remove_unfinished(hook_path);
    if (!result && print_path(grants, "%s/vgpu/grants", hook_path))
        result = error_set(error, ENAMETOOLONG, "HOOK_PATH %s is too long", hook_path);
    if (!result)
        result = read_all(grants, &list, &count, error);
    if (count)
        qsort(list, count, sizeof(struct allocation_record *), compare_serials);
    for (size_t i = 0; i < count; i++) {
        if (result)
            allocation_record_destroy(list[i]);
        else
            take(context, list[i]);
    }
    free(list);
    return result;
}

static void random_bytes(unsigned char *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = getrandom(bytes + done, size - done, 0);
        if (got > 0)
            done += (size_t)got;
    }
}

void allocation_files_random_id(char id[ALLOCATION_ID_BYTES])
{
    unsigned char bytes[16];
    random_bytes(bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
}

void allocation_files_random_uuid(char uuid[37])
{
    char id[ALLOCATION_ID_BYTES];
    static const char variants[] = "89ab";
    allocation_files_random_id(id);
    id[12] = '4';
    id[16] = variants[(unsigned char)id[16] & 3];
    snprintf(uuid, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", id, id + 8, id + 12, id + 16, id + 20);
}
