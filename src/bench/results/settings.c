/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/results/settings.h"

#include "bench/results/need.h"

#include <stdlib.h>
#include <string.h>

/* Where a subject's environment has none of these words, HAMi-core's variables are meant. */
static const char *const words[] = {
    BENCH_WORD_BYTES, BENCH_WORD_MIB, BENCH_WORD_PERCENT, BENCH_WORD_REGION};
static const struct bench_setting ordinary[] = {
    {(char *)"CUDA_DEVICE_MEMORY_LIMIT", (char *)BENCH_WORD_BYTES},
    {(char *)"CUDA_DEVICE_SM_LIMIT", (char *)BENCH_WORD_PERCENT},
    {(char *)"CUDA_DEVICE_MEMORY_SHARED_CACHE", (char *)BENCH_WORD_REGION}};
#define ORDINARY (sizeof(ordinary) / sizeof(ordinary[0]))

static bool names_limits(const struct bench_subject *subject)
{
    for (size_t i = 0; i < subject->setting_count; i++) {
        for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
            if (strstr(subject->environment[i].value, words[w]))
                return true;
        }
    }
    return false;
}

static void put(struct bench_setting *list, size_t *count, struct bench_setting setting)
{
    for (size_t i = 0; i < *count; i++) {
        if (!strcmp(list[i].name, setting.name)) {
            list[i] = setting;
            return;
        }
    }
    list[(*count)++] = setting;
}

struct bench_setting *bench_settings_of(const struct bench_subject *subject, size_t *ret_count)
{
    size_t count = 0, room = subject->setting_count + ORDINARY + 2;
    struct bench_setting *list = bench_need(calloc(room, sizeof(*list)));
    if (subject->library) {
        for (size_t i = 0; !names_limits(subject) && i < ORDINARY; i++)
            put(list, &count, ordinary[i]);
        /* HAMi-core's library works only where it is told its own path. */
        put(list, &count, (struct bench_setting){(char *)"CUDA_REDIRECT", subject->library});
        put(list, &count,
            (struct bench_setting){(char *)"VGPU_BOARD_DIR", (char *)BENCH_WORD_BOARD});
    }
    for (size_t i = 0; i < subject->setting_count; i++)
        put(list, &count, subject->environment[i]);
    *ret_count = count;
    return list;
}

bool bench_settings_have(const struct bench_subject *subject, const char *word)
{
    size_t count;
    struct bench_setting *list = bench_settings_of(subject, &count);
    bool have = false;
    for (size_t i = 0; i < count; i++)
        have |= strstr(list[i].value, word) != NULL;
    free(list);
    return have;
}
