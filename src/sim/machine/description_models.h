/* SPDX-License-Identifier: Apache-2.0 */
/* Cards and drivers that a description names by one word. */
#ifndef VGPU_SIM_MACHINE_DESCRIPTION_MODELS_H
#define VGPU_SIM_MACHINE_DESCRIPTION_MODELS_H

#include "sim/machine/description.h"

struct sim_profile {
    const char *word;
    const char *version;
    uint32_t cuda_version;
    bool nvos21;
    enum sim_rm_form memory_form;
    bool no_gsp;
    bool is_future;
};

/* Of the word; NULL where there is none. */
const struct sim_model *sim_model_find(const char *word);
const struct sim_profile *sim_profile_find(const char *word);

#endif
