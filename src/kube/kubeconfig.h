/* SPDX-License-Identifier: Apache-2.0 */
/* What a kubeconfig says for its current context. The decoder is pure. */
#ifndef VGPU_KUBE_KUBECONFIG_H
#define VGPU_KUBE_KUBECONFIG_H

#include "net/error.h"

#include <stddef.h>

#define KUBECONFIG_BYTES_MAX (1 << 20)

/* Text of the heap, NULL where it is not given. "_data" is decoded from base64. */
struct kubeconfig {
    char *server, *namespace_name;
    char *ca_path, *ca_data;
    char *token, *token_path;
    char *certificate_path, *certificate_data;
    char *key_path, *key_data;
};

/* Decodes YAML (or JSON). Relative paths stay so. Returns 0, or -EINVAL with one line that names
 * what is missing, malformed or not supported: exec, auth-provider, username, password, as,
 * proxy-url, insecure-skip-tls-verify, tls-server-name. -ENOMEM. */
int kubeconfig_parse(const char *text, size_t bytes, struct kubeconfig *ret_config,
    struct error *error) __attribute__((warn_unused_result));

/* Frees what it holds. */
void kubeconfig_finish(struct kubeconfig *config);

#endif
