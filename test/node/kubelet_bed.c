/* SPDX-License-Identifier: Apache-2.0 */
#include "kubelet_bed.h"

#include "check.h"
#include "scratch.h"

#define LINE_BYTES (8 << 20)

struct event_base *bed_base;
char bed_directory[64], bed_kubelet_socket[96], bed_pods_socket[96];

static pid_t fake;
static int to_fake = -1;
static struct event *from_fake;
static json_t *events;

uint64_t bed_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void bed_begin(void)
{
    bed_base = event_base_new();
    events = json_array();
    REQUIRE(bed_base && scratch_make(bed_directory));
    snprintf(bed_kubelet_socket, sizeof(bed_kubelet_socket), "%s/kubelet.sock", bed_directory);
    snprintf(bed_pods_socket, sizeof(bed_pods_socket), "%s.pods", bed_directory);
}

static void on_output(evutil_socket_t fd, short what, void *argument)
{
    static char line[LINE_BYTES];
    static size_t length;
    (void)what, (void)argument;
    ssize_t got = read(fd, line + length, sizeof(line) - length);
    if (got <= 0) {
        event_del(from_fake);
        return;
    }
    length += (size_t)got;
    for (char *end; (end = memchr(line, '\n', length));) {
        json_t *event = json_loadb(line, (size_t)(end - line), 0, NULL);
        if (CHECK(event))
            json_array_append_new(events, event);
        length -= (size_t)(end + 1 - line);
        memmove(line, end + 1, length);
    }
}

void bed_start_fake(void)
{
    const char *program = getenv("FAKE_KUBELET");
    int in[2], out[2];
    REQUIRE(program && pipe(in) == 0 && pipe(out) == 0);
    fake = fork();
    if (fake == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execl(program, program, bed_directory, bed_pods_socket, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_fake = in[1];
    from_fake = event_new(bed_base, out[0], EV_READ | EV_PERSIST, on_output, NULL);
    event_add(from_fake, NULL);
    json_t *event = bed_event("serving", BED_WAIT_MS);
    REQUIRE(event);
    json_decref(event);
}

void bed_kill_fake(void)
{
    kill(fake, SIGKILL);
    waitpid(fake, NULL, 0);
    event_free(from_fake);
    close(to_fake);
}

void bed_command(const char *line)
{
    REQUIRE(write(to_fake, line, strlen(line)) == (ssize_t)strlen(line));
    REQUIRE(write(to_fake, "\n", 1) == 1);
}

static void on_tick(evutil_socket_t fd, short what, void *argument)
{
    (void)fd, (void)what, (void)argument;
}

/* One turn of the loop, of 2 ms at most. */
static void turn(void)
{
    const struct timeval slice = {0, 2000};
    event_base_once(bed_base, -1, EV_TIMEOUT, on_tick, NULL, &slice);
    event_base_loop(bed_base, EVLOOP_ONCE);
}

bool bed_until(const volatile unsigned *word, unsigned wanted, unsigned ms)
{
    uint64_t end = bed_now_ms() + ms;
    while (*word != wanted && bed_now_ms() < end)
        turn();
    return *word == wanted;
}

void bed_run(unsigned ms)
{
    unsigned never = 0;
    (void)bed_until(&never, 1, ms);
}

const char *bed_text(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

void bed_stop_reading(void)
{
    event_del(from_fake);
}

json_t *bed_event(const char *name, unsigned ms)
{
    uint64_t end = bed_now_ms() + ms;
    for (;;) {
        while (json_array_size(events)) {
            json_t *event = json_incref(json_array_get(events, 0));
            json_array_remove(events, 0);
            if (!strcmp(bed_text(event, "event"), name))
                return event;
            json_decref(event);
        }
        if (bed_now_ms() >= end)
            return NULL;
        turn();
    }
}

unsigned bed_count_events(const char *name, unsigned ms)
{
    unsigned count = 0;
    uint64_t end = bed_now_ms() + ms;
    while (bed_now_ms() < end) {
        json_t *event = bed_event(name, (unsigned)(end - bed_now_ms()));
        count += event != NULL;
        json_decref(event);
    }
    return count;
}
