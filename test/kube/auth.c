/* SPDX-License-Identifier: Apache-2.0 */
/* Where the API server is and who we are: service account and kubeconfig. */
#include "kube/auth.h"

#include "kube/kubeconfig.h"

#include "check.h"
#include "scratch.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define HEAD                                                                                       \
    "current-context: b\n"                                                                         \
    "contexts:\n"                                                                                  \
    "- name: a\n  context: {cluster: other, user: other}\n"                                        \
    "- name: b\n  context: {cluster: c, user: u, namespace: gpu}\n"
#define CLUSTER "clusters:\n- name: c\n  cluster: {server: 'https://h:6443/'}\n"
#define USERS "users:\n- name: u\n  user: "

static char directory[SCRATCH_PATH_MAX];

static char *path_of(const char *name)
{
    static char path[SCRATCH_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "we");
    REQUIRE(file);
    fputs(text, file);
    REQUIRE(fclose(file) == 0);
}

/* As the kubelet does it: another file takes the place. */
static void replace(const char *name, const char *text)
{
    char from[sizeof(directory) + 64];
    put("new", text);
    snprintf(from, sizeof(from), "%s", path_of("new"));
    REQUIRE(rename(from, path_of(name)) == 0);
}

static void begin(void)
{
    REQUIRE(scratch_make(directory));
    unsetenv("KUBECONFIG");
    setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
}

static struct kube_auth *create(const char *kubeconfig)
{
    struct error error = {0};
    struct kube_auth *auth = kube_auth_create(kubeconfig, directory, &error);
    if (!auth)
        printf("# %s\n", error.text);
    fflush(stdout);
    REQUIRE(auth);
    return auth;
}

TEST("a Pod's service account gives server, token, CA and namespace, and the token is renewed")
{
    begin();
    put("token", "one\n");
    put("ca.crt", "ca");
    put("namespace", "vgpu-system");
    struct kube_auth *auth = create(NULL);
    CHECK_STR(kube_auth_server(auth), "https://10.96.0.1:443");
    CHECK_STR(kube_auth_namespace(auth), "vgpu-system");
    CHECK_STR(kube_auth_token(auth), "one");
    CHECK(tls_files_ca(kube_auth_tls(auth)));
    CHECK(!tls_files_certificate(kube_auth_tls(auth)));
    replace("token", "two");
    CHECK_STR(kube_auth_token(auth), "two");
    /* While it is replaced it may be missing, empty or half: the former one stays. */
    REQUIRE(unlink(path_of("token")) == 0);
    CHECK_STR(kube_auth_token(auth), "two");
    replace("token", " \n");
    CHECK_STR(kube_auth_token(auth), "two");
    replace("token", "bad\nheader: x");
    CHECK_STR(kube_auth_token(auth), "two");
    replace("token", "three");
    kube_auth_reload(auth);
    CHECK_STR(kube_auth_token(auth), "three");
    kube_auth_destroy(auth);
}

TEST("IPv6 has brackets, and a namespace is optional")
{
    begin();
    put("token", "one");
    put("ca.crt", "ca");
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    struct kube_auth *auth = create(NULL);
    CHECK_STR(kube_auth_server(auth), "https://[fd00::1]:443");
    CHECK_STR(kube_auth_namespace(auth), "default");
    kube_auth_destroy(auth);
}

TEST("a CA that is replaced gets another path, and one that is missing keeps it")
{
    begin();
    put("token", "one");
    put("ca.crt", "ca");
    struct kube_auth *auth = create(NULL);
    struct tls_files *tls = kube_auth_tls(auth);
    char before[64], after[64];
    snprintf(before, sizeof(before), "%s", tls_files_ca(tls));
    tls_files_refresh(tls);
    CHECK_STR(tls_files_ca(tls), before);
    replace("ca.crt", "another");
    tls_files_refresh(tls);
    snprintf(after, sizeof(after), "%s", tls_files_ca(tls));
    CHECK(strcmp(before, after) != 0);
    FILE *file = fopen(after, "re");
    char text[16] = "";
    CHECK(file && fgets(text, sizeof(text), file));
    CHECK_STR(text, "another");
    CHECK(file && access(before, R_OK) == 0);
    if (file)
        fclose(file);
    REQUIRE(unlink(path_of("ca.crt")) == 0);
    tls_files_refresh(tls);
    replace("ca.crt", "");
    tls_files_refresh(tls);
    CHECK_STR(tls_files_ca(tls), after);
    kube_auth_destroy(auth);
}

TEST("a kubeconfig gives what its current context names")
{
    begin();
    put("config", HEAD CLUSTER USERS "{token: abc}\n");
    struct kube_auth *auth = create(path_of("config"));
    CHECK_STR(kube_auth_server(auth), "https://h:6443");
    CHECK_STR(kube_auth_namespace(auth), "gpu");
    CHECK_STR(kube_auth_token(auth), "abc");
    CHECK(!tls_files_ca(kube_auth_tls(auth)));
    kube_auth_destroy(auth);
}

TEST("paths of a kubeconfig are relative to it, data win over paths, and KUBECONFIG names it")
{
    begin();
    put("config",
        HEAD "clusters:\n- name: c\n  cluster: {server: 'https://h', certificate-authority: ca.crt,"
             " certificate-authority-data: Y2E=}\n" USERS
             "{tokenFile: token, client-certificate: crt, client-key-data: a2V5}\n");
    put("token", "from-file");
    put("crt", "certificate");
    setenv("KUBECONFIG", path_of("config"), 1);
    struct kube_auth *auth = create(NULL);
    CHECK_STR(kube_auth_token(auth), "from-file");
    CHECK(tls_files_ca(kube_auth_tls(auth)));
    CHECK(tls_files_certificate(kube_auth_tls(auth)));
    CHECK(tls_files_key(kube_auth_tls(auth)));
    kube_auth_destroy(auth);
}

TEST("JSON and a context without a user are taken")
{
    struct kubeconfig config;
    static const char text[] =
        "{\"current-context\":\"x\",\"contexts\":[{\"name\":\"x\",\"context\":{\"cluster\":\"y\"}}]"
        ","
        "\"clusters\":[{\"name\":\"y\",\"cluster\":{\"server\":\"http://127.0.0.1:8001\"}}]}";
    REQUIRE(kubeconfig_parse(text, strlen(text), &config, NULL) == 0);
    CHECK_STR(config.server, "http://127.0.0.1:8001");
    CHECK(!config.token && !config.namespace_name);
    kubeconfig_finish(&config);
    CHECK(!config.server);
}

TEST("what is missing, malformed or not supported gets one line that names it")
{
    static const struct {
        const char *text, *named;
    } rows[] = {
        {"", "current-context"},
        {"[]", "current-context"},
        {"current-context: ''\n", "current-context"},
        {"current-context: b\n", "no context \"b\""},
        {"current-context: b\ncontexts: {}\n", "no context \"b\""},
        {"current-context: b\ncontexts:\n- name: b\n  context: {}\n", "no cluster"},
        {HEAD, "no cluster \"c\""},
        {HEAD CLUSTER, "no user \"u\""},
        {HEAD "clusters:\n- name: c\n  cluster: {}\n", "no server"},
        {HEAD "clusters:\n- name: c\n  cluster: {server: 'ftp://x'}\n", "ftp://x"},
        {HEAD "clusters:\n- name: c\n  cluster: {server: 'https://x', proxy-url: p}\n",
            "proxy-url"},
        {HEAD "clusters:\n- name: c\n  cluster: {server: 'https://x', tls-server-name: p}\n",
            "tls-server-name"},
        {HEAD "clusters:\n- name: c\n  cluster: {server: 'https://x', insecure-skip-tls-verify: "
              "true}\n",
            "insecure-skip-tls-verify"},
        {HEAD "clusters:\n- name: c\n  cluster: {server: 'https://x', "
              "certificate-authority-data: '*'}\n",
            "certificate-authority-data is not base64"},
        {HEAD CLUSTER USERS "{exec: {command: aws}}\n", "exec is not supported"},
        {HEAD CLUSTER USERS "{auth-provider: {name: gcp}}\n", "auth-provider is not supported"},
        {HEAD CLUSTER USERS "{username: root, password: x}\n", "username is not supported"},
        {HEAD CLUSTER USERS "{as: root}\n", "as is not supported"},
        {HEAD CLUSTER USERS "{client-certificate: x}\n", "not both"},
        {HEAD CLUSTER USERS "{token: \"a\\r\\nX: y\"}\n", "token"},
        {"a: [1, 2\nb: }", "line 2"},
        {"a: &x *x", "line 1"},
        {"\xff\xfe\xff", "line"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct kubeconfig config = {.server = (char *)"untouched"};
        struct error error = {0};
        bool passed = CHECK_EQ(
            kubeconfig_parse(rows[i].text, strlen(rows[i].text), &config, &error), -EINVAL);
        if (!CHECK(strstr(error.text, rows[i].named)) || !passed)
            printf("# row %zu: \"%s\"\n", i, error.text);
        CHECK_STR(config.server, "untouched");
    }
    fflush(stdout);
}

TEST("files that are missing get one line")
{
    struct error error = {0};
    begin();
    CHECK(!kube_auth_create(NULL, directory, &error));
    CHECK(strstr(error.text, "token"));
    put("token", "x");
    CHECK(!kube_auth_create(NULL, directory, &error));
    CHECK(strstr(error.text, "ca.crt"));
    unsetenv("KUBERNETES_SERVICE_HOST");
    CHECK(!kube_auth_create(NULL, directory, &error));
    CHECK(strstr(error.text, "KUBERNETES_SERVICE_HOST"));
    CHECK(!kube_auth_create("/nowhere/config", directory, &error));
    CHECK(strstr(error.text, "/nowhere/config"));
    setenv("KUBECONFIG", "/a:/b", 1);
    CHECK(!kube_auth_create(NULL, directory, &error));
    CHECK(strstr(error.text, "several files"));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
