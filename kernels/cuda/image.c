#include "kernels/cuda/driver.h"

/* CMake names a file with a line IMAGE(name, path) for each fat binary, if it has nvcc
 * (kernels/cuda/CMakeLists.txt). */
#ifdef BATON_CUDA_IMAGES
#define IMAGE(name, path)                                                                          \
    __asm__(".section .rodata\n"                                                                   \
            ".balign 64\n"                                                                         \
            "cuda_image_" #name ":\n"                                                              \
            ".incbin \"" path "\"\n"                                                               \
            ".byte 0\n"                                                                            \
            ".previous\n");                                                                        \
    extern const unsigned char cuda_image_##name[];
#include BATON_CUDA_IMAGES
#undef IMAGE
#define IMAGE(name, path) cuda_image_##name,
const unsigned char *const cuda_images[] = {
#include BATON_CUDA_IMAGES
};
const size_t cuda_image_count = sizeof cuda_images / sizeof *cuda_images;
_Static_assert(sizeof cuda_images / sizeof *cuda_images <= CUDA_IMAGES_MAX, "too many images");
#else
const unsigned char *const cuda_images[] = {(const unsigned char *)""};
const size_t cuda_image_count = 0;
#endif
