/* SPDX-License-Identifier: Apache-2.0 */
/* A command's processes: what was seen from outside, and what each said of itself. */
#include "doctor/witnesses.h"

#include "base/report_place.h"
#include "base/text.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPORTS 4096

/* ---- reports ---- */

/* How often it was written, if it is whole; then `text` ends before that line. */
static unsigned long end_of_report(char *text)
{
    char *line = strncmp(text, "report ", 7) ? NULL : strstr(text, "\n" REPORT_LAST_LINE);
    char *rest;
    if (!line)
        return 0;
    unsigned long written = strtoul(line + 1 + strlen(REPORT_LAST_LINE), &rest, 10);
    line[1] = '\0';
    return *rest == '\n' ? written : 0;
}

/* The newer of the two places. `buffer`: of REPORT_PLACE_BYTES + 1 each. */
static char *read_places(int fd, char *buffer)
{
    char *newest = NULL;
    unsigned long newest_written = 0;
    for (unsigned i = 0; i < 2; i++) {
        char *text = buffer + (size_t)i * ((size_t)REPORT_PLACE_BYTES + 1);
        ssize_t length = pread(fd, text, REPORT_PLACE_BYTES, (off_t)i * REPORT_PLACE_BYTES);
        text[length > 0 ? length : 0] = '\0';
        unsigned long written = end_of_report(text);
        if (written <= newest_written)
            continue;
        newest_written = written;
        newest = text;
    }
    return newest;
}

/* Other users may write into the directory where root is the doctor: what lies there may be
 * anything. */
static struct facts *read_report(int directory, const char *name)
{
    struct stat status;
    struct facts *facts = NULL;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char *buffer = fd >= 0 ? malloc(2 * ((size_t)REPORT_PLACE_BYTES + 1)) : NULL;
    char *text = buffer && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)
                     ? read_places(fd, buffer)
                     : NULL;
    if (text && (facts = calloc(1, sizeof(*facts))) != NULL)
        facts_add_lines(facts, text);
    free(buffer);
    if (fd >= 0)
        close(fd);
    return facts;
}

/* ---- together ---- */

static struct witness *add(struct witnesses *witnesses, const struct watch_image *image)
{
    struct witness *witness = &witnesses->list[witnesses->count++];
    *witness = (struct witness){.image = image};
    if (!image)
        return witness;
    witness->pid = (unsigned)image->pid;
    snprintf(witness->command, sizeof(witness->command), "%s", image->command);
    return witness;
}

/* The program that the report is of is the last of its process in which the library is. */
static struct witness *witness_of(
    const struct watch *watch, struct witnesses *witnesses, const char *name)
{
    char *rest;
    unsigned long pid = strtoul(name, &rest, 10);
    unsigned long long start = *rest == '-' ? strtoull(rest + 1, NULL, 10) : 0;
    for (size_t i = witnesses->count; i-- > 0;) {
        struct witness *witness = &witnesses->list[i];
        const struct watch_image *image = witness->image;
        if (image && image->own_pid == pid && image->start_time == start && image->library)
            return witness;
    }
    /* Or one that was last seen before it had either. */
    const struct watch_image *image = watch_find(watch, (unsigned)pid, start);
    struct witness *witness =
        add(witnesses, image && !image->cuda && !image->device ? image : NULL);
    witness->pid = (unsigned)pid;
    return witness;
}

static void add_report(
    const struct watch *watch, struct witnesses *witnesses, int directory, const char *name)
{
    struct facts *facts = read_report(directory, name);
    if (!facts)
        return;
    struct witness *witness = witness_of(watch, witnesses, name);
    const char *command = fact(facts, "process.command");
    free(witness->facts);
    witness->facts = facts;
    if (!witness->command[0] && command)
        text_escape(witness->command, sizeof(witness->command), command, strlen(command));
}

static void add_images(const struct watch *watch, struct witnesses *witnesses)
{
    pid_t last = 0;
    for (size_t i = 0; i < watch->count; i++) {
        const struct watch_image *image = &watch->images[i];
        witnesses->seen += image->pid != last;
        last = image->pid;
        witnesses->left += watch_lives(image);
        if (image->cuda || image->nvml || image->device || image->hidden)
            (void)add(witnesses, image);
    }
}

void doctor_gather(
    const struct watch *watch, const char *directory, struct witnesses *ret_witnesses)
{
    *ret_witnesses = (struct witnesses){.incomplete = watch->missed != 0};
    ret_witnesses->list = calloc(watch->count + REPORTS, sizeof(ret_witnesses->list[0]));
    if (!ret_witnesses->list) {
        ret_witnesses->incomplete = true;
        return;
    }
    add_images(watch, ret_witnesses);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *reports = fd >= 0 ? opendir(directory) : NULL;
    unsigned count = 0;
    for (struct dirent *entry; reports && (entry = readdir(reports)) != NULL;) {
        if (entry->d_name[0] != '.' && count++ < REPORTS)
            add_report(watch, ret_witnesses, fd, entry->d_name);
    }
    ret_witnesses->incomplete |= count > REPORTS;
    if (reports)
        closedir(reports);
    if (fd >= 0)
        close(fd);
}

void doctor_gather_free(struct witnesses *witnesses)
{
    for (size_t i = 0; i < witnesses->count; i++) {
        if (witnesses->list[i].facts)
            facts_free(witnesses->list[i].facts);
    }
    free(witnesses->list);
}
