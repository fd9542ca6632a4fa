/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kubeconfig.h"

#include "kube/base64.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

struct reader {
    yaml_document_t document;
    struct error *error;
};

static const char *text_of(const yaml_node_t *node)
{
    const char *text =
        node && node->type == YAML_SCALAR_NODE ? (char *)node->data.scalar.value : NULL;
    return text && strlen(text) == node->data.scalar.length ? text : NULL;
}

/* The value of a key in a mapping, NULL where there is none. */
static yaml_node_t *member(struct reader *reader, const yaml_node_t *map, const char *key)
{
    if (!map || map->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *pair = map->data.mapping.pairs.start; pair < map->data.mapping.pairs.top;
         pair++) {
        const char *name = text_of(yaml_document_get_node(&reader->document, pair->key));
        if (name && !strcmp(name, key))
            return yaml_document_get_node(&reader->document, pair->value);
    }
    return NULL;
}

/* Its text; NULL where it is missing, empty or null. */
static const char *member_text(struct reader *reader, const yaml_node_t *map, const char *key)
{
    const yaml_node_t *node = member(reader, map, key);
    const char *text = text_of(node);
    bool null = text && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
                (!strcmp(text, "null") || !strcmp(text, "~"));
    return text && *text && !null ? text : NULL;
}

/* The member `part` of the item of a list that has this name. */
static yaml_node_t *named(
    struct reader *reader, const char *list_name, const char *name, const char *part)
{
    yaml_node_t *list = member(reader, yaml_document_get_root_node(&reader->document), list_name);
    if (!list || list->type != YAML_SEQUENCE_NODE)
        return NULL;
    for (yaml_node_item_t *item = list->data.sequence.items.start;
         item < list->data.sequence.items.top; item++) {
        yaml_node_t *node = yaml_document_get_node(&reader->document, *item);
        const char *found = member_text(reader, node, "name");
        if (found && !strcmp(found, name))
            return member(reader, node, part);
    }
    return NULL;
}

static int copy(struct reader *reader, const yaml_node_t *map, const char *key, char **target)
{
    const char *text = member_text(reader, map, key);
    if (!text)
        return 0;
    *target = strdup(text);
    return *target ? 0 : error_set(reader->error, ENOMEM, "no memory for a kubeconfig");
}

static int copy_data(struct reader *reader, const yaml_node_t *map, const char *key, char **target)
{
    const char *text = member_text(reader, map, key);
    if (!text)
        return 0;
    int failure = base64_decode(text, target);
    if (failure == -ENOMEM)
        return error_set(reader->error, ENOMEM, "no memory for a kubeconfig");
    if (failure)
        return error_set(reader->error, EINVAL, "kubeconfig: %s is not base64", key);
    return 0;
}

static bool is_true(const char *text)
{
    return text &&
           (!strcasecmp(text, "true") || !strcasecmp(text, "yes") || !strcasecmp(text, "on"));
}

static int refuse(struct reader *reader, const yaml_node_t *map, const char *const *keys)
{
    for (; *keys; keys++) {
        const yaml_node_t *node = member(reader, map, *keys);
        if (node && (node->type != YAML_SCALAR_NODE || member_text(reader, map, *keys)))
            return error_set(reader->error, EINVAL,
                "kubeconfig: %s is not supported; accepted: token, tokenFile, client-certificate, "
                "client-key, certificate-authority, each as -data too",
                *keys);
    }
    return 0;
}

static int take_cluster(struct reader *reader, const char *name, struct kubeconfig *config)
{
    static const char *const refused[] = {"proxy-url", "tls-server-name", NULL};
    const yaml_node_t *cluster = named(reader, "clusters", name, "cluster");
    if (!cluster)
        return error_set(reader->error, EINVAL, "kubeconfig: no cluster \"%s\"", name);
    if (is_true(member_text(reader, cluster, "insecure-skip-tls-verify")))
        return error_set(reader->error, EINVAL,
            "kubeconfig: insecure-skip-tls-verify is not supported; name the "
            "certificate-authority");
    int failure = refuse(reader, cluster, refused);
    if (!failure)
        failure = copy(reader, cluster, "server", &config->server);
    if (!failure && !config->server)
        return error_set(reader->error, EINVAL, "kubeconfig: cluster \"%s\" has no server", name);
    if (!failure && strncmp(config->server, "https://", 8) != 0 &&
        strncmp(config->server, "http://", 7) != 0)
        return error_set(reader->error, EINVAL,
            "kubeconfig: server \"%.100s\" is not understood; accepted: https://HOST:PORT",
            config->server);
    if (!failure)
        failure = copy(reader, cluster, "certificate-authority", &config->ca_path);
    if (!failure)
        failure = copy_data(reader, cluster, "certificate-authority-data", &config->ca_data);
    return failure;
}

static int take_user(struct reader *reader, const char *name, struct kubeconfig *config)
{
    static const char *const refused[] = {"exec", "auth-provider", "username", "password", "as",
        "as-uid", "as-groups", "as-user-extra", NULL};
    const yaml_node_t *user = named(reader, "users", name, "user");
    if (!user)
        return error_set(reader->error, EINVAL, "kubeconfig: no user \"%s\"", name);
    int failure = refuse(reader, user, refused);
    if (!failure)
        failure = copy(reader, user, "token", &config->token);
    for (const char *at = config->token; !failure && at && *at; at++) {
        if (*at <= ' ' || *at == 0x7f)
            return error_set(reader->error, EINVAL,
                "kubeconfig: the token of user \"%s\" has a character that a header cannot carry",
                name);
    }
    if (!failure)
        failure = copy(reader, user, "tokenFile", &config->token_path);
    if (!failure)
        failure = copy(reader, user, "client-certificate", &config->certificate_path);
    if (!failure)
        failure = copy_data(reader, user, "client-certificate-data", &config->certificate_data);
    if (!failure)
        failure = copy(reader, user, "client-key", &config->key_path);
    if (!failure)
        failure = copy_data(reader, user, "client-key-data", &config->key_data);
    bool certificate = config->certificate_path || config->certificate_data;
    if (!failure && certificate != (config->key_path || config->key_data))
        return error_set(reader->error, EINVAL,
            "kubeconfig: user \"%s\" has a client-certificate or a client-key, not both", name);
    return failure;
}

static int take_all(struct reader *reader, struct kubeconfig *config)
{
    const yaml_node_t *root = yaml_document_get_root_node(&reader->document);
    const char *name = member_text(reader, root, "current-context");
    if (!name)
        return error_set(reader->error, EINVAL, "kubeconfig: current-context is missing");
    const yaml_node_t *context = named(reader, "contexts", name, "context");
    if (!context)
        return error_set(reader->error, EINVAL, "kubeconfig: no context \"%s\"", name);
    const char *cluster = member_text(reader, context, "cluster");
    const char *user = member_text(reader, context, "user");
    if (!cluster)
        return error_set(reader->error, EINVAL, "kubeconfig: context \"%s\" has no cluster", name);
    int failure = copy(reader, context, "namespace", &config->namespace_name);
    if (!failure)
        failure = take_cluster(reader, cluster, config);
    if (!failure && user)
        failure = take_user(reader, user, config);
    return failure;
}

int kubeconfig_parse(
    const char *text, size_t bytes, struct kubeconfig *ret_config, struct error *error)
{
    struct reader reader = {.error = error};
    struct kubeconfig config = {0};
    yaml_parser_t parser;
    if (bytes > KUBECONFIG_BYTES_MAX)
        return error_set(
            error, EINVAL, "kubeconfig: it has more than %d bytes", KUBECONFIG_BYTES_MAX);
    if (!yaml_parser_initialize(&parser))
        return error_set(error, ENOMEM, "no memory for a kubeconfig");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    int failure;
    if (yaml_parser_load(&parser, &reader.document)) {
        failure = take_all(&reader, &config);
        yaml_document_delete(&reader.document);
    } else {
        failure = error_set(error, EINVAL, "kubeconfig: line %zu: %s", parser.problem_mark.line + 1,
            parser.problem ? parser.problem : "it is not YAML");
    }
    yaml_parser_delete(&parser);
    if (failure)
        kubeconfig_finish(&config);
    else
        *ret_config = config;
    return failure;
}

static void wipe(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void kubeconfig_finish(struct kubeconfig *config)
{
    char **all[] = {&config->server, &config->namespace_name, &config->ca_path, &config->ca_data,
        &config->token, &config->token_path, &config->certificate_path, &config->certificate_data,
        &config->key_path, &config->key_data};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        wipe(all[i]);
}
