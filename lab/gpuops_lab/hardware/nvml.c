/*
 * Copyright: Contributors to the gpuops.k8s project
 * GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A simulated libnvidia-ml: the calls that a device plugin, feature discovery and CDI generation make.
 * It shows the GPUs of a table whose folders the driver's /proc tree holds, and fails without a driver as the
 * vendor's library does. All paths lie below the root that the library itself was loaded from, so that it works
 * from a mounted driver root too; GPUOPS_ROOT names another one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9, TIMEOUT = 10 };
enum { MAXIMUM = 64, SAME_NODE = 40, OTHER_NODE = 50 };

typedef struct {
    char address[16], uuid[48], name[64];
    unsigned minor, memory_mib, major_capability, minor_capability, device_id, subsystem_id;
    int numa;
} Gpu;

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} PciInfo;

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

static Gpu gpus[MAXIMUM];
static unsigned count;
static char driver_version[32];

static const char *below_root(const char *path)
{
    static char text[1024], own[512];
    const char *root = getenv("GPUOPS_ROOT");
    Dl_info place;
    if (!root && dladdr(text, &place) && place.dli_fname && place.dli_fname[0] == '/') {
        snprintf(own, sizeof own, "%s", place.dli_fname);
        char *end = strstr(own, "/usr/lib");
        if (!end) end = strstr(own, "/lib");
        if (end) *end = 0;
        root = end ? own : "";
    }
    snprintf(text, sizeof text, "%s%s", root ? root : "", path);
    return text;
}

static int is_there(const char *path) { return access(below_root(path), F_OK) == 0; }

static int copy(char *target, unsigned length, const char *text)
{
    if (!target) return INVALID_ARGUMENT;
    if (strlen(text) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(target, text);
    return SUCCESS;
}

static int load(void)
{
    char line[512], path[128];
    count = 0;
    if (!is_there("/proc/driver/nvidia/version") || !is_there("/dev/nvidiactl")) return NOT_LOADED;
    FILE *table = fopen(below_root("/usr/share/gpuops-lab/nvml.tsv"), "r");
    if (!table) return NOT_LOADED;
    if (fgets(line, sizeof line, table)) sscanf(line, "%31s", driver_version);
    while (count < MAXIMUM && fgets(line, sizeof line, table)) {
        Gpu *gpu = &gpus[count];
        int read = sscanf(line, "%15[^\t]\t%47[^\t]\t%63[^\t]\t%u\t%u\t%u\t%u\t%x\t%x\t%d", gpu->address, gpu->uuid, gpu->name,
                          &gpu->minor, &gpu->memory_mib, &gpu->major_capability, &gpu->minor_capability, &gpu->device_id,
                          &gpu->subsystem_id, &gpu->numa);
        snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s", gpu->address);
        if (read == 10 && is_there(path)) count++;
    }
    fclose(table);
    return SUCCESS;
}

int nvmlInit_v2(void) { return load(); }
int nvmlInit(void) { return load(); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return load(); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "Success";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) { return copy(text, length, driver_version); }
int nvmlSystemGetNVMLVersion(char *text, unsigned length) { return copy(text, length, driver_version); }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = atoi(driver_version) >= 580 ? 13000 : 12040; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

int nvmlDeviceGetCount_v2(unsigned *number) { *number = count; return SUCCESS; }
int nvmlDeviceGetCount(unsigned *number) { return nvmlDeviceGetCount_v2(number); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu)
{
    if (index >= count) return INVALID_ARGUMENT;
    *gpu = &gpus[index];
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex(unsigned index, Gpu **gpu) { return nvmlDeviceGetHandleByIndex_v2(index, gpu); }

int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(gpus[i].uuid, uuid) == 0) { *gpu = &gpus[i]; return SUCCESS; }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Gpu **gpu)
{
    size_t length = strlen(id);
    for (unsigned i = 0; i < count; i++)
        if (length >= 12 && strcasecmp(gpus[i].address + 5, id + length - 7) == 0) { *gpu = &gpus[i]; return SUCCESS; }
    return NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId(const char *id, Gpu **gpu) { return nvmlDeviceGetHandleByPciBusId_v2(id, gpu); }

int nvmlDeviceGetName(Gpu *gpu, char *text, unsigned length) { return copy(text, length, gpu->name); }
int nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned length) { return copy(text, length, gpu->uuid); }
int nvmlDeviceGetMinorNumber(Gpu *gpu, unsigned *number) { *number = gpu->minor; return SUCCESS; }
int nvmlDeviceGetIndex(Gpu *gpu, unsigned *index) { *index = (unsigned)(gpu - gpus); return SUCCESS; }
int nvmlDeviceGetBrand(Gpu *gpu, int *brand) { (void)gpu; *brand = 0; return SUCCESS; }
int nvmlDeviceGetArchitecture(Gpu *gpu, unsigned *architecture)
{
    unsigned major = gpu->major_capability, minor = gpu->minor_capability;
    *architecture = major >= 10 ? 10 : major == 9 ? 9 : minor == 9 ? 8 : major == 8 ? 7 : 6;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor)
{
    *major = (int)gpu->major_capability;
    *minor = (int)gpu->minor_capability;
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, PciInfo *info)
{
    memset(info, 0, sizeof *info);
    sscanf(gpu->address, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->legacy, sizeof info->legacy, "%04X:%02X:%02X.0", info->domain & 0xffff, info->bus & 0xff, info->device & 0xff);
    snprintf(info->id, sizeof info->id, "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
    info->device_id = gpu->device_id << 16 | 0x10de;
    info->subsystem_id = gpu->subsystem_id;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory)
{
    memory->total = (unsigned long long)gpu->memory_mib << 20;
    memory->used = 1 << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, MemoryV2 *memory)
{
    memory->total = (unsigned long long)gpu->memory_mib << 20;
    memory->reserved = 0;
    memory->used = 1 << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) { (void)gpu; *current = *pending = 0; return SUCCESS; }
int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *number) { (void)gpu; *number = 0; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned index, Gpu **part) { (void)gpu, (void)index, (void)part; return NOT_FOUND; }
int nvmlDeviceIsMigDeviceHandle(Gpu *gpu, unsigned *answer) { (void)gpu; *answer = 0; return SUCCESS; }
int nvmlDeviceGetAttributes_v2(Gpu *gpu, void *attributes) { (void)gpu, (void)attributes; return NOT_SUPPORTED; }
int nvmlDeviceGetGpuFabricInfo(Gpu *gpu, void *info) { (void)gpu, (void)info; return NOT_SUPPORTED; }
int nvmlDeviceGetGpuFabricInfoV(Gpu *gpu, void *info) { (void)gpu, (void)info; return NOT_SUPPORTED; }
int nvmlDeviceGetAddressingMode(Gpu *gpu, void *mode) { (void)gpu, (void)mode; return NOT_SUPPORTED; }
int nvmlDeviceGetVirtualizationMode(Gpu *gpu, unsigned *mode) { (void)gpu; *mode = 0; return SUCCESS; }
int nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned link, unsigned *state) { (void)gpu, (void)link, (void)state; return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Gpu *gpu, unsigned link, PciInfo *info) { (void)gpu, (void)link, (void)info; return NOT_SUPPORTED; }

int nvmlDeviceGetTopologyCommonAncestor(Gpu *first, Gpu *second, int *level)
{
    *level = first == second ? 0 : first->numa == second->numa ? SAME_NODE : OTHER_NODE;
    return SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(Gpu *gpu, unsigned long long *types) { (void)gpu; *types = 0x1f; return SUCCESS; }
int nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long types, void *set) { (void)gpu, (void)types, (void)set; return SUCCESS; }
int nvmlEventSetCreate(void **set) { *set = gpus; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlEventSetWait_v2(void *set, void *data, unsigned milliseconds)
{
    (void)set, (void)data;
    struct timespec pause = { milliseconds / 1000, (long)(milliseconds % 1000) * 1000000 };
    nanosleep(&pause, NULL);
    return TIMEOUT;
}
