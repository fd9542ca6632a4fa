/* SPDX-License-Identifier: Apache-2.0 */
/* Library, driver, doors and ledger, as the child met them. */
#include "doctor/checks.h"

#include <string.h>

#define NONE (-1)

static const char *or_unknown(const char *text)
{
    return text ? text : "unknown";
}

/* ---- the library ---- */

static void check_preloaded(struct checks *checks, const struct facts *facts)
{
    const char *path = fact(facts, "preload.path"), *by = fact(facts, "preload.by");
    if (fact_is(facts, "yes", "preload.works"))
        check_add(checks, "preload", NONE, CHECK_FINE, NULL,
            "programs that start here get the library by %s", by ? by : "their starter");
    else if (path)
        check_add(checks, "preload", NONE, CHECK_PROBLEM,
            "put this build's libvgpu.so there; lines of the loader on stderr say more",
            "%s names %s, which is not there, cannot be loaded, or is another libvgpu.so", by,
            path);
    else
        check_add(checks, "preload", NONE, CHECK_NOTE,
            "in a container, set LD_PRELOAD or write the library's path to /etc/ld.so.preload; by "
            "hand, use vgpu run",
            "programs that start here are not under the library; the rest was found with it");
}

static bool check_library(struct checks *checks, const struct facts *facts)
{
    const char *path = fact(facts, "library.path"), *error = fact(facts, "library.error");
    if (path && fact(facts, "report"))
        check_add(checks, "library", NONE, CHECK_FINE, NULL, "version %s, %s",
            or_unknown(fact(facts, "version")), path);
    else
        check_add(checks, "library", NONE, CHECK_PROBLEM,
            "install libvgpu.so beside vgpu or in its library directory",
            "libvgpu.so cannot be used: %s", error ? error : "it was not loaded");
    return path != NULL;
}

static void check_end(struct checks *checks, const struct facts *facts)
{
    const char *step = fact(facts, "step"), *ended = fact(facts, "probe.ended");
    if (fact_is(facts, "well", "probe.ended"))
        return;
    bool launches = step && !strncmp(step, "launch", 6);
    check_add(checks, "program", NONE, CHECK_PROBLEM,
        launches ? "a program of the container or of another tenant keeps the GPU, or it waits for "
                   "one of higher priority: end that, or wait"
                 : "nvidia-smi and the kernel's log may say what is wrong with the driver",
        "the small CUDA program ended %s; its step was: %s", or_unknown(ended), or_unknown(step));
}

static void check_system(struct checks *checks, const struct facts *facts)
{
    const char *kernel = or_unknown(fact(facts, "kernel.release"));
    const char *glibc = or_unknown(fact(facts, "glibc")), *box = fact(facts, "kernel.sandbox");
    if (box && strcmp(box, "none") != 0)
        check_add(checks, "system", NONE, CHECK_NOTE,
            "what it takes away is in the lines 'ledger' and 'gate'",
            "Linux %s, glibc %s, in the sandbox %s", kernel, glibc, box);
    else
        check_add(checks, "system", NONE, CHECK_FINE, NULL, "Linux %s, glibc %s", kernel, glibc);
    if (fact_is(facts, "yes", "mps"))
        check_add(checks, "mps", NONE, CHECK_NOTE,
            "to have running kernels stopped, use the GPU without MPS",
            "an MPS server is at work here: its clients' channels are the server's, and cannot be "
            "closed");
}

/* ---- the driver and its devices ---- */

static bool check_driver(struct checks *checks, const struct facts *facts)
{
    const char *error = fact(facts, "driver.error");
    if (error)
        check_add(checks, "driver", NONE, CHECK_PROBLEM,
            "give the container a GPU (docker run --gpus, a device plugin), or install NVIDIA's "
            "driver; vgpu run --sim needs none",
            "no CUDA driver: %s", error);
    else
        check_add(checks, "driver", NONE, CHECK_FINE, NULL, "%s, CUDA %s",
            or_unknown(fact(facts, "driver.version")), or_unknown(fact(facts, "driver.cuda")));
    if (!error && fact_is(facts, "0", "cuda.devices"))
        check_add(checks, "device", NONE, CHECK_PROBLEM,
            "look at CUDA_VISIBLE_DEVICES and at what the container was given",
            "the driver sees no device");
    return !error;
}

static void check_device(struct checks *checks, const struct facts *facts, int ordinal)
{
    static const struct {
        const char *name, *what;
    } steps[] = {{"context", "no context can be made"}, {"memory", "no memory can be allocated"},
        {"launch", "no kernel can be launched"}};
    check_add(checks, "device", ordinal, CHECK_FINE, NULL, "%s, %s",
        or_unknown(fact(facts, "cuda.%d.name", ordinal)),
        or_unknown(fact(facts, "cuda.%d.uuid", ordinal)));
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        const char *answer = fact(facts, "cuda.%d.%s", ordinal, steps[i].name);
        if (!answer || !strcmp(answer, "ok"))
            continue;
        bool full = !strcmp(answer, "CUDA_ERROR_OUT_OF_MEMORY");
        check_add(checks, steps[i].name, ordinal, CHECK_PROBLEM,
            full ? "free memory, or raise the limit: vgpu set --memory"
                 : "nvidia-smi and the kernel's log may say more",
            "%s: %s", steps[i].what, answer);
    }
    if (fact_is(facts, "ok", "cuda.%d.launch", ordinal))
        check_add(
            checks, "launch", ordinal, CHECK_FINE, NULL, "a context, an allocation and a kernel");
}

/* ---- doors ---- */

static void check_door(struct checks *checks, const char *state, const char *door, const char *lost,
    const char *remedy)
{
    if (state && !strcmp(state, "yes"))
        check_add(checks, "door", NONE, CHECK_FINE, NULL, "%s", door);
    else if (state && !strcmp(state, "absent"))
        check_add(checks, "door", NONE, CHECK_FINE, NULL, "%s: this driver has none of it", door);
    else
        check_add(checks, "door", NONE, CHECK_PROBLEM, remedy, "%s is not ours: %s", door, lost);
}

static void check_doors(struct checks *checks, const struct facts *facts)
{
    static const char first[] = "put libvgpu.so first in LD_PRELOAD or /etc/ld.so.preload";
    check_door(checks, fact(facts, "door.symbols"), "exported symbols",
        "programs that are linked with libcuda are not held", first);
    check_door(checks, fact(facts, "door.dlsym"), "dlsym",
        "programs that look the driver's functions up are not held", first);
    check_door(checks, fact(facts, "door.dlvsym"), "dlvsym",
        "programs that look the driver's functions up by version are not held", first);
    check_door(checks, fact(facts, "door.procaddress"), "cuGetProcAddress",
        "the CUDA runtime's programs are not held",
        "report it with the driver's version: its functions cannot be told");
    check_door(checks, fact(facts, "door.ioctl"), "ioctl",
        "memory is counted by the calls of the API, and running kernels cannot be stopped", first);
}

/* ---- ledger ---- */

static void check_rm_ledger(struct checks *checks, const struct facts *facts)
{
    unsigned long long own = fact_number(facts, "ledger.bytes");
    unsigned long long theirs = fact_number(facts, "ledger.driver_bytes");
    if (!fact_number(facts, "ledger.audits"))
        check_add(checks, "ledger", NONE, CHECK_NOTE,
            "none is needed; with the host's PID namespace the driver would tell",
            "memory is counted below the API; the driver has no figure of a process here to "
            "compare with");
    else if (own != theirs)
        check_add(checks, "ledger", NONE, CHECK_NOTE,
            "report it with the driver's version; the larger figure counts",
            "memory is counted below the API: %llu bytes, where the driver (NVML) says %llu", own,
            theirs);
    else
        check_add(checks, "ledger", NONE, CHECK_FINE, NULL,
            "memory is counted below the API: %llu bytes, as the driver (NVML) says", own);
}

static void check_ledger(struct checks *checks, const struct facts *facts)
{
    const char *blindness = fact(facts, "ledger.blindness");
    if (fact_is(facts, "rm", "ledger.used") && fact_is(facts, "none", "ledger.blindness"))
        check_rm_ledger(checks, facts);
    else if (fact_is(facts, "undecided", "ledger.used"))
        check_add(checks, "ledger", NONE, CHECK_NOTE, "see the lines above",
            "not chosen: no context was made");
    else if (fact_is(facts, "auto", "ledger.setting"))
        check_add(checks, "ledger", NONE, CHECK_NOTE,
            "docs/compatibility.md tells what is not counted so",
            "memory is counted by the calls of the API: %s", or_unknown(blindness));
    else
        check_add(checks, "ledger", NONE, CHECK_NOTE, "unset VGPU_LEDGER",
            "memory is counted as VGPU_LEDGER=%s says%s%s",
            or_unknown(fact(facts, "ledger.setting")),
            fact_is(facts, "rm", "ledger.setting") ? ", and not seen: " : "",
            fact_is(facts, "rm", "ledger.setting") ? or_unknown(blindness) : "");
}

void checks_of_process(struct checks *checks, const struct facts *facts)
{
    check_preloaded(checks, facts);
    check_system(checks, facts);
    bool library = check_library(checks, facts);
    check_end(checks, facts);
    if (!library)
        return;
    bool driver = check_driver(checks, facts);
    for (int ordinal = 0; ordinal < (int)fact_number(facts, "cuda.devices"); ordinal++) {
        if (fact(facts, "cuda.%d.uuid", ordinal) || fact(facts, "cuda.%d.context", ordinal))
            check_device(checks, facts, ordinal);
    }
    if (driver && fact(facts, "door.dlsym")) {
        check_doors(checks, facts);
        check_ledger(checks, facts);
    }
}
