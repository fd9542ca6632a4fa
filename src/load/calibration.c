/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of two lengths, timed by events with work before them, so that none waits for us. */
#include "load/calibration.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WARM_UP_NS 150000000u
#define ROUNDS 9
#define SHORT_US 10
#define LONG_US 500
#define GUESS_STEPS 2000
/* A limit or a neighbour makes a measurement longer, nothing makes it shorter: where they differ
 * more than clocks do, the smallest is taken instead of the median. */
#define SPREAD_QUIET 0.02
/* A larger spread comes only from work of others, or from a limit. */
#define SPREAD_DISTURBED 0.1
#define FILE_BYTES_MAX (1 << 22)

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Microseconds of one kernel among `launches` launches, once. */
static double time_once(const struct load_device *device, const struct load_kernel *kernel,
    unsigned launches, CUevent events[2], CUstream stream)
{
    unsigned covering = launches * load_kernel_count(kernel) < 8 ? 1 : 8;
    struct load_kernel before = {.form = FORM_FULL, .steps = kernel->steps};
    float ms;
    /* Covers the time that it takes to launch the others. */
    for (unsigned i = 0; i < covering; i++)
        load_kernel_launch(device, &before, stream);
    LOAD_CALL(cuEventRecord, events[0], stream);
    for (unsigned i = 0; i < launches; i++)
        load_kernel_launch(device, kernel, stream);
    LOAD_CALL(cuEventRecord, events[1], stream);
    LOAD_CALL(cuEventSynchronize, events[1]);
    LOAD_CALL(cuEventElapsedTime, &ms, events[0], events[1]);
    return (double)ms * 1000 / (launches * load_kernel_count(kernel));
}

struct timing {
    double us, spread;
};

static struct timing time_steps(const struct load_device *device, enum load_form form,
    uint32_t steps, unsigned kernels, CUstream stream)
{
    struct load_kernel kernel = load_kernel_make(device, form, steps);
    unsigned launches = kernels / load_kernel_count(&kernel);
    CUevent events[2];
    double us[ROUNDS];
    LOAD_CALL(cuEventCreate, &events[0], CU_EVENT_DEFAULT);
    LOAD_CALL(cuEventCreate, &events[1], CU_EVENT_DEFAULT);
    for (int i = 0; i < ROUNDS; i++)
        us[i] = time_once(device, &kernel, launches ? launches : 1, events, stream);
    qsort(us, ROUNDS, sizeof(us[0]), ascending);
    struct timing timing = {us[ROUNDS / 2], us[0] > 0 ? us[ROUNDS / 2] / us[0] - 1 : 1};
    if (timing.spread > SPREAD_QUIET)
        timing.us = us[0];
    return timing;
}

void load_calibration_warm_up(const struct load_device *device, CUstream stream)
{
    struct load_kernel kernel = load_kernel_make(device, FORM_FULL, 20 * GUESS_STEPS);
    uint64_t end_ns = clock_now_ns() + WARM_UP_NS;
    while (clock_now_ns() < end_ns) {
        for (int i = 0; i < 8; i++)
            load_kernel_launch(device, &kernel, stream);
        LOAD_CALL(cuStreamSynchronize, stream);
    }
}

/* Others' turns of 2 ms and more come into each measurement that takes as long, all of them alike,
 * and into few of those of half a millisecond: what took less there is believed in their place. */
static void see_undisturbed(const struct load_device *device, enum load_form form, CUstream stream,
    uint32_t few, const struct timing *brief, uint32_t *many, struct timing *lasting,
    double *spread)
{
    const struct load_kernel kernel = {.form = form};
    uint32_t steps = *many / load_kernel_count(&kernel);
    steps = steps > few ? steps : few + 1;
    struct timing once = time_steps(device, form, steps, 1, stream);
    double slope = (lasting->us - brief->us) / (*many - few);
    double longer = (brief->us + (steps - few) * slope) / once.us - 1;
    if (longer < SPREAD_DISTURBED || once.us <= brief->us)
        return;
    *many = steps;
    *lasting = once;
    *spread = longer > *spread ? longer : *spread;
}

static struct load_rate measure(
    const struct load_device *device, enum load_form form, CUstream stream)
{
    uint32_t steps = GUESS_STEPS;
    struct timing guess = time_steps(device, form, steps, 8, stream);
    for (int i = 0; guess.us < LONG_US / 4.0 && i < 8; i++) {
        steps *= 4;
        guess = time_steps(device, form, steps, 8, stream);
    }
    double per_us = steps / guess.us;
    uint32_t few = (uint32_t)(per_us * SHORT_US), many = (uint32_t)(per_us * LONG_US);
    few = few ? few : 1;
    many = many > few ? many : few + 1;
    struct timing brief = time_steps(device, form, few, 40, stream);
    struct timing lasting = time_steps(device, form, many, 4, stream);
    if (lasting.us <= brief.us)
        load_fail("calibration: %u steps took %.1f us and %u took %.1f us", few, brief.us, many,
            lasting.us);
    struct load_rate rate = {
        .spread = brief.spread > lasting.spread ? brief.spread : lasting.spread};
    see_undisturbed(device, form, stream, few, &brief, &many, &lasting, &rate.spread);
    rate.steps_per_us = (many - few) / (lasting.us - brief.us);
    double overhead_us = brief.us - few / rate.steps_per_us;
    rate.overhead_us = overhead_us > 0 ? overhead_us : 0;
    return rate;
}

void load_calibration_measure(struct load_calibration *calibration, struct load_device *device,
    enum load_form form, CUstream stream)
{
    load_kernel_set_brief(device, true);
    calibration->rates[form] = measure(device, form, stream);
    load_kernel_set_brief(device, false);
    if (form == FORM_PERSISTENT)
        calibration->rates[form].overhead_us = 0; /* of its launch: paid once */
    snprintf(calibration->device, sizeof(calibration->device), "%s", device->name);
}

double load_calibration_us(const struct load_rate *rate, uint32_t steps)
{
    return rate->overhead_us + steps / rate->steps_per_us;
}

uint32_t load_calibration_steps(const struct load_rate *rate, double kernel_us)
{
    double steps = (kernel_us - rate->overhead_us) * rate->steps_per_us;
    if (steps > UINT32_MAX)
        return UINT32_MAX;
    /* In fours, as the compiler unrolls the loop. */
    return steps < 4 ? 4 : (uint32_t)(steps / 4 + 0.5) * 4;
}

void load_calibration_write(const struct load_calibration *calibration, FILE *file)
{
    fputs("{\"calibrated_on\": \"", file);
    for (const char *at = calibration->device; *at; at++)
        fputc(*at == '"' || *at == '\\' || (unsigned char)*at < ' ' ? '?' : *at, file);
    fputc('"', file);
    for (int i = 0; i < FORMS; i++) {
        const struct load_rate *rate = &calibration->rates[i];
        if (rate->steps_per_us > 0)
            fprintf(file,
                ", \"%s\": {\"steps_per_us\": %.6f, \"overhead_us\": %.4f, \"spread\": %.4f}",
                load_form_name((enum load_form)i), rate->steps_per_us, rate->overhead_us,
                rate->spread);
    }
    fputc('}', file);
}

void load_calibration_save(const struct load_calibration *calibration, const char *path)
{
    FILE *file = fopen(path, "we");
    if (!file)
        load_fail("--save-calibration \"%.256s\": %s", path, strerror(errno));
    load_calibration_write(calibration, file);
    fputc('\n', file);
    if (fclose(file) != 0)
        load_fail("--save-calibration \"%.256s\": %s", path, strerror(errno));
}

/* Behind `"key":` in the text, blanks skipped; NULL where there is none with `first` after it. */
static const char *find_value(const char *text, const char *key, const char *first)
{
    char quoted[64];
    int length = snprintf(quoted, sizeof(quoted), "\"%s\"", key);
    while ((text = strstr(text, quoted))) {
        text += length;
        const char *at = text + strspn(text, " \t\r\n");
        if (*at != ':')
            continue;
        at++;
        at += strspn(at, " \t\r\n");
        if (*at && strchr(first, *at))
            return at;
    }
    return NULL;
}

static double find_number(const char *object, const char *key)
{
    const char *end = object ? strchr(object, '}') : NULL;
    const char *value = object ? find_value(object, key, "0123456789") : NULL;
    return value && end && value < end ? strtod(value, NULL) : -1;
}

static void find_device(const char *text, struct load_calibration *calibration)
{
    const char *value = find_value(text, "calibrated_on", "\"");
    size_t length = value ? strcspn(value + 1, "\"") : 0;
    if (length < sizeof(calibration->device))
        memcpy(calibration->device, value ? value + 1 : "", length);
}

void load_calibration_read(struct load_calibration *calibration, const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = calloc(1, FILE_BYTES_MAX + 1);
    if (!file || !text)
        load_fail("--calibration \"%.256s\": %s", path, strerror(errno));
    size_t length = fread(text, 1, FILE_BYTES_MAX, file);
    if (ferror(file))
        load_fail("--calibration \"%.256s\": %s", path, strerror(errno));
    fclose(file);
    text[length] = '\0';
    bool any = false;
    for (int i = 0; i < FORMS; i++) {
        const char *object = find_value(text, load_form_name((enum load_form)i), "{");
        double steps = find_number(object, "steps_per_us");
        double overhead = find_number(object, "overhead_us");
        if (steps > 0 && overhead >= 0) {
            calibration->rates[i] = (struct load_rate){.steps_per_us = steps,
                .overhead_us = overhead,
                .spread = find_number(object, "spread")};
            any = true;
        }
    }
    find_device(text, calibration);
    free(text);
    if (!any)
        load_fail("--calibration \"%.256s\" is not accepted; accepted: a file that "
                  "--save-calibration or --json wrote",
            path);
}
