/* SPDX-License-Identifier: Apache-2.0 */
/* More memory than the card has, asked for by a word or by a ratio. */
#include "config/config_accepted.h"

#include "base/file.h"
#include "base/log.h"
#include "base/parse.h"
#include "config/config.h"

#include <stdio.h>
#include <strings.h>

enum wish { WISH_NONE, WISH_MORE, WISH_UNKNOWN };

static bool is_false(const char *text)
{
    return !strcasecmp(text, "false") || !strcasecmp(text, "off") || !strcasecmp(text, "no");
}

/* "1.5": more than the card; "1", "0.8": not more. A size's number is one of a thousand of it. */
static enum wish wish_by_ratio(const char *text)
{
    char scaled[64];
    uint64_t millionths;
    for (const char *at = text; *at; at++) {
        if ((*at < '0' || *at > '9') && *at != '.')
            return WISH_UNKNOWN;
    }
    int length = snprintf(scaled, sizeof(scaled), "%sm", text);
    if (length >= (int)sizeof(scaled) || parse_size(scaled, &millionths))
        return WISH_UNKNOWN;
    return millionths > 1u << 20 ? WISH_MORE : WISH_NONE;
}

static enum wish wish_of(const char *text)
{
    if (!text || !*text || is_false(text))
        return WISH_NONE;
    return parse_true(text) ? WISH_MORE : wish_by_ratio(text);
}

struct found {
    char name[32];
    char value[65];
};

/* The first variable that asks is kept for the warning. */
static void look(const char *name, const char *text, bool by_ratio, struct found *first)
{
    enum wish wish = by_ratio && text && *text ? wish_by_ratio(text) : wish_of(text);
    if (wish == WISH_UNKNOWN)
        log_warning(
            "%s=\"%.64s\" is not known; accepted: %s. Device memory beyond the card's is not "
            "given in any case.",
            name, text, by_ratio ? "a ratio, as 1.5" : "true, false, or a ratio, as 1.5");
    if (wish != WISH_MORE || first->name[0])
        return;
    snprintf(first->name, sizeof(first->name), "%s", name);
    snprintf(first->value, sizeof(first->value), "%s", text);
}

static void check_oversubscription(char *(*lookup)(const char *name))
{
    static const struct {
        const char *name;
        bool indexed, by_ratio;
    } known[] = {{"CUDA_MEMORY_OVERSUBSCRIBE", false, false}, {"CUDA_OVERSUBSCRIBE", false, false},
        {"CUDA_MEM_OVERSOLD", true, false}, {"CUDA_MEM_RATIO", true, true},
        {"CUDA_MEMORY_RATIO", false, true}};
    struct found first = {"", ""};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        look(known[i].name, lookup(known[i].name), known[i].by_ratio, &first);
        for (int index = 0; known[i].indexed && index < CONFIG_DEVICES; index++) {
            char name[32];
            snprintf(name, sizeof(name), "%s_%d", known[i].name, index);
            look(name, lookup(name), known[i].by_ratio, &first);
        }
    }
    if (first.name[0])
        log_warning("%s=\"%s\": device memory beyond the card's own is not supported; the limit of "
                    "physical memory is kept",
            first.name, first.value);
}

void config_accepted_check(char *(*lookup)(const char *name), const char *file)
{
    struct stat status;
    check_oversubscription(lookup);
    if (file_status_at(file, &status) == 0)
        log_warning("%s is not read; limits come from the environment", file);
}
