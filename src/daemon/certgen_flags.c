/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/certgen_flags.h"

#define AT(member)                                                                                 \
    offsetof(struct certgen_flags, member), sizeof(((struct certgen_flags *)NULL)->member)

static const struct flag_row rows[] = {
    {"namespace", "POD_NAMESPACE", FLAG_TEXT, AT(secret_namespace), "", NULL,
        .help = "of the Secrets; the service account's without it"},
    {"secret-name", NULL, FLAG_TEXT, AT(tls_secret), "", NULL,
        .help = "Secret with tls.crt, tls.key and ca.crt; it is made, and kept while it is right"},
    {"names", NULL, FLAG_TEXT, AT(names), "", NULL,
        .help = "DNS names and addresses that the certificate is for, by commas"},
    {"valid-days", NULL, FLAG_NUMBER, AT(valid_days), "3650", NULL,
        .help = "for which a new certificate is valid"},
    {"renew-days", NULL, FLAG_NUMBER, AT(renew_days), "30", NULL,
        .help = "a certificate that is not valid for so long any more is replaced"},
    {"mutating-webhook", NULL, FLAG_TEXT, AT(mutating_webhook), "", NULL,
        .help = "MutatingWebhookConfiguration that gets the CA"},
    {"validating-webhook", NULL, FLAG_TEXT, AT(validating_webhook), "", NULL,
        .help = "ValidatingWebhookConfiguration that gets it"},
    {"webhooks-may-be-missing", NULL, FLAG_BOOL, AT(webhooks_may_be_missing), "false", NULL,
        .help = "go on where they are not there yet"},
    {"proof-secret-name", NULL, FLAG_TEXT, AT(proof_secret), "", NULL,
        .help = "Secret with the key of the scheduler's proofs, which is made where there is none"},
    {"timeout", NULL, FLAG_DURATION, AT(timeout_ns), "1m", NULL,
        .help = "for which a request is tried again"},
};

const struct flag_table certgen_flag_table = {
    "usage: vgpu-certgen [FLAG]...\n\n"
    "Makes what vgpu-scheduler needs to be trusted: its certificate and the key of its proofs, in\n"
    "Secrets, and the CA in the webhooks' configurations. What is there and right is kept.\n\n",
    NULL, rows, sizeof(rows) / sizeof(rows[0])};
