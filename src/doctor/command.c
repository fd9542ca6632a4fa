/* SPDX-License-Identifier: Apache-2.0 */
/* The command, the directory for its processes' reports, and the page at its end. */
#include "doctor/command.h"

#include "base/report_place.h"
#include "doctor/print.h"
#include "doctor/watch.h"
#include "doctor/witnesses.h"
#include "host/child.h"
#include "host/glob.h"
#include "host/json_write.h"
#include "host/say.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIRECTORY_PATTERN "/tmp/vgpu-doctor-"

/* ---- the directory ---- */

static void remove_directory(const char *path)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(directory), entry->d_name, 0) != 0)
            (void)unlinkat(dirfd(directory), entry->d_name, AT_REMOVEDIR);
    }
    if (directory)
        closedir(directory);
    (void)rmdir(path);
}

static int lock_directory(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* What doctors left that were killed: the lock is free. */
static void sweep_left_over(void)
{
    glob_t found = {0};
    (void)glob(DIRECTORY_PATTERN "??????", GLOB_NOSORT, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int fd = lock_directory(found.gl_pathv[i]);
        if (fd < 0)
            continue;
        remove_directory(found.gl_pathv[i]);
        close(fd);
    }
    globfree(&found);
}

/* The lock's descriptor, or -1 after one line. Where we are root, processes of other users below us
 * may leave reports, too. */
static int make_directory(char *path)
{
    if (!mkdtemp(path)) {
        say_error("cannot make %s: %s", path, strerror(errno));
        return -1;
    }
    int fd = lock_directory(path);
    if (geteuid() == 0)
        (void)chmod(path, 01733);
    setenv(REPORT_DIRECTORY_VARIABLE, path, 1);
    return fd;
}

/* ---- the page ---- */

static const char *const verdict_words[] = {[VERDICT_HOLD] = "hold",
    [VERDICT_BROKEN] = "broken",
    [VERDICT_UNLIMITED] = "unlimited",
    [VERDICT_UNUSED] = "unused"};

static void add_verdict(
    struct checks *checks, enum doctor_verdict verdict, const struct witnesses *witnesses)
{
    static const struct {
        enum check_status status;
        const char *text, *remedy;
    } lines[] = {[VERDICT_HOLD] = {CHECK_FINE, "limits hold in it: yes", NULL},
        [VERDICT_BROKEN] = {CHECK_PROBLEM, "limits hold in it: no", "see the lines below"},
        [VERDICT_UNLIMITED] = {CHECK_NOTE,
            "limits hold in it: they would, but none is set for all that it used",
            "vgpu run --memory SIZE --cores PERCENT -- COMMAND sets one"},
        [VERDICT_UNUSED] = {CHECK_NOTE, "limits hold in it: not tried, it used no GPU",
            "run a command that uses the GPU"}};
    char left[64] = "", many[64] = "";
    if (witnesses->left)
        snprintf(
            left, sizeof(left), "; %zu still run, and were watched until now", witnesses->left);
    if (witnesses->incomplete)
        snprintf(many, sizeof(many), "; there were too many to look at all");
    check_add(checks, "verdict", -1, lines[verdict].status, lines[verdict].remedy,
        "%s (%zu process%s seen%s%s)", lines[verdict].text, witnesses->seen,
        witnesses->seen == 1 ? "" : "es", left, many);
}

static void json_witness(struct json *json, const struct witness *witness)
{
    const struct facts *facts = witness->facts;
    const struct watch_image *image = witness->image;
    json_write_begin_object(json, NULL);
    json_write_number(json, "pid", witness->pid);
    json_write_string(json, "command", witness->command);
    json_write_bool(json, "library", facts || (image && image->library));
    json_write_string(json, "library_path", image && image->library ? image->library_path : NULL);
    json_write_bool(json, "libcuda", image && image->cuda);
    json_write_bool(json, "limited", witness->limited);
    if (facts) {
        json_write_begin_object(json, "facts");
        for (size_t i = 0; i < facts->count; i++)
            json_write_string(json, facts->list[i].name, facts->list[i].value);
        json_write_end_inner(json);
    } else {
        json_write_null(json, "facts");
    }
    json_write_end_inner(json);
}

static void print_json(FILE *stream, const struct checks *checks, enum doctor_verdict verdict,
    const struct witnesses *witnesses, const struct child_end *end)
{
    struct json json;
    json_write_begin(&json, stream);
    json_write_number(&json, "doctor", 1);
    json_write_string(&json, "verdict", verdict_words[verdict]);
    if (WIFEXITED(end->status))
        json_write_number(&json, "exit_status", (unsigned)WEXITSTATUS(end->status));
    else
        json_write_number(&json, "signal", (unsigned)WTERMSIG(end->status));
    json_write_number(&json, "processes_seen", witnesses->seen);
    json_write_number(&json, "processes_left", witnesses->left);
    json_write_bool(&json, "incomplete", witnesses->incomplete);
    doctor_print_json_checks(&json, checks);
    json_write_begin_array(&json, "processes");
    for (size_t i = 0; i < witnesses->count; i++)
        json_witness(&json, &witnesses->list[i]);
    json_write_end_inner(&json);
    json_write_end(&json);
}

/* The verdict comes first, the lines that it is made of after it. */
static enum doctor_verdict report(const struct doctor_options *options, FILE *stream,
    const struct watch *watch, const char *directory, const struct child_end *end)
{
    static struct checks lines, checks;
    struct witnesses witnesses;
    doctor_gather(watch, directory, &witnesses);
    enum doctor_verdict verdict = doctor_judge(&lines, &witnesses);
    add_verdict(&checks, verdict, &witnesses);
    for (size_t i = 0; i < lines.count; i++)
        check_add(&checks, lines.list[i].name, lines.list[i].device, lines.list[i].status,
            lines.list[i].remedy, "%s", lines.list[i].text);
    if (options->json)
        print_json(stream, &checks, verdict, &witnesses, end);
    else
        doctor_print(stream, &checks);
    doctor_gather_free(&witnesses);
    return verdict;
}

/* ---- the command ---- */

static int look(void *context)
{
    return watch_look(context, false);
}

/* Before the command starts: a page that cannot be written would be known too late. */
static FILE *open_output(const struct doctor_options *options)
{
    if (!options->output)
        return stderr;
    FILE *stream = fopen(options->output, "we");
    if (!stream)
        say_error("cannot write --output \"%.256s\": %s", options->output, strerror(errno));
    return stream;
}

static int run_watched(
    const struct doctor_options *options, const char *directory, FILE *stream, struct watch *watch)
{
    struct child_end end = {0};
    struct child_watch watcher = {.fd = watch->fd, .look = look, .context = watch};
    int status = child_run_watched(options->command, &watcher, &end);
    if (status)
        return status;
    child_heed_signals(&end);
    if (!end.started)
        return WEXITSTATUS(end.status);
    (void)watch_look(watch, true);
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error, said below */
    enum doctor_verdict verdict = report(options, stream, watch, directory, &end);
    if (stream != stderr && (ferror(stream) || fclose(stream) != 0)) {
        say_error("cannot write --output \"%.256s\"", options->output);
        return TOOL_FAILED;
    }
    if (options->verdict_status)
        return verdict == VERDICT_HOLD ? 0 : TOOL_FAILED;
    remove_directory(directory); /* the command's signal may be our end */
    return child_end_as(&end);
}

int doctor_command(const struct doctor_options *options)
{
    char directory[] = DIRECTORY_PATTERN "XXXXXX";
    struct watch watch;
    FILE *stream = open_output(options);
    if (!stream)
        return TOOL_FAILED;
    sweep_left_over();
    int lock = make_directory(directory);
    if (lock < 0)
        return TOOL_FAILED;
    int status = TOOL_FAILED, error = watch_begin(&watch);
    if (error) {
        say_error("cannot watch processes: %s", strerror(-error));
    } else {
        status = run_watched(options, directory, stream, &watch);
        watch_end(&watch);
    }
    remove_directory(directory);
    close(lock);
    return status;
}
