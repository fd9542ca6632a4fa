/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/pod_view.h"

#include "codec/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* A variable that is there but no truth value is ignored, as in HAMi. */
static bool is_control_disabled(const json_t *container)
{
    const json_t *list = json_object_get(container, "env");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *variable = json_array_get(list, i);
        const char *value = text_of(variable, "value");
        bool truth = false;
        if (!strcmp(text_of(variable, "name"), "CUDA_DISABLE_CONTROL") &&
            !number_parse_bool(value, strlen(value), &truth) && truth)
            return true;
    }
    return false;
}

static void read_containers(
    const json_t *list, bool init, const struct request_config *config, struct pod_view *view)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        view->containers[view->container_count++] = (struct pod_container){
            .name = text_of(value, "name"),
            .init = init,
            .sidecar = init && !strcmp(text_of(value, "restartPolicy"), "Always"),
            .control_disabled = is_control_disabled(value),
            .asked = request_parse(config, json_object_get(value, "resources")).count,
        };
    }
}

int pod_view_read(const json_t *pod, const struct request_config *config, struct pod_view *ret_view,
    struct error *error)
{
    const json_t *metadata = json_object_get(pod, "metadata"), *spec = json_object_get(pod, "spec");
    const json_t *annotations = json_object_get(metadata, "annotations");
    const json_t *init = json_object_get(spec, "initContainers");
    const json_t *containers = json_object_get(spec, "containers");
    struct pod_view view = {
        .pod_namespace = text_of(metadata, "namespace"),
        .name = text_of(metadata, "name"),
        .uid = text_of(metadata, "uid"),
        .node_name = text_of(spec, "nodeName"),
        .phase = text_of(json_object_get(pod, "status"), "phase"),
        .assigned_node = json_string_value(json_object_get(annotations, POD_ANNOTATION_NODE)),
        .to_allocate = json_string_value(json_object_get(annotations, POD_ANNOTATION_TO_ALLOCATE)),
        .allocated = json_string_value(json_object_get(annotations, POD_ANNOTATION_ALLOCATED)),
        .bind_phase = json_string_value(json_object_get(annotations, POD_ANNOTATION_BIND_PHASE)),
        .bind_time = json_string_value(json_object_get(annotations, POD_ANNOTATION_BIND_TIME)),
        .proof = json_string_value(json_object_get(annotations, POD_ANNOTATION_PROOF)),
        .deleting = json_is_string(json_object_get(metadata, "deletionTimestamp")),
    };
    if (!*view.name)
        return error_set(error, EINVAL, "a Pod without a name");
    view.containers =
        calloc(json_array_size(init) + json_array_size(containers) + 1, sizeof(*view.containers));
    if (!view.containers)
        return error_set(error, ENOMEM, "Pod %s/%s: no memory", view.pod_namespace, view.name);
    read_containers(init, true, config, &view);
    read_containers(containers, false, config, &view);
    *ret_view = view;
    return 0;
}

void pod_view_finish(struct pod_view *view)
{
    free(view->containers);
    *view = (struct pod_view){0};
}

size_t pod_view_asking(const struct pod_view *view)
{
    size_t asking = 0;
    for (size_t i = 0; i < view->container_count; i++)
        asking += view->containers[i].asked > 0;
    return asking;
}
