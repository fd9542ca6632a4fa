/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that ask for oversubscription. Any that asks switches it on; an index before none,
 * and of ratios the one of a variable that is named for it goes first. */
#include "config/config_oversubscription.h"

#include "base/log.h"
#include "base/parse.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct wish {
    bool given;     /* the variable says something that is understood */
    uint64_t ratio; /* in 2^-20; CONFIG_RATIO_ONE: it says only yes; 0: no */
};

static bool is_false(const char *text)
{
    return !strcasecmp(text, "false") || !strcasecmp(text, "off") || !strcasecmp(text, "no");
}

/* The digits are those of so many MiB. */
int config_parse_ratio(const char *text, uint64_t *ret_ratio)
{
    char scaled[64];
    uint64_t ratio;
    for (const char *at = text; *at; at++) {
        if ((*at < '0' || *at > '9') && *at != '.')
            return -EINVAL;
    }
    int length = snprintf(scaled, sizeof(scaled), "%sm", text);
    if (length >= (int)sizeof(scaled) || parse_size(scaled, &ratio) ||
        ratio > (uint64_t)CONFIG_RATIO_MOST * CONFIG_RATIO_ONE)
        return -EINVAL;
    *ret_ratio = ratio > CONFIG_RATIO_ONE ? ratio : 0;
    return 0;
}

static struct wish look(const char *name, const char *text, bool by_ratio)
{
    struct wish wish = {0};
    if (!text || !*text)
        return wish;
    wish.given = true;
    if (!by_ratio && is_false(text))
        return wish;
    if (!by_ratio && parse_true(text)) {
        wish.ratio = CONFIG_RATIO_ONE;
    } else if (config_parse_ratio(text, &wish.ratio)) {
        log_warning("%s=\"%.64s\" is not known; accepted: %s, at most %d. It asks for no more "
                    "memory than the card has.",
            name, text, by_ratio ? "a ratio, as 1.5" : "true, false, or a ratio, as 1.5",
            CONFIG_RATIO_MOST);
        wish.given = false;
    }
    return wish;
}

static struct wish look_at(
    const char *family, int index, bool by_ratio, char *(*lookup)(const char *name))
{
    char name[32];
    snprintf(name, sizeof(name), "%s_%d", family, index);
    return look(name, lookup(name), by_ratio);
}

/* A ratio of a variable that is named for it goes first. */
static uint64_t joined(struct wish by_switch, struct wish by_ratio)
{
    return by_ratio.ratio ? by_ratio.ratio : by_switch.ratio;
}

static struct wish either(struct wish one, struct wish other)
{
    return (struct wish){.given = one.given || other.given,
        .ratio = one.ratio > other.ratio ? one.ratio : other.ratio};
}

/* 0 for what is no size; `consequence` says what that means. */
static uint64_t read_size(const char *name, const char *text, uint64_t unsaid, enum log_level level,
    const char *consequence)
{
    uint64_t bytes = unsaid;
    if (!text || !*text || !parse_size(text, &bytes))
        return bytes;
    log_at(level, "%s=\"%.64s\" is not a size; accepted: %s. %s", name, text, PARSE_SIZE_ACCEPTED,
        consequence);
    return 0;
}

static uint64_t read_idle_release(const char *text)
{
    uint64_t seconds = 0;
    if (text && *text && parse_number(text, CONFIG_IDLE_MOST_S, &seconds)) {
        log_warning(
            "VGPU_IDLE_RELEASE=\"%.64s\" is no number of seconds; accepted: %s, at most %u. "
            "Idle memory stays on the card.",
            text, PARSE_SECONDS_ACCEPTED, CONFIG_IDLE_MOST_S);
        seconds = 0;
    }
    return seconds;
}

static unsigned read_turn_overhead(const char *text)
{
    uint64_t percent = CONFIG_TURN_OVERHEAD;
    if (text && *text &&
        (parse_number(text, CONFIG_TURN_OVERHEAD_MOST, &percent) || percent == 0)) {
        log_warning("VGPU_TURN_OVERHEAD=\"%.64s\" is not known; accepted: a percentage from 1 to "
                    "%u. It is %u.",
            text, CONFIG_TURN_OVERHEAD_MOST, CONFIG_TURN_OVERHEAD);
        percent = CONFIG_TURN_OVERHEAD;
    }
    return (unsigned)percent;
}

void config_oversubscription_read(struct config *config, char *(*lookup)(const char *name))
{
    static const char *const switches[] = {
        "CUDA_MEMORY_OVERSUBSCRIBE", "CUDA_OVERSUBSCRIBE", "CUDA_MEM_OVERSOLD"};
    struct wish by_switch = {0};
    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++)
        by_switch = either(by_switch, look(switches[i], lookup(switches[i]), false));
    struct wish by_ratio = look("CUDA_MEM_RATIO", lookup("CUDA_MEM_RATIO"), true);
    struct wish other = look("CUDA_MEMORY_RATIO", lookup("CUDA_MEMORY_RATIO"), true);
    if (!by_ratio.given)
        by_ratio = other;
    bool is_off = by_switch.given && !by_switch.ratio;
    config->oversubscription_default = is_off ? 0 : joined(by_switch, by_ratio);
    config->oversubscription_is_indexed = false;
    for (int i = 0; i < CONFIG_DEVICES; i++) {
        struct wish own_switch = look_at("CUDA_MEM_OVERSOLD", i, false, lookup);
        struct wish own_ratio = look_at("CUDA_MEM_RATIO", i, true, lookup);
        bool off = own_switch.given ? !own_switch.ratio : is_off && !own_ratio.given;
        config->oversubscription[i] = off ? 0
                                          : joined(own_switch.given ? own_switch : by_switch,
                                                own_ratio.given ? own_ratio : by_ratio);
        config->oversubscription_is_indexed |=
            config->oversubscription[i] != config->oversubscription_default;
    }
    config->host_pool_bytes = read_size("VGPU_HOST_POOL", lookup("VGPU_HOST_POOL"), UINT64_MAX,
        LOG_ERROR, "No host memory backs device memory.");
    config->host_pool_ready_bytes = read_size("VGPU_HOST_POOL_READY",
        lookup("VGPU_HOST_POOL_READY"), 0, LOG_WARNING, "No host memory is made ahead.");
    config->idle_release_s = read_idle_release(lookup("VGPU_IDLE_RELEASE"));
    config->turn_overhead_percent = read_turn_overhead(lookup("VGPU_TURN_OVERHEAD"));
}

void config_oversubscription_set(struct config *config, uint64_t ratio)
{
    if (ratio < CONFIG_RATIO_ONE || ratio > (uint64_t)CONFIG_RATIO_MOST * CONFIG_RATIO_ONE)
        ratio = 0;
    config->oversubscription_default = ratio;
    for (int i = 0; i < CONFIG_DEVICES; i++)
        config->oversubscription[i] = ratio;
    config->oversubscription_is_indexed = false;
    config->host_pool_bytes = UINT64_MAX;
    config->host_pool_ready_bytes = 0;
    config->turn_overhead_percent = CONFIG_TURN_OVERHEAD;
}

uint64_t config_oversubscription(const struct config *config, int index)
{
    return index >= 0 && index < CONFIG_DEVICES ? config->oversubscription[index]
                                                : config->oversubscription_default;
}

uint64_t config_host_pool(const struct config *config)
{
    return config->host_pool_bytes;
}

uint64_t config_host_pool_ready(const struct config *config)
{
    return config->host_pool_ready_bytes;
}

unsigned config_turn_overhead_percent(const struct config *config)
{
    return config->turn_overhead_percent;
}

uint64_t config_idle_release_s(const struct config *config)
{
    return config->idle_release_s;
}

bool config_oversubscribes(const struct config *config)
{
    bool any = config->oversubscription_default != 0;
    for (int i = 0; i < CONFIG_DEVICES; i++)
        any |= config->oversubscription[i] != 0;
    return any;
}
