/* SPDX-License-Identifier: Apache-2.0 */
/* How a card in MIG mode is split. */
#include "sim/machine/mig.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024ull * 1024 * 1024)
#define MEMORY_GIB_MAX 1024

/* A number of at most four digits, and what must follow it. */
static bool take_number(const char **at, const char *behind, uint32_t *ret_number)
{
    size_t digits = strspn(*at, "0123456789"), length = strlen(behind);
    if (digits < 1 || digits > 4 || strncmp(*at + digits, behind, length) != 0)
        return false;
    *ret_number = (uint32_t)strtoul(*at, NULL, 10);
    *at += digits + length;
    return true;
}

bool sim_mig_parse(struct sim_mig *mig, const char *value)
{
    uint32_t card = 0;
    (void)take_number(&value, ":", &card);
    for (;;) {
        struct sim_mig_instance instance = {.card = card};
        if (!take_number(&value, "g.", &instance.slices) ||
            !take_number(&value, "gb", &instance.memory_gib) || mig->count == SIM_DEVICES_MAX)
            return false;
        if (instance.slices < 1 || instance.slices > SIM_MIG_SLICES || instance.memory_gib < 1 ||
            instance.memory_gib > MEMORY_GIB_MAX)
            return false;
        mig->instances[mig->count++] = instance;
        if (!*value)
            return true;
        if (*value++ != '+')
            return false;
    }
}

/* What the instances of a card ask for together. */
static bool fits(const struct sim_mig *mig, uint32_t card, const struct sim_model *model)
{
    uint64_t slices = 0, bytes = 0;
    for (uint32_t i = 0; i < mig->count; i++) {
        if (mig->instances[i].card != card)
            continue;
        slices += mig->instances[i].slices;
        bytes += mig->instances[i].memory_gib * GIB;
    }
    return slices <= SIM_MIG_SLICES && bytes <= model->memory_bytes;
}

/* The instance's name is the card's with the profile behind it, as the MIG user guide shows it. */
static struct sim_model make_model(
    const struct sim_mig_instance *instance, const struct sim_model *card)
{
    struct sim_model model = *card;
    snprintf(model.name, sizeof model.name, "%.40s MIG %ug.%ugb", card->name, instance->slices,
        instance->memory_gib);
    model.memory_bytes = instance->memory_gib * GIB;
    model.reserved_bytes = 0;
    model.multiprocessors = card->multiprocessors * instance->slices / SIM_MIG_SLICES;
    if (model.multiprocessors == 0)
        model.multiprocessors = 1;
    model.mig_card = instance->card + 1;
    return model;
}

bool sim_mig_apply(const struct sim_mig *mig, struct sim_description *description)
{
    uint32_t cards = description->device_count;
    if (cards + mig->count > SIM_DEVICES_MAX)
        return false;
    for (uint32_t i = 0; i < mig->count; i++) {
        const struct sim_mig_instance *instance = &mig->instances[i];
        if (instance->card >= cards ||
            !fits(mig, instance->card, &description->devices[instance->card]))
            return false;
        description->devices[cards + i] =
            make_model(instance, &description->devices[instance->card]);
    }
    description->instance_count = mig->count;
    return true;
}
