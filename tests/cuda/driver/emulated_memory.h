/* Inside libcuda-emulated.so: the device's memory (emulated_memory.c), under the lock of
 * emulated_driver.c. Memory has no access rights for the host, except while it is open. */
#ifndef BATON_TESTS_CUDA_EMULATED_MEMORY_H
#define BATON_TESTS_CUDA_EMULATED_MEMORY_H

#include "kernels/cuda/driver.h"

#define DECLARE(NAME, SYMBOL, PARAMETERS)                                                          \
    __attribute__((visibility("default"))) int SYMBOL PARAMETERS;
CUDA_FUNCTIONS(DECLARE)
DECLARE(version, cuDriverGetVersion, (int *version))

struct memory {
    char *base;
    size_t bytes, reserved;  /* reserved: with a page behind that is never open */
    int rights;              /* PROT_..., for kernels and copies */
    bool is_range;           /* addresses of cuMemAddressReserve */
    struct allocation *held; /* mapped there; NULL: none */
};

/* emulated_driver.c. enter: begins a call that needs a context; CUDA_OK: leave is due. */
int emulated_enter(void);
int emulated_leave(int result);
size_t emulated_device_bytes(bool taken); /* the device's, or those of other processes */

/* Opens or closes all memory, or one piece. */
void memory_open_all(bool opens);
bool memory_is_open(void);
void memory_open_one(const struct memory *memory, bool opens);
struct memory *memory_at(const void *address); /* NULL: the host's */
/* Host memory, or inside one piece. */
bool memory_is_sound(uint64_t address, size_t bytes);
void memory_drop_all(void);
/* Bytes of the device beside its allocations. false: they don't fit. */
bool memory_hold(size_t bytes);
void memory_let_go(size_t bytes);

#endif
