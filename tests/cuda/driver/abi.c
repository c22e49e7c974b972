/* Compares kernels/cuda/driver.h with NVIDIA's cuda.h, where the toolkit is installed: it compiles
 * or it doesn't. */
#include "kernels/cuda/driver.h"

#include <cuda.h>
#include <stddef.h>

#define SAME(OURS, THEIRS) _Static_assert((long)(OURS) == (long)(THEIRS), #OURS)

SAME(sizeof(struct cuda_launch_attribute), sizeof(CUlaunchAttribute));
SAME(offsetof(struct cuda_launch_attribute, value), offsetof(CUlaunchAttribute, value));
SAME(offsetof(struct cuda_launch_attribute, value.cluster.z),
     offsetof(CUlaunchAttribute, value.clusterDim.z));
SAME(offsetof(struct cuda_launch_attribute, value.early),
     offsetof(CUlaunchAttribute, value.programmaticStreamSerializationAllowed));
SAME(CUDA_ATTRIBUTE_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(CUDA_ATTRIBUTE_EARLY, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(sizeof(struct cuda_launch_config), sizeof(CUlaunchConfig));
SAME(offsetof(struct cuda_launch_config, grid[2]), offsetof(CUlaunchConfig, gridDimZ));
SAME(offsetof(struct cuda_launch_config, block[2]), offsetof(CUlaunchConfig, blockDimZ));
SAME(offsetof(struct cuda_launch_config, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
SAME(offsetof(struct cuda_launch_config, stream), offsetof(CUlaunchConfig, hStream));
SAME(offsetof(struct cuda_launch_config, attributes), offsetof(CUlaunchConfig, attrs));
SAME(offsetof(struct cuda_launch_config, attribute_count), offsetof(CUlaunchConfig, numAttrs));
SAME(sizeof(uint64_t), sizeof(CUdeviceptr));
SAME(sizeof(int), sizeof(CUdevice));
SAME(CUDA_DEVICE_SMS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CUDA_DEVICE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CUDA_DEVICE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CUDA_DEVICE_SHARED_BYTES, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CUDA_DEVICE_MAPS_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CUDA_DEVICE_EXPORTS, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(CUDA_DEVICE_CARDS, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME(sizeof(struct cuda_memory_kind), sizeof(CUmemAllocationProp));
SAME(offsetof(struct cuda_memory_kind, handle_types),
     offsetof(CUmemAllocationProp, requestedHandleTypes));
SAME(offsetof(struct cuda_memory_kind, location.id), offsetof(CUmemAllocationProp, location.id));
SAME(offsetof(struct cuda_memory_kind, rdma),
     offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
SAME(sizeof(struct cuda_access), sizeof(CUmemAccessDesc));
SAME(offsetof(struct cuda_access, rights), offsetof(CUmemAccessDesc, flags));
SAME(sizeof(uint64_t), sizeof(CUmemGenericAllocationHandle));
SAME(CUDA_MEMORY_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CUDA_HANDLE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CUDA_READS, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME(CUDA_READS_AND_WRITES, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CUDA_FUNCTION_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(CUDA_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(CUDA_HOST_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CUDA_EVENT_SLEEPS, CU_EVENT_BLOCKING_SYNC);
SAME(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CUDA_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(CUDA_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_NO_DEVICE_FOUND, CUDA_ERROR_NO_DEVICE);
SAME(CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(CUDA_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(CUDA_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(CUDA_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM);
SAME(CUDA_SYMBOL_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CUDA_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CUDA_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(CUDA_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(CUDA_UNKNOWN, CUDA_ERROR_UNKNOWN);

/* Each symbol is the one that a program linked with this toolkit would call. */
#define DECLARED(NAME, SYMBOL, PARAMETERS) _Static_assert(sizeof(&SYMBOL) == sizeof(void *), #NAME);
CUDA_FUNCTIONS(DECLARED)

/* NVML's header is a package of its own. */
#if defined(__has_include)
#if __has_include(<nvml.h>)
#include <nvml.h>

SAME(sizeof(struct nvml_memory), sizeof(nvmlMemory_t));
SAME(offsetof(struct nvml_memory, used), offsetof(nvmlMemory_t, used));
SAME(sizeof(struct nvml_temperature), sizeof(nvmlTemperature_t));
SAME(offsetof(struct nvml_temperature, celsius), offsetof(nvmlTemperature_t, temperature));
SAME(NVML_TEMPERATURE_VERSION, nvmlTemperature_v1);
SAME(sizeof(struct nvml_event), sizeof(nvmlEventData_t));
SAME(offsetof(struct nvml_event, type), offsetof(nvmlEventData_t, eventType));
SAME(offsetof(struct nvml_event, data), offsetof(nvmlEventData_t, eventData));
SAME(NVML_EVENT_DOUBLE_BIT, nvmlEventTypeDoubleBitEccError);
SAME(NVML_EVENT_XID, nvmlEventTypeXidCriticalError);
SAME(NVML_SM_CLOCK, NVML_CLOCK_SM);
SAME(NVML_GPU_TEMPERATURE, NVML_TEMPERATURE_GPU);
SAME(NVML_ECC_CORRECTED, NVML_MEMORY_ERROR_TYPE_CORRECTED);
SAME(NVML_ECC_UNCORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
SAME(NVML_ECC_SINCE_LOADED, NVML_VOLATILE_ECC);
SAME(NVML_OK, NVML_SUCCESS);
SAME(NVML_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
SAME(NVML_NO_PERMISSION, NVML_ERROR_NO_PERMISSION);
SAME(NVML_NOT_FOUND, NVML_ERROR_NOT_FOUND);
SAME(NVML_DRIVER_NOT_LOADED, NVML_ERROR_DRIVER_NOT_LOADED);
SAME(NVML_TIMEOUT, NVML_ERROR_TIMEOUT);
SAME(NVML_GPU_IS_LOST, NVML_ERROR_GPU_IS_LOST);
SAME(NVML_RESET_REQUIRED, NVML_ERROR_RESET_REQUIRED);
SAME(NVML_UNKNOWN, NVML_ERROR_UNKNOWN);
NVML_FUNCTIONS(DECLARED)
#endif
#endif
