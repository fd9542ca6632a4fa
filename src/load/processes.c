/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that share one page: the first calibrates, all begin when the last is ready. */
#include "load/processes.h"

#include "base/clock.h"
#include "load/shapes.h"
#include "load/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MARGIN_NS 20000000u
#define POLL_NS 1000000

struct shared {
    atomic_bool calibrated;
    atomic_uint ready;
    _Atomic uint64_t start_ns; /* 0: not all are ready */
    struct load_calibration calibration;
    double work_per_second[LOAD_PROCESSES_MAX];
};

static int run_alone(const struct load_options *options)
{
    static struct load_run run;
    load_run_open(&run, options);
    load_run_calibrate(&run);
    load_run_prepare(&run);
    load_shape_run(&run, 0);
    if (options->json) {
        load_run_write_json(&run, stdout);
        puts("");
    } else {
        load_run_print(&run);
    }
    return EXIT_SUCCESS;
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, POLL_NS}, NULL);
}

static void wait_for_start(struct shared *shared, const struct load_options *options)
{
    if (atomic_fetch_add(&shared->ready, 1) + 1 == options->processes)
        atomic_store(&shared->start_ns, clock_now_ns() + START_MARGIN_NS);
    while (!atomic_load(&shared->start_ns) && !load_stop)
        nap();
}

static void run_child(
    const struct load_options *options, struct shared *shared, unsigned number, FILE *report)
{
    static struct load_run run;
    static char label[16];
    snprintf(label, sizeof(label), "[%u] ", number);
    run.meter.label = label;
    load_run_open(&run, options);
    if (number == 0) {
        load_run_calibrate(&run);
        shared->calibration = run.calibration;
        atomic_store(&shared->calibrated, true);
    }
    while (!atomic_load(&shared->calibrated) && !load_stop)
        nap();
    if (!atomic_load(&shared->calibrated))
        exit(EXIT_SUCCESS);
    run.calibration = shared->calibration;
    load_run_prepare(&run);
    wait_for_start(shared, options);
    load_shape_run(&run, atomic_load(&shared->start_ns));
    shared->work_per_second[number] = load_meter_work_per_second(&run.meter);
    if (options->json)
        load_run_write_json(&run, report);
    else
        load_run_print(&run);
    fflush(report);
    exit(EXIT_SUCCESS);
}

static void tell_all(const pid_t *children, unsigned count, int signal)
{
    for (unsigned i = 0; i < count; i++) {
        if (children[i] > 0)
            kill(children[i], signal);
    }
}

/* Waits for all; one that failed ends the others, and a signal is passed on. */
static int wait_for_all(pid_t *children, unsigned count)
{
    int status = EXIT_SUCCESS;
    bool told = false;
    for (unsigned left = count; left;) {
        int child_status;
        pid_t child = waitpid(-1, &child_status, WNOHANG);
        if (load_stop && !told) {
            tell_all(children, count, SIGTERM);
            told = true;
        }
        if (child <= 0) {
            nap();
            continue;
        }
        left--;
        for (unsigned i = 0; i < count; i++) {
            if (children[i] == child)
                children[i] = 0;
        }
        if (child_status != 0) {
            status = LOAD_FAILED;
            load_stop = 1;
        }
    }
    return status;
}

static void copy_report(FILE *report)
{
    char buffer[4096];
    size_t length;
    rewind(report);
    while ((length = fread(buffer, 1, sizeof(buffer), report)))
        fwrite(buffer, 1, length, stdout);
}

static void print_all(
    const struct load_options *options, const struct shared *shared, FILE **reports, unsigned count)
{
    double sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += shared->work_per_second[i];
    if (!options->json) {
        printf("all: work per second %.4f\n", sum);
        return;
    }
    printf("{\"work_per_second\": %.5f, \"processes\": [", sum);
    for (unsigned i = 0; i < count; i++) {
        fputs(i ? ",\n" : "\n", stdout);
        copy_report(reports[i]);
    }
    puts("\n]}");
}

static int run_several(const struct load_options *options)
{
    unsigned count = (unsigned)options->processes;
    FILE *reports[LOAD_PROCESSES_MAX];
    pid_t children[LOAD_PROCESSES_MAX] = {0};
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        load_fail("cannot share memory: %s", strerror(errno));
    for (unsigned i = 0; i < count; i++) {
        reports[i] = tmpfile();
        if (!reports[i])
            load_fail("cannot make a temporary file: %s", strerror(errno));
        children[i] = fork();
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            run_child(options, shared, i, reports[i]);
        }
        if (children[i] < 0) {
            load_error("cannot fork: %s", strerror(errno));
            tell_all(children, i, SIGTERM);
            return LOAD_FAILED;
        }
    }
    int status = wait_for_all(children, count);
    if (status == EXIT_SUCCESS)
        print_all(options, shared, reports, count);
    return status;
}

int load_processes_run(const struct load_options *options)
{
    return options->processes == 1 ? run_alone(options) : run_several(options);
}
