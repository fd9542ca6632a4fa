/* SPDX-License-Identifier: Apache-2.0 */
/* What a container asks for: devices, and memory and cores of each. Pure. */
#ifndef VGPU_CLUSTER_REQUEST_H
#define VGPU_CLUSTER_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define REQUEST_NAME_BYTES 128
/* memory_percent where no percentage was asked for (HAMi's sentinel). */
#define REQUEST_PERCENT_UNSET 101

/* The resources' names and defaults, from device-config.yaml. */
struct request_config {
    char count_name[REQUEST_NAME_BYTES];      /* "nvidia.com/gpu" */
    char memory_name[REQUEST_NAME_BYTES];     /* "nvidia.com/gpumem" */
    char percentage_name[REQUEST_NAME_BYTES]; /* "nvidia.com/gpumem-percentage" */
    char cores_name[REQUEST_NAME_BYTES];      /* "nvidia.com/gpucores" */
    char priority_name[REQUEST_NAME_BYTES];   /* "nvidia.com/priority" */
    int32_t default_memory;                   /* MiB; 0: the whole device */
    int32_t default_cores;                    /* percent; 0: no limit */
    int32_t default_count; /* for the webhook: devices where only others are named */
    int32_t memory_factor; /* MiB in one unit of memory_name */
};

void request_config_default(struct request_config *ret_config);

struct request {
    int32_t count;          /* 0: the container asks for no device, and all else is 0 */
    int32_t memory_mib;     /* of each device; 0: as the percentage says */
    int32_t memory_percent; /* of each device, 1 to 100, or REQUEST_PERCENT_UNSET */
    int32_t cores_percent;  /* of each device, as asked for; 0: no limit */
};

/* From a container's "resources"; a limit goes before a request of the same name. As HAMi:
 * - memory that is not whole, below 0 or above 2^31-1 MiB (after the factor) makes the container
 * one that asks for nothing; 0 is as if it were not there;
 * - a percentage above 100 is 100; 0 and below, or one that is not whole, is as if not there;
 * - memory and percentage may both be set; memory goes first where a device is chosen;
 * - neither: the default memory, or 100 percent. */
struct request request_parse(const struct request_config *config, const json_t *resources);

#endif
