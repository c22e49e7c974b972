/* Tiles of AMX: eight registers of 16 rows of 64 bytes. A thread configures them before their first
 * use and releases them after the last, since their contents are saved with the thread. Written in
 * assembly: the intrinsics of gcc 12 declare only 8 bytes of the configuration as read, and the
 * compiler drops the other stores. The compiler never uses tiles by itself. Source: Intel 64 and
 * IA-32 Architectures Software Developer's Manual, volume 1, chapter 18. */
#ifndef BATON_KERNELS_CPU_INNER_AMX_H
#define BATON_KERNELS_CPU_INNER_AMX_H

#include <stddef.h>
#include <stdint.h>

#define AMX_ROWS      16
#define AMX_ROW_BYTES 64

struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Configures all eight tiles: 0 to 5, sums and rows of inputs, with `height` rows, 6 and 7
 * whole. */
static inline void amx_begin_rows(uint32_t height)
{
    struct amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = AMX_ROW_BYTES;
        config.rows[i] = i < 6 ? (uint8_t)height : AMX_ROWS;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

/* Configures all eight tiles whole. */
static inline void amx_begin(void)
{
    amx_begin_rows(AMX_ROWS);
}

static inline void amx_end(void)
{
    __asm__ volatile("tilerelease");
}

#define TILE_ZERO(T) __asm__ volatile("tilezero %%tmm" #T ::)
/* Loads a tile; its rows lie STRIDE bytes apart. */
#define TILE_LOAD(T, ADDRESS, STRIDE)                                                              \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #T ::"r"(ADDRESS), "r"((size_t)(STRIDE))         \
                     : "memory")
/* TILE_LOAD from the level 2 cache, past the level 1, where it would push out what is used
 * again. */
#define TILE_LOAD_FAR(T, ADDRESS, STRIDE)                                                          \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #T ::"r"(ADDRESS), "r"((size_t)(STRIDE))       \
                     : "memory")
#define TILE_STORE(T, ADDRESS, STRIDE)                                                             \
    __asm__ volatile("tilestored %%tmm" #T ", (%0,%1,1)" ::"r"(ADDRESS), "r"((size_t)(STRIDE))     \
                     : "memory")
/* sums += rows x columns. A row of `columns` holds, for each of 16 columns, the two bf16 numbers or
 * four bytes that stand below each other. */
#define TILE_DOT_BF16(SUMS, ROWS, COLUMNS)                                                         \
    __asm__ volatile("tdpbf16ps %%tmm" #COLUMNS ", %%tmm" #ROWS ", %%tmm" #SUMS ::)
#define TILE_DOT_S8_S8(SUMS, ROWS, COLUMNS)                                                        \
    __asm__ volatile("tdpbssd %%tmm" #COLUMNS ", %%tmm" #ROWS ", %%tmm" #SUMS ::)
#define TILE_DOT_S8_U8(SUMS, ROWS, COLUMNS)                                                        \
    __asm__ volatile("tdpbsud %%tmm" #COLUMNS ", %%tmm" #ROWS ", %%tmm" #SUMS ::)

#endif
