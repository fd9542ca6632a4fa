/* SPDX-License-Identifier: Apache-2.0 */
/* One process, by what /proc says of it. */
#include "doctor/watch.h"

#include "base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESCRIPTORS 4096

static FILE *open_of(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

static bool begins(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* /dev/nvidiactl, /dev/nvidia0, /dev/nvidia-uvm: not the modesetting device, which desktops have.
 */
static bool is_device(const char *path)
{
    static const char start[] = "/dev/nvidia";
    const char *rest = path + sizeof(start) - 1;
    return begins(path, start) &&
           (isdigit((unsigned char)*rest) || begins(rest, "ctl") || begins(rest, "-uvm"));
}

/* ---- what it maps, and has open ---- */

static void note_mapping(struct watch_image *image, char *path)
{
    const char *name = strrchr(path, '/') + 1;
    image->device |= is_device(path);
    image->cuda |= begins(name, "libcuda.so");
    image->nvml |= begins(name, "libnvidia-ml.so");
    if (!begins(name, "libvgpu.so") && !begins(name, "libvgpu-control.so"))
        return;
    image->library = true;
    snprintf(image->library_path, sizeof(image->library_path), "%s", path);
}

static void read_mappings(struct watch_image *image)
{
    char *line = NULL;
    size_t size = 0;
    FILE *maps = open_of(image->pid, "maps");
    image->hidden = !maps && errno != ENOENT && errno != ESRCH;
    if (!maps)
        return;
    while (getline(&line, &size, maps) > 0) {
        char *path = strchr(line, '/');
        if (!path)
            continue;
        path[strcspn(path, "\n")] = '\0';
        note_mapping(image, path);
    }
    free(line);
    fclose(maps);
}

static void read_descriptors(struct watch_image *image)
{
    char path[64], target[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)image->pid);
    DIR *directory = opendir(path);
    if (!directory)
        return;
    struct dirent *entry;
    for (unsigned i = 0; i < DESCRIPTORS && (entry = readdir(directory)) != NULL; i++) {
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        image->device |= is_device(target);
    }
    closedir(directory);
}

/* ---- what it is ---- */

/* Reads at most `size` - 1 bytes of the file, and ends them. */
static size_t read_start(pid_t pid, const char *name, char *text, size_t size)
{
    FILE *file = open_of(pid, name);
    size_t length = file ? fread(text, 1, size - 1, file) : 0;
    text[length] = '\0';
    if (file)
        fclose(file);
    return length;
}

static void read_command(struct watch_image *image)
{
    char words[sizeof(image->command)];
    size_t length = read_start(image->pid, "cmdline", words, sizeof(words));
    while (length && !words[length - 1])
        length--;
    for (size_t i = 0; i < length; i++)
        words[i] = words[i] ? words[i] : ' ';
    words[length] = '\0';
    const char *blank = strchr(words, ' ');
    const char *slash = memrchr(words, '/', blank ? (size_t)(blank - words) : length);
    const char *name = slash ? slash + 1 : words;
    text_escape(image->command, sizeof(image->command), name, length - (size_t)(name - words));
}

/* The pid that it has in its own namespace is the last. */
static void read_own_pid(struct watch_image *image)
{
    char text[4096];
    (void)read_start(image->pid, "status", text, sizeof(text));
    const char *line = strstr(text, "\nNSpid:");
    image->own_pid = (unsigned)image->pid;
    for (const char *at = line ? line + 7 : ""; *at && *at != '\n';) {
        char *end;
        unsigned long number = strtoul(at, &end, 10);
        if (end == at)
            break;
        image->own_pid = (unsigned)number;
        at = end;
    }
}

/* Without an interpreter nothing is preloaded. */
static void read_program(struct watch_image *image)
{
    char text[4096];
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    size_t length = read_start(image->pid, "exe", text, sizeof(text));
    memcpy(&header, text, sizeof(header));
    if (length < sizeof(header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64)
        return;
    image->is_static = true;
    for (size_t i = 0, at = header.e_phoff;
         i < header.e_phnum && at < length && length - at >= sizeof(segment);
         i++, at += header.e_phentsize) {
        memcpy(&segment, text + at, sizeof(segment));
        if (segment.p_type != PT_INTERP)
            continue;
        image->is_static = false;
        image->is_musl =
            segment.p_offset < length && strstr(text + segment.p_offset, "ld-musl") != NULL;
    }
}

static void read_rights(struct watch_image *image)
{
    struct stat status;
    unsigned long entry[2];
    char path[64];
    FILE *auxv = open_of(image->pid, "auxv");
    while (auxv && fread(entry, sizeof(entry), 1, auxv) == 1 && entry[0] != AT_NULL)
        image->secure |= entry[0] == AT_SECURE && entry[1];
    if (auxv)
        fclose(auxv);
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)image->pid);
    if (stat(path, &status) == 0)
        image->secure |= (status.st_mode & (S_ISUID | S_ISGID)) && status.st_uid != getuid();
}

static bool same_file(pid_t pid, const char *name)
{
    struct stat theirs, ours;
    char path[64], own[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    snprintf(own, sizeof(own), "/proc/self/%s", name);
    if (stat(path, &theirs) != 0 || stat(own, &ours) != 0)
        return true;
    return theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

/* The loader's variable as the program was started with it. */
static void read_preload(struct watch_image *image)
{
    static const char name[] = "LD_PRELOAD=";
    char *word = NULL;
    size_t size = 0;
    FILE *environment = open_of(image->pid, "environ");
    while (environment && getdelim(&word, &size, '\0', environment) > 0) {
        if (begins(word, name))
            image->preload_named = strstr(word, "libvgpu.so") || strstr(word, "libvgpu-control.so");
    }
    free(word);
    if (environment)
        fclose(environment);
}

void watch_examine(struct watch_image *image)
{
    if (!image->own_pid) {
        read_own_pid(image);
        read_command(image);
    }
    const struct watch_image before = *image;
    read_mappings(image);
    /* The list is no single moment's: what was mapped before the driver may be missing from it. */
    if (image->cuda && !before.cuda && !image->library)
        read_mappings(image);
    if (!image->device)
        read_descriptors(image);
    /* It breaks off where the process ends, or becomes another program, meanwhile. */
    if (!image->library && !watch_lives(image)) {
        *image = before;
        return;
    }
    if (image->described || !(image->cuda || image->nvml || image->device || image->hidden))
        return;
    read_program(image);
    read_rights(image);
    read_preload(image);
    image->elsewhere = !same_file(image->pid, "ns/mnt") || !same_file(image->pid, "root/.");
    image->described = true;
}
