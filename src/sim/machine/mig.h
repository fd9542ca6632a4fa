/* SPDX-License-Identifier: Apache-2.0 */
/* Cards in MIG mode: the description's word for how a card is split, and the compute instances that
 * come of it. Pure parsing. */
#ifndef VGPU_SIM_MACHINE_MIG_H
#define VGPU_SIM_MACHINE_MIG_H

#include "sim/machine/description.h"

#define SIM_MIG_SLICES 7 /* of a card's compute; also how many instances it can have */
#define SIM_MIG_EXPECTED                                                                           \
    "[CARD:]PROFILE[+PROFILE...], a profile as 1g.10gb: 1 to 7 slices and GiB of memory, as many " \
    "as the card has; 16 devices and instances in all"

struct sim_mig_instance {
    uint32_t card;
    uint32_t slices;
    uint32_t memory_gib;
};

struct sim_mig {
    struct sim_mig_instance instances[SIM_DEVICES_MAX];
    uint32_t count;
};

/* Adds what mig=VALUE says. False where it is not understood; *mig is then good for nothing. */
bool sim_mig_parse(struct sim_mig *mig, const char *value) __attribute__((warn_unused_result));

/* Appends the instances' models to the description's devices, whose sizes are final. False where a
 * card is not there or has not what its instances ask for. */
bool sim_mig_apply(const struct sim_mig *mig, struct sim_description *description)
    __attribute__((warn_unused_result));

#endif
