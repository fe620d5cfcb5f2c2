/*
 * Copyright: Contributors to the gpuops.k8s project
 * GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A simulated libnvidia-ml: the calls that a device plugin, feature discovery and CDI generation make.
 * It shows the GPUs of a table whose folders the driver's /proc tree holds, and fails without a driver as the
 * vendor's library does. All paths lie below the root that the library itself was loaded from, so that it works
 * from a mounted driver root too; GPUOPS_ROOT names another one.
 *
 * What goes wrong stands in a file of its own, read at each call, one fault a line: "lost ADDRESS" for a GPU that has
 * fallen off the bus, "xid ADDRESS CODE" for an error that each waiting program is told of once.
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
enum { GPU_IS_LOST = 15, XID_EVENT = 8, SUPPORTED_EVENTS = 0x1f, POLL_MILLISECONDS = 50, UNKNOWN = 999 };
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
typedef struct { Gpu *gpu; unsigned long long type, value; unsigned instance, compute_instance; } Event;
typedef struct { unsigned long long wanted[MAXIMUM]; unsigned told; } EventSet;

static Gpu gpus[MAXIMUM];
static unsigned count;
static char driver_version[32];

static const char *below_root(const char *path)
{
    static __thread char text[1024], own[512];  /* a program waits for events beside its other calls */
    const char *root = getenv("GPUOPS_ROOT");
    Dl_info place;
    if (!root && dladdr((void *)gpus, &place) && place.dli_fname && place.dli_fname[0] == '/') {
        snprintf(own, sizeof own, "%s", place.dli_fname);
        char *end = strstr(own, "/usr/lib");
        if (!end) end = strstr(own, "/lib");
        if (end) *end = 0;
        root = end ? own : "";
    }
    snprintf(text, sizeof text, "%s%s", root ? root : "", path);
    return text;
}

static FILE *open_faults(void) { return fopen(below_root("/usr/share/gpuops-lab/nvml-faults"), "r"); }

static int next_fault(FILE *faults, const char *kind, char *address, unsigned *value)
{
    char line[128], found[16];
    while (fgets(line, sizeof line, faults)) {
        *value = 0;
        if (sscanf(line, "%15s %15s %u", found, address, value) >= 2 && strcmp(found, kind) == 0) return 1;
    }
    return 0;
}

static int is_lost(const Gpu *gpu)
{
    char address[16];
    unsigned value;
    int lost = 0;
    FILE *faults = open_faults();
    if (!faults) return 0;
    while (!lost && next_fault(faults, "lost", address, &value)) lost = strcmp(address, gpu->address) == 0;
    fclose(faults);
    return lost;
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
        if (read != 10 || !is_there(path)) continue;
        snprintf(path, sizeof path, "/dev/nvidia%u", gpu->minor);
        if (is_there(path)) count++;
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
    case GPU_IS_LOST: return "GPU is lost";
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
    return is_lost(*gpu) ? GPU_IS_LOST : SUCCESS;
}
int nvmlDeviceGetHandleByIndex(unsigned index, Gpu **gpu) { return nvmlDeviceGetHandleByIndex_v2(index, gpu); }

int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(gpus[i].uuid, uuid) == 0) return nvmlDeviceGetHandleByIndex_v2(i, gpu);
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Gpu **gpu)
{
    size_t length = strlen(id);
    for (unsigned i = 0; i < count; i++)
        if (length >= 12 && strcasecmp(gpus[i].address + 5, id + length - 7) == 0) return nvmlDeviceGetHandleByIndex_v2(i, gpu);
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
    if (is_lost(gpu)) return GPU_IS_LOST;
    memory->total = (unsigned long long)gpu->memory_mib << 20;
    memory->used = 1 << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, MemoryV2 *memory)
{
    if (is_lost(gpu)) return GPU_IS_LOST;
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

int nvmlDeviceGetSupportedEventTypes(Gpu *gpu, unsigned long long *types)
{
    if (is_lost(gpu)) return GPU_IS_LOST;
    *types = SUPPORTED_EVENTS;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long types, EventSet *set)
{
    if (!set || types & ~(unsigned long long)SUPPORTED_EVENTS) return INVALID_ARGUMENT;
    if (is_lost(gpu)) return GPU_IS_LOST;
    set->wanted[gpu - gpus] |= types;
    return SUCCESS;
}

int nvmlEventSetCreate(EventSet **set)
{
    *set = calloc(1, sizeof **set);
    return *set ? SUCCESS : UNKNOWN;
}

int nvmlEventSetFree(EventSet *set) { free(set); return SUCCESS; }

/* The first error that this set has not been told of, of a GPU that it was registered for. */
static int take_event(EventSet *set, Event *event)
{
    char address[16];
    unsigned code, position = 0;
    FILE *faults = open_faults();
    int found = 0;
    while (faults && !found && next_fault(faults, "xid", address, &code)) {
        if (position++ < set->told) continue;
        set->told = position;
        for (unsigned i = 0; i < count && !found; i++)
            if (strcmp(gpus[i].address, address) == 0 && set->wanted[i] & XID_EVENT) {
                *event = (Event){ &gpus[i], XID_EVENT, code, 0xffffffff, 0xffffffff };
                found = 1;
            }
    }
    if (!found && position < set->told) set->told = position;  /* mended: what comes next is new */
    if (faults) fclose(faults);
    return found;
}

int nvmlEventSetWait_v2(EventSet *set, Event *event, unsigned milliseconds)
{
    if (!set || !event) return INVALID_ARGUMENT;
    for (unsigned waited = 0;; waited += POLL_MILLISECONDS) {
        if (take_event(set, event)) return SUCCESS;
        if (waited >= milliseconds) return TIMEOUT;
        nanosleep(&(struct timespec){ 0, POLL_MILLISECONDS * 1000000L }, NULL);
    }
}
