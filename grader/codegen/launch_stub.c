// Stands in for CUDA's runtime where there is no GPU: host code runs, and its launches are looked at, not run.
//
// What a launch may ask for is that of the CUDA programming guide. The first launch that a GPU would refuse is
// kept; the call then returns the error that CUDA would return. Memory that host code allocates has an address
// and no contents, which only a kernel would need.

#include <driver_types.h>  // structures only: the functions are declared here, and take what is needed of them
#include <stddef.h>
#include <string.h>

typedef struct { unsigned x, y, z; } Sizes;
typedef struct { Sizes grid, block; size_t dynamic; void* stream; } Config;

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_CONFIGURATION = 9, TOO_MANY_RESOURCES = 701 };
enum { MOST_KERNELS = 256, STATIC_SHARED = 48 << 10, DYNAMIC_ATTRIBUTE = 8 };
enum { THREADS = 1, GRID, STATIC_MEMORY, DYNAMIC_MEMORY, NO_OPT_IN, REGISTERS };

typedef struct {
    const void* host;
    const char* name;
    long long shared, registers, opt_in;  // bytes of static shared memory; of a thread; bytes that were asked for
} Kernel;

static Kernel kernels[MOST_KERNELS];
static int n_kernels, last_error;
static long long shared_limit = 227 << 10;
static Config pushed;
static char heap[64];  // any address; what is allocated is never touched

// What `launch_probe` reads and sets.
struct { int kind; const char* kernel; long long asked, allowed; } launch_stub_refused;
int launch_stub_launches;

void launch_stub_limits(long long shared) { shared_limit = shared; }

void launch_stub_kernel(const char* name, long long shared, long long registers) {
    for (int i = 0; i < n_kernels; ++i) {
        if (strcmp(kernels[i].name, name)) continue;
        kernels[i].shared = shared;
        kernels[i].registers = registers;
    }
}

static Kernel* find(const void* host) {
    for (int i = 0; i < n_kernels; ++i) {
        if (kernels[i].host == host) return &kernels[i];
    }
    return NULL;
}

static int refuse(int error, int kind, const Kernel* kernel, long long asked, long long allowed) {
    if (!launch_stub_refused.kind) {
        launch_stub_refused.kind = kind;
        launch_stub_refused.kernel = kernel ? kernel->name : "";
        launch_stub_refused.asked = asked;
        launch_stub_refused.allowed = allowed;
    }
    return last_error = error;
}

static int launch(const void* host, Sizes grid, Sizes block, size_t dynamic) {
    const Kernel* kernel = find(host);
    ++launch_stub_launches;
    const long long threads = 1LL * block.x * block.y * block.z;
    const long long shared = kernel ? kernel->shared : 0, registers = kernel ? (kernel->registers + 7) / 8 * 8 : 0;
    const long long opt_in = kernel ? kernel->opt_in : 0;
    if (threads > 1024 || !threads || block.z > 64) return refuse(INVALID_CONFIGURATION, THREADS, kernel, threads, 1024);
    if (!grid.x || !grid.y || !grid.z) return refuse(INVALID_CONFIGURATION, GRID, kernel, 0, 0x7fffffff);
    if (grid.x > 0x7fffffff) return refuse(INVALID_CONFIGURATION, GRID, kernel, grid.x, 0x7fffffff);
    if (grid.y > 65535) return refuse(INVALID_CONFIGURATION, GRID, kernel, grid.y, 65535);
    if (grid.z > 65535) return refuse(INVALID_CONFIGURATION, GRID, kernel, grid.z, 65535);
    if (shared > STATIC_SHARED) return refuse(INVALID_VALUE, STATIC_MEMORY, kernel, shared, STATIC_SHARED);
    if (shared + (long long)dynamic > shared_limit) {
        return refuse(INVALID_VALUE, DYNAMIC_MEMORY, kernel, shared + (long long)dynamic, shared_limit);
    }
    if (shared + (long long)dynamic > STATIC_SHARED && (long long)dynamic > opt_in) {
        return refuse(INVALID_VALUE, NO_OPT_IN, kernel, shared + (long long)dynamic, STATIC_SHARED);
    }
    // Registers are handed out to whole warps.
    const long long used = (threads + 31) / 32 * 32 * registers;
    if (used > 65536) return refuse(TOO_MANY_RESOURCES, REGISTERS, kernel, used, 65536);
    return SUCCESS;
}

// What the compiler writes into host code.
void** __cudaRegisterFatBinary(void* binary) { return (void**)binary; }
void __cudaRegisterFatBinaryEnd(void** binary) { (void)binary; }
void __cudaUnregisterFatBinary(void** binary) { (void)binary; }
char __cudaInitModule(void** binary) { return binary != NULL; }
void __cudaRegisterVar(void) {}
void __cudaRegisterFunction(void** binary, const char* host, char* device, const char* name) {
    (void)binary, (void)device;
    if (n_kernels < MOST_KERNELS) kernels[n_kernels++] = (Kernel){host, name, 0, 0, 0};
}
unsigned __cudaPushCallConfiguration(Sizes grid, Sizes block, size_t dynamic, void* stream) {
    pushed = (Config){grid, block, dynamic, stream};
    return 0;
}
int __cudaPopCallConfiguration(Sizes* grid, Sizes* block, size_t* dynamic, void** stream) {
    *grid = pushed.grid, *block = pushed.block, *dynamic = pushed.dynamic, *stream = pushed.stream;
    return SUCCESS;
}
int __cudaGetKernel(const void** kernel, const void* host) { return *kernel = host, SUCCESS; }

// Launches.
int cudaLaunchKernel(const void* host, Sizes grid, Sizes block, void** args, size_t dynamic, void* stream) {
    (void)args, (void)stream;
    return launch(host, grid, block, dynamic);
}
int __cudaLaunchKernel(const void* host, Sizes grid, Sizes block, void** args, size_t dynamic, void* stream) {
    return cudaLaunchKernel(host, grid, block, args, dynamic, stream);
}
int cudaLaunchCooperativeKernel(
    const void* host, Sizes grid, Sizes block, void** args, size_t dynamic, void* stream) {
    return cudaLaunchKernel(host, grid, block, args, dynamic, stream);
}
int cudaLaunchKernelExC(const Config* config, const void* host, void** args) {
    (void)args;
    return launch(host, config->grid, config->block, config->dynamic);
}

// Attributes and questions, with the answers of one GPU of 132 multiprocessors.
int cudaGetLastError(void) {
    const int error = last_error;
    last_error = SUCCESS;
    return error;
}
int cudaPeekAtLastError(void) { return last_error; }
const char* cudaGetErrorString(int error) { return error ? "an error of CUDA" : "no error"; }
const char* cudaGetErrorName(int error) { return error ? "cudaError" : "cudaSuccess"; }
int cudaGetDevice(int* device) { return *device = 0, SUCCESS; }
int cudaGetDeviceCount(int* count) { return *count = 1, SUCCESS; }
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
    (void)device;
    switch (attribute) {
        case 1: *value = 1024; break;                                  // threads of a block
        case 8: *value = STATIC_SHARED; break;                         // bytes of shared memory of a block
        case 10: *value = 32; break;                                   // threads of a warp
        case 12: *value = 65536; break;                                // registers of a block
        case 16: *value = 132; break;                                  // multiprocessors
        case 38: *value = 50 << 20; break;                             // bytes of L2
        case 39: *value = 2048; break;                                 // threads of a multiprocessor
        case 75: *value = 9; break;                                    // compute capability
        case 81: *value = (int)(shared_limit + 1024); break;           // shared memory of a multiprocessor
        case 97: *value = (int)shared_limit; break;                    // of a block, at most
        case 106: *value = 32; break;                                  // blocks of a multiprocessor
        default: *value = attribute >= 2 && attribute <= 7 ? 65535 : 1;
    }
    return SUCCESS;
}
int cudaFuncSetAttribute(const void* host, int attribute, int value) {
    Kernel* kernel = find(host);
    if (attribute != DYNAMIC_ATTRIBUTE || !kernel) return SUCCESS;
    if (kernel->shared + value > shared_limit) {
        return refuse(INVALID_VALUE, DYNAMIC_MEMORY, kernel, kernel->shared + value, shared_limit);
    }
    kernel->opt_in = value;
    return SUCCESS;
}
int cudaGetDeviceProperties(struct cudaDeviceProp* found, int device) {
    (void)device;
    memset(found, 0, sizeof *found);
    strcpy(found->name, "no GPU");
    found->major = 9;
    found->warpSize = 32;
    found->maxThreadsPerBlock = 1024;
    found->maxThreadsPerMultiProcessor = 2048;
    found->multiProcessorCount = 132;
    found->regsPerBlock = found->regsPerMultiprocessor = 65536;
    found->sharedMemPerBlock = STATIC_SHARED;
    found->sharedMemPerBlockOptin = shared_limit;
    found->sharedMemPerMultiprocessor = shared_limit + 1024;
    found->l2CacheSize = 50 << 20;
    found->totalGlobalMem = 64ull << 30;
    return SUCCESS;
}
int cudaGetDeviceProperties_v2(struct cudaDeviceProp* found, int device) {
    return cudaGetDeviceProperties(found, device);
}
int cudaFuncGetAttributes(struct cudaFuncAttributes* found, const void* host) {
    const Kernel* kernel = find(host);
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = 1024;
    found->sharedSizeBytes = kernel ? kernel->shared : 0;
    found->numRegs = kernel ? (int)kernel->registers : 0;
    found->maxDynamicSharedSizeBytes = STATIC_SHARED - (int)found->sharedSizeBytes;
    return SUCCESS;
}
int cudaFuncSetCacheConfig(void) { return SUCCESS; }
static int one(int* answer) { return *answer = 1, SUCCESS; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n) { return one(n); }
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n) { return one(n); }
int cudaOccupancyMaxActiveClusters(int* n) { return one(n); }
int cudaRuntimeGetVersion(int* version) { return *version = 13000, SUCCESS; }
int cudaDriverGetVersion(int* version) { return *version = 13000, SUCCESS; }
int cudaStreamIsCapturing(void* stream, int* status) { return (void)stream, *status = 0, SUCCESS; }

// Memory of the device, and descriptions of it.
static int allocated(void** pointer) { return *pointer = heap, SUCCESS; }
int cudaMallocAsync(void** pointer) { return allocated(pointer); }
int cudaMallocFromPoolAsync(void** pointer) { return allocated(pointer); }
int cudaGetSymbolAddress(void** pointer) { return allocated(pointer); }
int cudaFreeAsync(void) { return SUCCESS; }
int cudaMemsetAsync(void) { return SUCCESS; }
int cudaMemset2DAsync(void) { return SUCCESS; }
int cudaMemcpyAsync(void) { return SUCCESS; }
int cudaMemcpy2DAsync(void) { return SUCCESS; }
int cudaMemcpyToSymbolAsync(void) { return SUCCESS; }
int cudaMemcpyFromSymbolAsync(void) { return SUCCESS; }
int cuTensorMapEncodeTiled(void) { return SUCCESS; }
int cuTensorMapEncodeIm2col(void) { return SUCCESS; }
int cuTensorMapEncodeIm2colWide(void) { return SUCCESS; }
static int by_name(void** function, int* status) {
    if (status) *status = 0;
    return *function = (void*)cuTensorMapEncodeTiled, SUCCESS;
}
int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags, int* status) {
    return (void)name, (void)flags, by_name(function, status);
}
int cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned version, unsigned long long flags, int* status) {
    return (void)name, (void)version, (void)flags, by_name(function, status);
}
