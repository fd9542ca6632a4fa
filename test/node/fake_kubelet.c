/* SPDX-License-Identifier: Apache-2.0 */
/* fake-kubelet DIRECTORY [POD_RESOURCES_SOCKET]: plays the kubelet for device plugins, as
 * Kubernetes 1.34 does it: serves Registration at DIRECTORY/kubelet.sock; within Register it
 * connects to the plugin and asks for its options; then it holds one ListAndWatch stream. A second
 * registration of a resource ends the first one's connection.
 *
 * Commands are JSON objects on stdin, one a line; events are JSON objects on stdout, one a line.
 *   {"do": "allocate", "resource": R, "containers": [["id", ...], ...]}
 *   {"do": "preferred", "resource": R, "containers": [{"available": [...], "must_include": [...],
 * "size": N}]}
 *   {"do": "prestart", "resource": R, "devices": ["id", ...]}
 *     with "timeout_ms" where it is not to wait for ever, "tag" for the answer to have it too
 *   {"do": "drop", "resource": R}       ends the connection to the plugin
 *   {"do": "refuse", "text": T}         Register fails with T; without "text" it works again
 *   {"do": "pods", "pods": [{"namespace": , "name": , "containers": [{"name": , "devices":
 *                            [{"resource": , "ids": []}]}]}]}   what pod-resources answers
 *   {"do": "mute", "on": true}          pod-resources does not answer
 *   {"do": "stop"}, {"do": "start"}     the sockets go; starting deletes all files in DIRECTORY
 * first Events: serving, register, devices, ended (of ListAndWatch), allocate, preferred, prestart,
 * bad. */
#include "fake_kubelet.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES (16 << 20)

static struct fake fake;

static void tell_bad(const char *text)
{
    fake_tell(json_pack("{s:s, s:s}", "event", "bad", "text", text));
}

static void empty_directory(void)
{
    DIR *directory = opendir(fake.directory);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (entry->d_name[0] != '.' && entry->d_type != DT_DIR)
            unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
}

static struct grpc_server *serve_at(
    const char *path, const struct grpc_method *methods, size_t count)
{
    struct grpc_server *server = grpc_server_create(fake.base, methods, count, &fake, NULL);
    struct unix_socket_file file;
    struct error error = {.text = "no memory"};
    int fd;
    unlink(path);
    if (!server || unix_socket_listen(path, &fd, &file, &error) != 0 ||
        grpc_server_listen(server, fd, &error) != 0) {
        fprintf(stderr, "fake-kubelet: %s\n", error.text);
        exit(1);
    }
    fake_tell(json_pack("{s:s, s:s}", "event", "serving", "socket", path));
    return server;
}

static void start(void)
{
    char path[256];
    if (fake.registration)
        return;
    empty_directory();
    snprintf(path, sizeof(path), "%s/kubelet.sock", fake.directory);
    fake.registration = serve_at(path, fake_registration_methods, 1);
    if (fake.pod_resources_path)
        fake.pod_resources = serve_at(fake.pod_resources_path, fake_pod_resources_methods, 2);
}

static void stop(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/kubelet.sock", fake.directory);
    fake_drop_all(&fake);
    grpc_server_destroy(fake.registration);
    grpc_server_destroy(fake.pod_resources);
    fake.registration = fake.pod_resources = NULL;
    unlink(path);
    if (fake.pod_resources_path)
        unlink(fake.pod_resources_path);
}

static void obey(json_t *command)
{
    const char *what = json_string_value(json_object_get(command, "do"));
    if (!what)
        tell_bad("a command without \"do\"");
    else if (!strcmp(what, "start"))
        start();
    else if (!strcmp(what, "stop"))
        stop();
    else if (!strcmp(what, "refuse"))
        snprintf(fake.refusal, sizeof(fake.refusal), "%s",
            json_is_string(json_object_get(command, "text"))
                ? json_string_value(json_object_get(command, "text"))
                : "");
    else if (!strcmp(what, "mute"))
        fake.mute = json_is_true(json_object_get(command, "on"));
    else if (!strcmp(what, "pods"))
        fake_set_pods(&fake, command);
    else if (!fake_call_plugin(&fake, what, command))
        tell_bad("an unknown command, or a resource that is not registered");
}

static void on_input(evutil_socket_t fd, short event, void *argument)
{
    static char line[LINE_BYTES];
    static size_t length;
    (void)event, (void)argument;
    ssize_t got = read(fd, line + length, sizeof(line) - length);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        event_base_loopbreak(fake.base);
        return;
    }
    length += (size_t)got;
    for (char *end; (end = memchr(line, '\n', length));) {
        json_error_t error;
        json_t *command = json_loadb(line, (size_t)(end - line), 0, &error);
        if (command)
            obey(command);
        else
            tell_bad(error.text);
        json_decref(command);
        length -= (size_t)(end + 1 - line);
        memmove(line, end + 1, length);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: fake-kubelet DIRECTORY [POD_RESOURCES_SOCKET]\n");
        return 2;
    }
    fake.base = event_base_new();
    fake.directory = argv[1];
    fake.pod_resources_path = argv[2];
    setvbuf(stdout, NULL, _IOLBF, 0);
    start();
    /* A file on stdin is no thing for epoll; a pipe is. */
    struct event *input = event_new(fake.base, STDIN_FILENO, EV_READ | EV_PERSIST, on_input, NULL);
    if (!input || event_add(input, NULL) != 0) {
        fprintf(stderr, "fake-kubelet: stdin must be a pipe or a terminal\n");
        return 1;
    }
    event_base_dispatch(fake.base);
    stop();
    return 0;
}
