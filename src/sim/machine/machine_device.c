/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's devices and versions. */
#include "sim/machine/machine.h"

#include "sim/machine/machine_layout.h"

#include <stdio.h>
#include <string.h>

static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15ull;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

static void make_device(
    struct sim_device *device, uint32_t index, const struct sim_model *model, uint64_t salt)
{
    *device = (struct sim_device){.model = *model, .pci_bus = index + 1, .minor = index};
    uint64_t halves[2] = {mix(salt + index * 2ull), mix(salt + index * 2ull + 1)};
    uint8_t *u = device->uuid_bytes;
    memcpy(u, halves, sizeof halves);
    u[6] = (uint8_t)((u[6] & 0x0f) | 0x40); /* a version 4 UUID, as seen */
    u[8] = (uint8_t)((u[8] & 0x3f) | 0x80);
    snprintf(device->uuid, sizeof device->uuid,
        "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
        model->mig_card ? "MIG" : "GPU", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9],
        u[10], u[11], u[12], u[13], u[14], u[15]);
    snprintf(
        device->pci_bus_id, sizeof device->pci_bus_id, "0000:%02X:00.0", device->pci_bus & 0xffu);
}

/* An instance is where its card is. */
static void make_instance(
    struct sim_machine *machine, uint32_t index, const struct sim_model *model, uint64_t salt)
{
    struct sim_device *card = &machine->devices[model->mig_card - 1];
    struct sim_device *instance = &machine->devices[index];
    make_device(instance, index, model, salt);
    memcpy(instance->pci_bus_id, card->pci_bus_id, sizeof instance->pci_bus_id);
    instance->pci_bus = card->pci_bus;
    instance->minor = card->minor;
    instance->gpu_instance = ++card->instance_count;
}

void sim_devices_init(
    struct sim_machine *machine, const struct sim_description *description, uint64_t salt)
{
    machine->card_count = description->device_count;
    machine->device_count = description->device_count + description->instance_count;
    for (uint32_t i = 0; i < machine->card_count; i++)
        make_device(&machine->devices[i], i, &description->devices[i], salt);
    for (uint32_t i = machine->card_count; i < machine->device_count; i++)
        make_instance(machine, i, &description->devices[i], salt);
}

const char *sim_driver_version(void)
{
    return sim_machine->driver_version;
}

unsigned sim_cuda_version(void)
{
    return sim_machine->cuda_version;
}

unsigned sim_device_count(void)
{
    return sim_machine->card_count;
}

unsigned sim_unit_count(void)
{
    return sim_machine->device_count;
}

const struct sim_device *sim_device_card(const struct sim_device *device)
{
    return device->model.mig_card ? sim_device(device->model.mig_card - 1) : device;
}

const struct sim_device *sim_device(unsigned index)
{
    return index < sim_machine->device_count ? &sim_machine->devices[index] : NULL;
}
