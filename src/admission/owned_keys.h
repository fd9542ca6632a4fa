/* SPDX-License-Identifier: Apache-2.0 */
/* The annotations and labels that say which devices a Pod has, and who may write them
 * (admission.h). Pure. */
#ifndef VGPU_ADMISSION_OWNED_KEYS_H
#define VGPU_ADMISSION_OWNED_KEYS_H

#include "admission/admission_settings.h"
#include "admission/verdict.h"

#include <jansson.h>
#include <stdbool.h>

bool owned_keys_has(const char *key);

/* Whether `user` (NULL: unknown) may turn the metadata of `old_object` (NULL: it is created) into
 * that of `object`. Where not, the verdict names the first key that changed. */
bool owned_keys_check(const struct admission_settings *settings, const json_t *object,
    const json_t *old_object, const char *user, struct verdict *verdict);

#endif
