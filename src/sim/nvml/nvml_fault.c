/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/nvml/nvml_fault.h"

#include "abi/nvml.h"
#include "sim/machine/machine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define EVENTS_MAX 1024

/* Under the mutex. The file only grows: what was read stays. */
static struct {
    pthread_mutex_t mutex;
    long read; /* bytes */
    bool lost[SIM_DEVICES_MAX];
    uint64_t reset_ms[SIM_DEVICES_MAX];
    struct nvml_fault_event events[EVENTS_MAX];
    unsigned event_count;
} faults = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void add_event(unsigned card, unsigned long long type, unsigned long long data)
{
    if (faults.event_count < EVENTS_MAX)
        faults.events[faults.event_count++] = (struct nvml_fault_event){card, type, data};
}

static void obey(const char *line)
{
    char word[16];
    unsigned card;
    unsigned long long number = 0;
    struct timespec now;
    int fields = sscanf(line, "%15s %u %llu", word, &card, &number);
    if (fields < 2 || card >= SIM_DEVICES_MAX) {
        fprintf(stderr, "vgpu-sim: VGPU_SIM_FAULTS: not understood: %s", line);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!strcmp(word, "xid") && fields == 3)
        add_event(card, NVML_EVENT_TYPE_XID_CRITICAL_ERROR, number);
    else if (!strcmp(word, "ecc"))
        add_event(card, NVML_EVENT_TYPE_DOUBLE_BIT_ECC_ERROR, 0);
    else if (!strcmp(word, "lost") || !strcmp(word, "back"))
        faults.lost[card] = *word == 'l';
    else if (!strcmp(word, "reset"))
        faults.reset_ms[card] = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    else
        fprintf(stderr, "vgpu-sim: VGPU_SIM_FAULTS: not understood: %s", line);
}

static const char *find_file(void)
{
    const char *path = getenv("VGPU_SIM_FAULTS");
    return path && *path ? path : NULL;
}

bool nvml_fault_is_possible(void)
{
    return find_file() != NULL;
}

/* Takes the lines that are new and whole. */
static void refresh_locked(void)
{
    const char *path = find_file();
    struct stat status;
    char line[128];
    if (!path || stat(path, &status) != 0 || status.st_size <= faults.read)
        return;
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fseek(file, faults.read, SEEK_SET) == 0) {
        while (fgets(line, sizeof line, file) && strchr(line, '\n')) {
            faults.read += (long)strlen(line);
            obey(line);
        }
    }
    fclose(file);
}

bool nvml_fault_is_lost(unsigned card)
{
    pthread_mutex_lock(&faults.mutex);
    refresh_locked();
    bool lost = card < SIM_DEVICES_MAX && faults.lost[card];
    pthread_mutex_unlock(&faults.mutex);
    return lost;
}

unsigned nvml_fault_event_count(void)
{
    pthread_mutex_lock(&faults.mutex);
    refresh_locked();
    unsigned count = faults.event_count;
    pthread_mutex_unlock(&faults.mutex);
    return count;
}

struct nvml_fault_event nvml_fault_event(unsigned number)
{
    struct nvml_fault_event event = {0};
    pthread_mutex_lock(&faults.mutex);
    if (number < faults.event_count)
        event = faults.events[number];
    pthread_mutex_unlock(&faults.mutex);
    return event;
}

uint64_t nvml_fault_reset_ms(unsigned card)
{
    pthread_mutex_lock(&faults.mutex);
    refresh_locked();
    uint64_t reset_ms = card < SIM_DEVICES_MAX ? faults.reset_ms[card] : 0;
    pthread_mutex_unlock(&faults.mutex);
    return reset_ms;
}
