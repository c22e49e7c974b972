#define PANEL_VECTOR_BYTES 32

#include "kernels/reference/inner/panel.h"

const struct reference_loops reference_loops_avx2 = {panel_multiply, panel_swiglu};
